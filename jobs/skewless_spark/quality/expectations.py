"""The expectations of Great Expectations that a spec may name, and how they are built from plain data."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union, get_args

from skewless.errors import SpecError, nearest
from skewless.spec.result import Expectation as ExpectationSpec
from skewless.spec.spec import JobSpec
from skewless_spark.quality.expectation_schemas import AS_DOUBLES, MAPPING_KWARG, require_fitting
from skewless_spark.quality.lean_imports import POSTPONED, lean_imports

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

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

#: Those of single rows: a row fails them by itself, or beside the other rows. Only these can have keys in quarantine.
#: The type of a column is that of all rows.
OF_ROWS = frozenset(
    one
    for one in ALLOWED
    if one.startswith(("expect_column_pair_", "expect_compound_", "expect_multicolumn_", "expect_select_"))
    or (one.startswith(("expect_column_values_", "expect_column_value_")) and "_type" not in one)
)

_TO_THE_DRIVER = "brings every distinct value to the driver"
_NO_ORDER = "needs an order of rows, which a result has not"
_QUERIES = "runs a query of its own"

#: Expectations that are refused, each with the reason.
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

#: How long a thread of Python computes before another one that waits has its turn.
_TURN_SECONDS = 2e-4
_COLUMN_KWARGS = ("column", "column_A", "column_B", "column_list", "column_set")


def great_expectations() -> Any:
    """Great Expectations, imported at its first use: that takes seconds of CPU, and only ``validate`` needs it.

    Telemetry must be off before the import. All modules that we use are imported with it.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    warnings.filterwarnings("ignore", "module 'sre_", DeprecationWarning)  # which it imports
    with lean_imports(POSTPONED):
        import great_expectations as gx  # noqa: PLC0415 (see above)

        from skewless_spark.quality import one_job_engine  # noqa: F401, PLC0415 (see above)

    for kind in ALLOWED - AS_DOUBLES:
        _keep_whole_numbers(gx.expectations.registry.get_expectation_impl(kind), gx.compatibility.pydantic.StrictInt)
    return gx


def _keep_whole_numbers(kind: Any, whole: Any) -> None:
    """Let an expectation have whole numbers where it has floats, which have no place for each beyond 2**53.

    Great Expectations builds an expectation several times, so it is its class that must take them.
    """
    for field in kind.__fields__.values():
        taken = get_args(field.outer_type_)
        if float in taken and whole not in taken:
            field.type_ = field.outer_type_ = Union[(whole, *taken)]
            field.prepare()


def import_soon() -> None:
    """Begin to import Great Expectations in a thread, unless that has begun: only the end of a run needs it.

    A thread that has called the JVM would wait up to 5 ms, Python's default, before it may go on. It waits less.
    """
    if "great_expectations" not in sys.modules:
        sys.setswitchinterval(_TURN_SECONDS)
        threading.Thread(target=great_expectations, name="import of Great Expectations", daemon=True).start()


def check_expectations(spec: JobSpec, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Refuse expectations that cannot or must not be run. This does not import Great Expectations.

    Returns:
        Type and kwargs of each.

    Raises:
        SpecError: names the first that is unknown, refused, or has wrong kwargs.
    """
    columns = (*spec.result_key, *spec.aggregates)
    sketches = frozenset(name for name, call in spec.aggregates.items() if call.publish == "state")
    spots = (f"{where}, field quality.expectations.{position}" for position in range(len(spec.quality.expectations)))
    return [
        (one.type, _checked_kwargs(one, spot, columns, sketches))
        for spot, one in zip(spots, spec.quality.expectations, strict=True)
    ]


def build_expectations(spec: JobSpec, where: str) -> list[Expectation]:
    """The spec's own expectations as Great Expectations' objects, in the spec's order."""
    checked = check_expectations(spec, where)
    if not checked:
        return []
    registry = great_expectations().expectations.registry
    return [registry.get_expectation_impl(kind)(**kwargs) for kind, kwargs in checked]


def _checked_kwargs(
    spec: ExpectationSpec, spot: str, columns: tuple[str, ...], sketches: frozenset[str]
) -> dict[str, Any]:
    if spec.type in REFUSED:
        raise SpecError(
            f"{spot}.type", "an expectation that is safe on a big result", f"{spec.type!r}, which {REFUSED[spec.type]}"
        )
    if spec.type not in ALLOWED:
        raise SpecError(
            f"{spot}.type",
            "an expectation that Great Expectations has for Spark",
            repr(spec.type),
            nearest(spec.type, ALLOWED),
        )
    if spec.at_most is not None and spec.type not in OF_ROWS:
        hint = "severity fail or warn, without at_most"
        raise SpecError(f"{spot}.at_most", "an expectation of single rows, whose keys can be counted", spec.type, hint)
    # In the form that job.json has, so that what is checked here is what is run later.
    kwargs: dict[str, Any] = _plain(spec.model_dump(mode="json")["kwargs"], f"{spot}.kwargs")
    if MAPPING_KWARG in kwargs:
        kwargs[MAPPING_KWARG] = _quantile_ranges(kwargs[MAPPING_KWARG], f"{spot}.kwargs.{MAPPING_KWARG}")
    require_fitting(spec.type, kwargs, spot)
    _require_columns(kwargs, columns, spot)
    if not spec.type.startswith("expect_table_") and spec.type not in _OF_SKETCHES:
        _refuse_sketches(kwargs, sketches, spot)
    return kwargs


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
