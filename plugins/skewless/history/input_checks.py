"""What a spec expects of its input, held against what is known of it before it is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal

from skewless.documents.job import InputFacts, Job
from skewless.documents.quality import Check
from skewless.errors import SpecError, nearest
from skewless.spec.spec import JobSpec

#: Whether it holds, or None if that is not known; what was observed; and in words.
Outcome = tuple[bool | None, str, str]
_LEFT_OUT = "files that no row of the condition is in were left out"


def _exists(facts: InputFacts, *, column: str) -> Outcome:
    kind = facts.columns.get(column, "")
    return bool(kind), kind or "none", f"of type {kind}" if kind else "no such column"


def _is_of_type(facts: InputFacts, *, column: str, type_: str) -> Outcome:
    there, kind, message = _exists(facts, column=column)
    return there and kind == "".join(type_.lower().split()), kind, message


def _not_null(facts: InputFacts, *, column: str, mostly: float = 1) -> Outcome:
    rows, nulls = facts.rows, facts.nulls.get(column)
    if nulls is None or rows is None:
        there, observed, message = _exists(facts, column=column)
        uncounted = f"nulls are not counted of a column of this kind, or as {_LEFT_OUT}"
        return (None, "", uncounted) if there else (False, observed, message)
    good = rows - nulls >= Decimal(str(mostly)) * rows
    return good, f"{nulls:,}", f"{nulls:,} of {rows:,} rows are null ({nulls / max(rows, 1):.2%})"


def _between(facts: InputFacts, *, min_value: float | None = None, max_value: float | None = None) -> Outcome:
    if (rows := facts.rows) is None:
        return None, "", f"its rows are not counted: {_LEFT_OUT}"
    good = (min_value is None or rows >= min_value) and (max_value is None or rows <= max_value)
    return good, f"{rows:,}", f"{rows:,} rows"


NULLS, BETWEEN = "expect_column_values_to_not_be_null", "expect_table_row_count_to_be_between"
#: All that may be expected of an input, by Great Expectations' names.
KINDS: dict[str, Callable[..., Outcome]] = {
    "expect_column_to_exist": _exists,
    "expect_column_values_to_be_of_type": _is_of_type,
    NULLS: _not_null,
    BETWEEN: _between,
}


def asked_columns(spec: JobSpec) -> dict[str, bool]:
    """The columns of the input that are asked for, and whether their nulls are."""
    with_nulls = {one.kwargs.get("column") for one in spec.quality.input if one.type == NULLS}
    return {name: name in with_nulls for one in spec.quality.input if (name := one.kwargs.get("column")) is not None}


def asks_rows(spec: JobSpec) -> bool:
    """Whether an expectation needs the number of rows: to judge it, or a share of it."""
    return any(one.type in {NULLS, BETWEEN} for one in spec.quality.input)


def check_input_expectations(spec: JobSpec, where: str) -> None:
    """Refuse what cannot be expected of an input before it is read; a ``SpecError`` names the first."""
    hint = "expect it of the result, in quality.expectations"
    for position, one in enumerate(spec.quality.input):
        spot = f"{where}, field quality.input.{position}"
        if one.type not in KINDS:
            raise SpecError(f"{spot}.type", "what is known before an input is read", one.type, nearest(one.type, KINDS))
        arguments = inspect.signature(KINDS[one.type])
        try:
            arguments.bind(None, **one.kwargs)
            fits = all(_fits(name, value) for name, value in one.kwargs.items())
        except TypeError:
            fits = False
        if not fits:
            names = ", ".join(list(arguments.parameters)[1:]) or "no arguments"
            raise SpecError(f"{spot}.kwargs", f"{names}, names as texts and numbers of rows", str(one.kwargs)[:120])
        if one.type == NULLS and spec.lengths:
            raise SpecError(f"{spot}.type", "no window, as kept states do not know nulls", "a window", hint)
        if one.type == BETWEEN and spec.map is not None and spec.lengths:
            raise SpecError(f"{spot}.type", "no map, as kept states know the rows behind it", "a map", hint)


def _fits(name: str, value: object) -> bool:
    if name in {"column", "type_"}:
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and (name != "mostly" or 0 <= value <= 1)


def input_checks(job: Job) -> Iterator[Check]:
    """What is expected of the input of a job, each with its verdict. What is not known never counts as passed."""
    for one in job.spec.quality.input:
        holds, observed, message = KINDS[one.type](job.facts or InputFacts(), **one.kwargs)
        required = ", ".join(f"{name}={value}" for name, value in one.kwargs.items() if name != "column")
        yield Check(
            subject="input", expectation=one.type, column=one.kwargs.get("column", ""), success=bool(holds),
            required=required, observed=observed, found=message, severity="fail" if holds is None else one.severity,
        )  # fmt: skip
