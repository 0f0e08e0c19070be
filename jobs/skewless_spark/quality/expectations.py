"""The expectations that a spec may name, by Great Expectations' own classes; and our checks of keys and table rules."""

from __future__ import annotations

import datetime as dt
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.documents.quality import Check, FailingKey
from skewless.errors import SpecError, first_line, nearest
from skewless.spec.result import Expectation as ExpectationSpec
from skewless.spec.spec import JobSpec
from skewless_lake.staged_files import TableRule
from skewless_spark.quality.verdict import key_words
from skewless_spark.sources.formats.input_files import quoted

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation


#: At most so many keys that fail are named.
SAMPLES = 10


def own_check(
    subject: str, kind: str, success: bool, observed: str, outcome: str, column: str = "", keys: Sequence[Any] = ()
) -> Check:
    """A check of ours, which is no expectation of Great Expectations."""
    named = tuple(FailingKey(key=key_words(tuple(key))) for key in keys)
    return Check(
        subject=subject, expectation=kind, column=column, success=success, observed=observed, found=outcome,
        keys=named,
    )  # fmt: skip


def columns_check(frame: DataFrame, columns: Sequence[str]) -> Check:
    """Whether a result has the columns of the spec and no other."""
    odd = sorted({*frame.columns} ^ {*columns})
    outcome = f"lacking or not of the spec: {', '.join(odd)}"[:300] if odd else "holds"
    return own_check("result", "columns_of_the_spec", not odd, f"{len(frame.columns)}", outcome)


def key_check(frame: DataFrame, key: Sequence[str]) -> Check:
    """Whether each key occurs once; null is a key as any other."""
    names = [f"k{number}" for number in range(len(key))]
    rows = frame.select(*(F.col(quoted(column)).alias(name) for column, name in zip(key, names, strict=True)))
    twice = rows.groupBy(*names).count().where("count > 1")
    some = twice.select(*names).limit(SAMPLES).collect()
    count = twice.count() if len(some) == SAMPLES else len(some)
    outcome = f"{count:,} keys occur more than once" if count else "holds"
    return own_check("result", "each_key_once", not count, f"{count:,}", outcome, ", ".join(key), some)


def rule_checks(
    frame: DataFrame, rules: Sequence[TableRule], parts: Mapping[str, Any], where: str, key: Sequence[str] = ()
) -> list[Check]:
    """Count the rows that break each rule, and name some. A condition that is null is broken, as in Delta.

    Args:
        frame: the rows, without the columns that name the part.
        rules: of the table; those without a condition are held by the writer of its files.
        key: the columns by which rows are named.

    Raises:
        SpecError: a condition is none that Spark can evaluate.
    """
    held = [rule for rule in rules if rule.condition]
    if not held:
        return []
    rows = frame.withColumns({name: F.lit(value) for name, value in parts.items()})
    broken = [~F.coalesce(F.expr(f"({rule.condition})").cast("boolean"), F.lit(False)) for rule in held]
    try:
        counts = rows.agg(*(F.count_if(one).alias(f"rule_{number}") for number, one in enumerate(broken))).collect()[0]
    except PySparkException as err:
        raise SpecError.saying(
            where, f"a rule of the table cannot be evaluated ({first_line(err)}): "
            + ", ".join(f"{rule.name}: {rule.condition}" for rule in held),
            "drop that rule from the table, or publish into a table of its own",
        ) from None  # fmt: skip
    checks = []
    named = [F.col(quoted(column)) for column in key]
    for rule, of_rule, count in zip(held, broken, counts, strict=True):
        outcome = f"broken by {count:,} rows: {rule.condition}" if count else "holds"
        some = rows.where(of_rule).select(*named).limit(SAMPLES).collect() if count and named else ()
        checks.append(own_check("result", "rule_of_the_table", not count, f"{count:,}", outcome, rule.name, some))
    return checks


#: The expectations that a spec may name. It is an allow list, so that a new release of Great Expectations adds nothing
#: by itself. Each was run on Spark 4.3. Those that Great Expectations lists but cannot compute on Spark (LIKE patterns,
#: dateutil) are left out.
ALLOWED = frozenset({
    "expect_column_max_to_be_between", "expect_column_mean_to_be_between", "expect_column_median_to_be_between",
    "expect_column_min_to_be_between", "expect_column_pair_values_a_to_be_greater_than_b",
    "expect_column_pair_values_to_be_equal", "expect_column_pair_values_to_be_in_set",
    "expect_column_proportion_of_non_null_values_to_be_between",
    "expect_column_proportion_of_unique_values_to_be_between", "expect_column_quantile_values_to_be_between",
    "expect_column_stdev_to_be_between", "expect_column_sum_to_be_between", "expect_column_to_exist",
    "expect_column_type_to_be", "expect_column_unique_value_count_to_be_between",
    "expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal",
    "expect_column_value_z_scores_to_be_less_than", "expect_column_values_to_be_between",
    "expect_column_values_to_be_in_set", "expect_column_values_to_be_in_type_list",
    "expect_column_values_to_be_json_parseable", "expect_column_values_to_be_null",
    "expect_column_values_to_be_of_type", "expect_column_values_to_be_unique", "expect_column_values_to_match_regex",
    "expect_column_values_to_match_regex_list", "expect_column_values_to_match_strftime_format",
    "expect_column_values_to_not_be_in_set", "expect_column_values_to_not_be_null",
    "expect_column_values_to_not_be_outliers", "expect_column_values_to_not_match_regex",
    "expect_column_values_to_not_match_regex_list", "expect_compound_columns_to_be_unique",
    "expect_multicolumn_sum_to_equal", "expect_multicolumn_values_to_be_equal",
    "expect_select_column_values_to_be_unique_within_record", "expect_table_column_count_to_be_between",
    "expect_table_column_count_to_equal", "expect_table_columns_to_match_ordered_list",
    "expect_table_columns_to_match_set", "expect_table_row_count_to_be_between", "expect_table_row_count_to_equal",
})  # fmt: skip

_TO_THE_DRIVER = "brings every distinct value to the driver"
_NO_ORDER = "needs an order of rows, which a result has not"
_QUERIES = "runs SQL of its own, which may read whatever Spark can"

REFUSED = {
    "expect_column_distinct_values_to_be_in_set": _TO_THE_DRIVER,
    "expect_column_distinct_values_to_contain_set": _TO_THE_DRIVER,
    "expect_column_distinct_values_to_equal_set": _TO_THE_DRIVER,
    "expect_column_kl_divergence_to_be_less_than": _TO_THE_DRIVER,
    "expect_column_most_common_value_to_be_in_set": _TO_THE_DRIVER,
    "expect_column_values_to_be_decreasing": _NO_ORDER,
    "expect_column_values_to_be_increasing": _NO_ORDER,
    "expect_column_values_to_match_json_schema": "may fetch the schemas that a schema refers to",
    "expect_query_results_to_match_comparison": _QUERIES,
    "expect_table_row_count_to_equal_other_table": "reads another table",
    "unexpected_rows_expectation": _QUERIES,
}

#: What may be expected of a column of sketches, whose bytes tell of no order, and differ from run to run. All that may
#: be expected of a table is beside these.
_OF_SKETCHES = frozenset({
    "expect_column_proportion_of_non_null_values_to_be_between", "expect_column_to_exist", "expect_column_type_to_be",
    "expect_column_values_to_be_in_type_list", "expect_column_values_to_be_null",
    "expect_column_values_to_be_of_type", "expect_column_values_to_not_be_null",
})  # fmt: skip

#: An entry point of this group is ``TYPE = "MODULE:CLASS"``, where the class is an expectation of that type.
ENTRY_POINT_GROUP = "skewless.expectations"
#: Settings of every expectation class that are no kwargs: we decide how results are reported, an item has its identity
#: beside its kwargs, and a row condition is SQL.
NOT_KWARGS = frozenset({
    "id", "meta", "metadata", "notes", "result_format", "description", "catch_exceptions", "rendered_content",
    "severity", "windows", "batch_id", "row_condition", "condition_parser", "library_metadata",
})  # fmt: skip
#: The only kwarg whose values are mappings; elsewhere a mapping is a ``$PARAMETER``.
MAPPING_KWARG = "quantile_ranges"
#: What pydantic says of a value, as words of ours.
_REQUIRED = {
    "type_error.float": "a number", "type_error.integer": "a whole number", "type_error.bool": "true or false",
    "value_error.date": "a date", "value_error.datetime": "a date", "type_error.list": "a list",
    "type_error.str": "a text", "value_error.strictboolean": "true or false",
}  # fmt: skip
SEVERITIES = {"fail": "critical", "warn": "warning", "quarantine": "warning"}
_COLUMN_KWARGS = ("column", "column_A", "column_B", "column_list", "column_set")


def great_expectations() -> Any:
    """Great Expectations, imported at its first use, which takes seconds of CPU.

    Telemetry must be off before the import. All modules that we use are imported with it.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    warnings.filterwarnings("ignore", "module 'sre_", DeprecationWarning)  # which it imports
    import great_expectations as gx  # noqa: PLC0415 (see above)

    return gx


def import_soon() -> None:
    """Begin to import Great Expectations in a thread, unless that has begun: the end of a run needs it."""
    if "great_expectations" not in sys.modules:
        threading.Thread(target=great_expectations, name="import of Great Expectations", daemon=True).start()


def expectation_class(kind: str, spot: str) -> Any:
    """The class of a type: one that is allowed, or one that an installed package registers."""
    if kind in REFUSED:
        raise SpecError(
            f"{spot}.type", "an expectation that is safe on a big result", f"{kind!r}, which {REFUSED[kind]}"
        )
    own = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in ALLOWED and kind not in own:
        required = "an expectation that Great Expectations has for Spark"
        raise SpecError(f"{spot}.type", required, repr(kind), nearest(kind, [*ALLOWED, *own]))
    gx = great_expectations()
    if kind in ALLOWED:
        return gx.expectations.registry.get_expectation_impl(kind)
    try:
        loaded = own[kind].load()
    except Exception as err:
        came = f"{type(err).__name__}: {err}"
        raise SpecError.saying(f"{spot}.type", f"{own[kind].value} cannot be imported ({came})", "mend it") from err
    if getattr(loaded, "expectation_type", None) != kind:
        raise SpecError(f"{spot}.type", f"an expectation of type {kind!r}", own[kind].value, "rename its entry point")
    return loaded


def is_of_rows(made: Any) -> bool:
    """Whether single rows fail it, by themselves or beside other rows. The type of a column is that of all rows."""
    kinds = great_expectations().expectations.expectation
    maps = (kinds.ColumnMapExpectation, kinds.ColumnPairMapExpectation, kinds.MulticolumnMapExpectation)
    return issubclass(made, maps) and "_type" not in made.expectation_type


def check_expectations(spec: JobSpec, where: str) -> list[Expectation]:
    """The spec's own expectations as Great Expectations' objects, in the spec's order.

    Raises:
        SpecError: names the first that is unknown, refused, or has wrong kwargs.
    """
    if spec.quality.suite:
        hint = "load the spec from its file"
        raise SpecError(f"{where}, field quality.suite", "a suite beside a spec's file", spec.quality.suite, hint)
    columns = spec.published
    sketches = frozenset(name for name, call in spec.values.items() if call is not None and call.publish == "state")
    if odd := [name for name in spec.quality.show if name not in columns]:
        raise SpecError(f"{where}, field quality.show", "columns of the result", repr(odd[0]), nearest(odd[0], columns))
    return [
        _checked(expectation, f"{where}, field quality.expectations.{position}", columns, sketches)
        for position, expectation in enumerate(spec.quality.expectations)
    ]


def _checked(spec: ExpectationSpec, spot: str, columns: tuple[str, ...], sketches: frozenset[str]) -> Expectation:
    kind = expectation_class(spec.type, spot)
    if spec.at_most is not None and not is_of_rows(kind):
        hint = "severity fail or warn, without at_most"
        raise SpecError(f"{spot}.at_most", "an expectation of single rows, whose keys can be counted", spec.type, hint)
    # In the form that job.json has, so that what is checked here is what is run later.
    kwargs: dict[str, Any] = _plain(spec.model_dump(mode="json")["kwargs"], f"{spot}.kwargs")
    if MAPPING_KWARG in kwargs:
        kwargs[MAPPING_KWARG] = _quantile_ranges(kwargs[MAPPING_KWARG], f"{spot}.kwargs.{MAPPING_KWARG}")
    beside = {"severity": SEVERITIES[spec.severity], "meta": dict(spec.meta)}
    made = _made(kind, kwargs, beside, spot)
    _require_columns(kwargs, columns, spot)
    if not spec.type.startswith("expect_table_") and spec.type not in _OF_SKETCHES:
        _refuse_sketches(kwargs, sketches, spot)
    return made


def _made(kind: Any, kwargs: Mapping[str, Any], beside: Mapping[str, Any], spot: str) -> Expectation:
    """An expectation of a class, which takes each kwarg as it is, with what its item has beside them."""
    known = {name for name in kind.__fields__ if name not in NOT_KWARGS}
    for name in kwargs:
        if name not in known:
            raise SpecError(f"{spot}.kwargs", "a known kwarg", f"the unknown {name!r}", nearest(name, known))
    try:
        made: Expectation = kind(**kwargs, **beside)
    except great_expectations().compatibility.pydantic.ValidationError as err:
        faults = err.errors()
        name = str(faults[0]["loc"][0])
        if name == "__root__" or name not in known:
            raise SpecError.saying(f"{spot}.kwargs", faults[0]["msg"], "see Great Expectations' page of it") from None
        of_name = [fault for fault in faults if fault["loc"][0] == name and fault["type"] != "type_error.dict"]
        if of_name[0]["type"] == "value_error.missing":
            raise SpecError(f"{spot}.kwargs.{name}", "this kwarg", "nothing", "add it") from None
        required = " or ".join(
            dict.fromkeys(
                _REQUIRED.get(fault["type"], fault["msg"].replace("ensure this value is ", "one ")) for fault in of_name
            )
        )
        raise SpecError(f"{spot}.kwargs.{name}", required, repr(kwargs.get(name))[:120]) from None
    for name, value in kwargs.items():
        held = getattr(made, name)
        if name != MAPPING_KWARG and not _same(value, held):
            taken = f"{value!r}"[:80] + f", which is {held!r} to it"[:80]
            raise SpecError(f"{spot}.kwargs.{name}", "a value that Great Expectations takes as it is", taken)
    return made


def _same(value: Any, held: Any) -> bool:
    """Whether what an expectation holds is what the spec says: it reads 1.5 as 1, and ``no`` as false."""
    if isinstance(held, dt.date):  # and so datetime, too: JSON has dates as text
        return isinstance(value, str)
    if isinstance(held, bool) or isinstance(value, bool):
        return value is held
    if isinstance(value, list) and isinstance(held, list | tuple):
        return len(value) == len(held) and all(map(_same, value, held))
    if isinstance(held, float) and isinstance(value, int):  # beyond, several whole numbers are one float
        return abs(value) < 2**53
    return bool(value == getattr(held, "value", held))  # an enum is its value


def _plain(value: Any, spot: str) -> Any:
    if isinstance(value, dict):
        if not spot.endswith((".kwargs", f".kwargs.{MAPPING_KWARG}")):
            raise SpecError(
                spot, "a plain value or a list", "a mapping", "parameters are not supported; write the value itself"
            )
        return {name: _plain(below, f"{spot}.{name}") for name, below in value.items()}
    if isinstance(value, list):
        return [_plain(below, f"{spot}.{position}") for position, below in enumerate(value)]
    return value


def _quantile_ranges(given: Any, spot: str) -> dict[str, Any]:
    """The checked quantiles, as floats: Great Expectations accepts any mapping, but the JVM accepts no integers."""
    quantiles, ranges = (given.get(name) if isinstance(given, dict) else None for name in ("quantiles", "value_ranges"))
    if not (
        isinstance(quantiles, list) and isinstance(ranges, list) and len(quantiles) == len(ranges) and len(given) == 2
    ):
        raise SpecError(spot, "two lists of one length, quantiles and value_ranges", repr(given)[:120])
    if not all(isinstance(one, int | float) and 0 <= one <= 1 for one in quantiles):
        raise SpecError(f"{spot}.quantiles", "numbers from 0 to 1", repr(quantiles)[:120])
    if not all(isinstance(pair, list) and len(pair) == 2 and _ordered(pair) for pair in ranges):
        raise SpecError(
            f"{spot}.value_ranges", "a pair [lowest, highest] of doubles for each quantile", repr(ranges)[:120]
        )
    return {"quantiles": [float(one) for one in quantiles], "value_ranges": ranges}


def _ordered(pair: list[Any]) -> bool:
    """Whether a pair is two numbers that a double holds, in ascending order; null is an open bound."""
    bounds = [one for one in pair if one is not None]
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in bounds)
    return numbers and bounds == sorted(bounds) == [*map(float, bounds)]


def _require_columns(kwargs: dict[str, Any], columns: tuple[str, ...], spot: str) -> None:
    for name, column in _named_columns(kwargs):
        if column not in columns:
            raise SpecError(f"{spot}.kwargs.{name}", "a column of the result", repr(column), nearest(column, columns))
        if "." in column or "`" in column:
            # Spark reads such a name as a path into a struct unless it is quoted, which Great
            # Expectations does here and there.
            raise SpecError(f"{spot}.kwargs.{name}", "a column without dots and backticks in its name", repr(column))


def _refuse_sketches(kwargs: dict[str, Any], sketches: frozenset[str], spot: str) -> None:
    for name, column in _named_columns(kwargs):
        if column in sketches:
            raise SpecError(
                f"{spot}.kwargs.{name}",
                "a column of values",
                f"{column!r}, a sketch",
                "expect this of a second aggregate, without publish: state",
            )


def _named_columns(kwargs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in _COLUMN_KWARGS:
        given = kwargs.get(name)
        for column in given if isinstance(given, list) else [given]:
            if isinstance(column, str):
                yield name, column
