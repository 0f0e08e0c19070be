"""Checks expectations by the JSON schemas in Great Expectations' package, since importing the package takes seconds.

The schemas lack some rules of its classes, and have some that the classes do not enforce. Where they differ, this
module follows the classes: a test compares both for every expectation that a spec may name.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skewless.errors import SpecError, nearest
from skewless_spark.quality.lean_imports import lean_imports

if TYPE_CHECKING:
    from jsonschema import Draft7Validator

#: Settings of every expectation class that a spec may not set: we decide how results are reported, and a row condition
#: is SQL, which is code.
NOT_OURS_TO_OFFER = frozenset(
    {
        "id", "meta", "metadata", "notes", "result_format", "description", "catch_exceptions", "rendered_content",
        "severity", "windows", "batch_id", "row_condition", "condition_parser", "library_metadata",
    }
)  # fmt: skip
#: The only kwarg whose values are mappings; elsewhere a mapping is a ``$PARAMETER``.
MAPPING_KWARG = "quantile_ranges"
#: The folder of the schemas in the package.
_SCHEMAS = "great_expectations/expectations/core/schemas"
#: An expectation whose schema is missing from the package, and one with the same kwargs.
_LIKE = {"expect_column_values_to_be_json_parseable": "expect_column_values_to_be_unique"}
#: Kwargs whose schema is made for a web form, and stricter than the class.
_WIDER: Mapping[str, Mapping[str, Any]] = {
    "mostly": {"type": "number", "minimum": 0, "maximum": 1},
    "value_set": {"type": "array"},
}
#: The minimum lengths of lists; the list of a table's columns may be shorter.
_LEAST = {"regex_list": 1, "column_list": 2}
_ANY_LENGTH = frozenset({"expect_table_columns_to_match_ordered_list"})
#: Expectations of a range, which require at least one of two bounds.
_A_BOUND = frozenset({"expect_column_values_to_be_between", "expect_column_value_lengths_to_be_between"})
#: Expectations of figures that Spark computes as doubles.
AS_DOUBLES = frozenset({
    "expect_column_mean_to_be_between", "expect_column_median_to_be_between",
    "expect_column_proportion_of_non_null_values_to_be_between",
    "expect_column_proportion_of_unique_values_to_be_between", "expect_column_stdev_to_be_between",
    "expect_column_value_z_scores_to_be_less_than", "expect_column_values_to_not_be_outliers",
})  # fmt: skip
#: The only expectation whose class checks that its bounds are in order.
_ORDERED = "expect_table_row_count_to_be_between"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")


def _is_moment(text: object) -> bool:
    if not isinstance(text, str):
        return True
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return _MOMENT.fullmatch(text) is not None


@cache
def _validator_of() -> Callable[[Mapping[str, Any]], Draft7Validator]:
    """What makes a validator of a schema. A spec may do without, and without the import of its library."""
    with lean_imports():
        from jsonschema import Draft7Validator, FormatChecker  # noqa: PLC0415

    formats = FormatChecker(formats=())
    for name in ("date", "date-time"):
        formats.checks(name)(_is_moment)
    return partial(Draft7Validator, format_checker=formats)


@cache
def _kwargs_of(kind: str) -> tuple[dict[str, Draft7Validator], dict[str, Any], tuple[str, ...]]:
    """The kwargs of an expectation: a validator for each that a spec may set, their schemas, and the required ones."""
    name = "".join(part.capitalize() for part in _LIKE.get(kind, kind).split("_"))
    file = distribution("great-expectations").locate_file(f"{_SCHEMAS}/{name}.json")
    whole = json.loads(Path(str(file)).read_text(encoding="utf-8"))
    schemas = {name: schema for name, schema in whole["properties"].items() if name not in NOT_OURS_TO_OFFER}
    plain = {name: _WIDER.get(name) or _without_parameters(schema) for name, schema in schemas.items()}
    validators = {name: _validator_of()(schema) for name, schema in plain.items()}
    return validators, schemas, tuple(name for name in whole.get("required", ()) if name in schemas)


def _without_parameters(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "object"}]
    return {"anyOf": kinds} if kinds else schema


def require_fitting(kind: str, kwargs: Mapping[str, Any], spot: str) -> None:
    """Refuse kwargs that Great Expectations would refuse, or would understand differently from their text."""
    validators, schemas, required = _kwargs_of(kind)
    for name in kwargs:
        if name not in validators:
            raise SpecError(f"{spot}.kwargs", "a known kwarg", f"the unknown {name!r}", nearest(name, validators))
    for name in required:
        if name not in kwargs:
            raise SpecError(f"{spot}.kwargs.{name}", "this kwarg", "nothing", "add it")
    for name, given in kwargs.items():
        optional = name not in required and "default" not in schemas[name]
        if name == MAPPING_KWARG or (given is None and optional):
            continue
        least = 0 if kind in _ANY_LENGTH else _LEAST.get(name, 0)
        wrong = None if given is None else _unmet(validators[name], name, given, least)
        if not wrong and kind in AS_DOUBLES and isinstance(given, int) and float(given) != given:
            wrong = f"a number that a double can hold (this one would be {float(given):.0f})"
        if given is None or wrong:
            raise SpecError(f"{spot}.kwargs.{name}", wrong or "a value", repr(given)[:120])
    _require_bounds(kind, kwargs, spot)


def _unmet(validator: Draft7Validator, name: str, given: Any, least: int) -> str:
    """What was expected instead of a value; empty if the value is valid."""
    if next(validator.iter_errors(given), None) is not None:
        return _in_words(validator.schema)
    if isinstance(given, list) and len(given) < least:
        return f"a list of at least {least}"
    if name == "strftime_format" and not _can_be_read_back(given):
        return "a form that times can be read by, such as %Y-%m-%d"
    return ""


def _in_words(schema: Mapping[str, Any]) -> str:
    """The schema of a kwarg in words.

    >>> _in_words({"anyOf": [{"type": "number"}, {"type": "string", "format": "date"}]})
    'a number or a date'
    """
    kinds = []
    for one in schema.get("anyOf") or [schema]:
        kind = {"number": "a number", "integer": "a whole number", "boolean": "true or false", "array": "a list"}
        words = kind.get(one.get("type", ""), "a text")
        if one.get("format"):
            words = {"date": "a date", "date-time": "a time"}[one["format"]]
        if "enum" in one:
            words = f"one of {', '.join(one['enum'])}"
        if "minimum" in one:
            words += f" from {one['minimum']}" + (f" to {one['maximum']}" if "maximum" in one else "")
        if one.get("items"):
            words += " of pairs" if "items" in one["items"] else " of texts"
        kinds.append(words)
    return " or ".join(dict.fromkeys(kinds))


def _can_be_read_back(form: str) -> bool:
    moment = dt.datetime(2026, 1, 31, 23, 59, 58, tzinfo=dt.UTC)
    try:
        dt.datetime.strptime(moment.strftime(form), form)  # noqa: DTZ007  # the parsed time is not used
    except ValueError:
        return False
    return True


def _require_bounds(kind: str, kwargs: Mapping[str, Any], spot: str) -> None:
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    if kind in _A_BOUND and low is None and high is None:
        raise SpecError(f"{spot}.kwargs", "min_value, max_value or both", "neither", "add one")
    if kind != _ORDERED or low is None or high is None:
        return
    if isinstance(low, str) != isinstance(high, str) or low > high:
        raise SpecError(f"{spot}.kwargs.min_value", "at most max_value", f"{low!r} and {high!r}"[:120])
