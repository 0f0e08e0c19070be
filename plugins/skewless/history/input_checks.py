"""What a spec expects of its input, held against what is known of it before it is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal

from skewless.documents.job import InputFacts, Job
from skewless.documents.nights import JobNights
from skewless.documents.quality import Check
from skewless.errors import SpecError, nearest
from skewless.history.bands import bands_of, shape_of
from skewless.spec.spec import JobSpec

#: Whether it holds, or None if that is not known; what was observed; and in words.
Found = tuple[bool | None, str, str]
_LEFT_OUT = "files that no row of the condition is in were left out"
_NO_ROWS: Found = (None, "", f"its rows are not counted: {_LEFT_OUT}")


def _exists(job: Job, nights: JobNights, *, column: str) -> Found:
    del nights
    kind = _known(job).columns.get(column, "")
    return bool(kind), kind or "none", f"of type {kind}" if kind else "no such column"


def _is_of_type(job: Job, nights: JobNights, *, column: str, type_: str) -> Found:
    there, kind, words = _exists(job, nights, column=column)
    return there and kind == "".join(type_.lower().split()), kind, words


def _not_null(job: Job, nights: JobNights, *, column: str, mostly: float = 1) -> Found:
    there, *told = _exists(job, nights, column=column)
    rows, nulls = _known(job).rows, _known(job).nulls.get(column)
    if there and (nulls is None or rows is None):
        return None, "", f"nulls are not counted of a column of this kind, or as {_LEFT_OUT}"
    if nulls is None or rows is None:
        return False, told[0], told[1]
    good = rows - nulls >= Decimal(str(mostly)) * rows
    return good, f"{nulls:,}", f"{nulls:,} of {rows:,} rows are null ({nulls / max(rows, 1):.2%})"


def _between(job: Job, nights: JobNights, *, min_value: float | None = None, max_value: float | None = None) -> Found:
    del nights
    if (rows := _known(job).rows) is None:
        return _NO_ROWS
    good = (min_value is None or rows >= min_value) and (max_value is None or rows <= max_value)
    return good, f"{rows:,}", f"{rows:,} rows"


def _usual(job: Job, nights: JobNights) -> Found:
    if (rows := _known(job).rows) is None:
        return _NO_ROWS
    bands = bands_of(job.part, shape_of(job), {"rows": (rows, 0)}, nights, "failed")
    if not bands.checks:
        return True, f"{rows:,}", f"{rows:,} rows; {bands.nights:,} nights are too few to say what is usual"
    return bands.checks[0].outcome == "passed", f"{rows:,}", bands.checks[0].sentence


def _known(job: Job) -> InputFacts:
    return job.facts or InputFacts()


NULLS, USUAL = "expect_column_values_to_not_be_null", "expect_table_row_count_to_be_usual"
BETWEEN = "expect_table_row_count_to_be_between"
#: All that may be expected of an input; the last one is ours, and all others have Great Expectations' names.
KINDS: dict[str, Callable[..., Found]] = {
    "expect_column_to_exist": _exists,
    "expect_column_values_to_be_of_type": _is_of_type,
    NULLS: _not_null,
    BETWEEN: _between,
    USUAL: _usual,
}


def asked_columns(spec: JobSpec) -> dict[str, bool]:
    """The columns of the input that are asked for, and whether their nulls are."""
    with_nulls = {one.kwargs.get("column") for one in spec.quality.input if one.type == NULLS}
    return {name: name in with_nulls for one in spec.quality.input if (name := one.kwargs.get("column")) is not None}


def asks_rows(spec: JobSpec) -> bool:
    """Whether an expectation needs the number of rows: to judge it, or a share of it."""
    return any(one.type in {NULLS, BETWEEN, USUAL} for one in spec.quality.input)


def check_input_expectations(spec: JobSpec, where: str) -> None:
    """Refuse what cannot be expected of an input before it is read; a ``SpecError`` names the first."""
    hint = "expect it of the result, in quality.expectations"
    for position, one in enumerate(spec.quality.input):
        spot = f"{where}, field quality.input.{position}"
        if one.type not in KINDS:
            raise SpecError(f"{spot}.type", "what is known before an input is read", one.type, nearest(one.type, KINDS))
        arguments = inspect.signature(KINDS[one.type])
        try:
            arguments.bind(None, None, **one.kwargs)
            fits = all(_fits(name, value) for name, value in one.kwargs.items())
        except TypeError:
            fits = False
        if not fits:
            names = ", ".join(list(arguments.parameters)[2:]) or "no arguments"
            raise SpecError(f"{spot}.kwargs", f"{names}, names as texts and numbers of rows", str(one.kwargs)[:120])
        if one.type == NULLS and spec.lengths:
            raise SpecError(f"{spot}.type", "no window, as kept states do not know nulls", "a window", hint)
        if one.type == BETWEEN and spec.map is not None and spec.lengths:
            raise SpecError(f"{spot}.type", "no map, as kept states know the rows behind it", "a map", hint)
        if one.type == USUAL and spec.map is not None:
            raise SpecError(f"{spot}.type", "no map, as earlier nights know the rows behind it", "a map", hint)


def _fits(name: str, value: object) -> bool:
    if name in {"column", "type_"}:
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and (name != "mostly" or 0 <= value <= 1)


def input_checks(job: Job, nights: JobNights) -> Iterator[Check]:
    """What is expected of the input of a job, each with its verdict. What is not known never counts as passed.

    Args:
        nights: of the job, that its number of rows is compared with; without enough of them any number is usual.
    """
    for one in job.spec.quality.input:
        holds, observed, words = KINDS[one.type](job, nights, **one.kwargs)
        given = ", ".join(str(value) if name == "column" else f"{name}={value}" for name, value in one.kwargs.items())
        yield Check(
            subject="input", expectation=one.type, column=one.kwargs.get("column", ""), success=bool(holds),
            observed=observed, sentence=f"{one.type}({given}): {words}",
            severity="fail" if holds is None else one.severity,
        )  # fmt: skip
