"""What ``map.where`` says about single columns: by it, files of a table are left out whose bounds hold no such row."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from skewless_spark.session.session import session_in_jvm

Value = int | str | dt.date | dt.datetime
Comparison = Literal["=", "<", "<=", ">", ">="]
#: The least and the greatest value of a column in a file; None is unknown. Nulls are not among the values.
Bounds = tuple[Value | None, Value | None]

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_COMPARISONS: Mapping[str, Comparison] = {
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
}  # fmt: skip
_TURNED: Mapping[Comparison, Comparison] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # times are compared as those of UTC, without a zone
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}")


class Typed(NamedTuple):
    """A literal as Spark's parser reads it: its Spark SQL type, and its value."""

    kind: str
    value: Value


class Condition(NamedTuple):
    """A comparison that each row must pass: with one of some literals.

    Attributes:
        column: as it is written; Spark does not look at its case.
        comparison: the column is on its left.
        literals: one, or those of ``IN``.
    """

    column: str
    comparison: Comparison
    literals: tuple[Typed, ...]

    def values(self, kind: str) -> list[Value | None]:
        """The values with which Spark compares a column of a type; None of those where it may convert otherwise."""
        return [_as_column(kind, one) for one in self.literals]

    def possible(self, kind: str, bounds: Bounds) -> bool:
        """Whether a file may hold a row that passes. What cannot be told is possible."""
        return any(one is None or _passes(self.comparison, one, bounds) for one in self.values(kind))


def conditions_of(spark: SparkSession, where: str | None) -> tuple[Condition, ...]:
    """The comparisons of columns with literals that all rows of a condition pass.

    Other parts of the condition are left to Spark. There are none if times are not in UTC, as the bounds of files are.
    """
    if where is None or spark.conf.get("spark.sql.session.timeZone") != "UTC":
        return ()
    try:
        root = session_in_jvm(spark).sessionState().sqlParser().parseExpression(where)
    except ParseException:  # which is told by who checks the map
        return ()
    return tuple(_conjuncts(root))


def _conjuncts(node: Any) -> Iterator[Condition]:
    kind = node.getClass().getSimpleName()
    if kind == "And":
        yield from _conjuncts(node.left())
        yield from _conjuncts(node.right())
    elif kind in _COMPARISONS:
        yield from _compared(_COMPARISONS[kind], node.left(), node.right())
    elif kind == "UnresolvedFunction" and node.nameParts().apply(0).lower() == "between":
        value, low, high = (node.arguments().apply(number) for number in range(3))
        yield from _compared(">=", value, low)
        yield from _compared("<=", value, high)
    elif kind == "In":
        column, listed = _column(node.value()), node.list()
        values = [_literal(listed.apply(number)) for number in range(listed.size())]
        some = [one for one in values if one is not None]
        if column is not None and some and len(some) == len(values):
            yield Condition(column, "=", tuple(some))


def _compared(comparison: Comparison, left: Any, right: Any) -> Iterator[Condition]:
    column, value = _column(left), _literal(right)
    if column is None or value is None:
        comparison, column, value = _TURNED[comparison], _column(right), _literal(left)
    if column is not None and value is not None:
        yield Condition(column, comparison, (value,))


def _column(node: Any) -> str | None:
    if node.getClass().getSimpleName() != "UnresolvedAttribute" or node.nameParts().size() != 1:
        return None
    return str(node.nameParts().apply(0))


def _literal(node: Any) -> Typed | None:
    if node.getClass().getSimpleName() != "Literal" or node.value() is None:
        return None
    kind = str(node.dataType().simpleString())
    if kind in _INTEGERS:
        return Typed(kind, int(node.value()))
    if kind == "string":
        return Typed(kind, str(node.value().toString()))
    if kind == "date":
        return Typed(kind, _EPOCH.date() + dt.timedelta(days=int(node.value())))
    if kind in _TIMES:
        return Typed(kind, _EPOCH + dt.timedelta(microseconds=int(node.value())))
    return None


def _as_column(kind: str, literal: Typed) -> Value | None:
    """The value with which Spark compares a column of a type; None where it may convert otherwise."""
    if kind == literal.kind or {kind, literal.kind} <= _INTEGERS:
        return literal.value
    text = literal.value if literal.kind == "string" else None
    if kind == "date" and isinstance(text, str) and _DAY.fullmatch(text):
        return _read(dt.date.fromisoformat, text)
    if kind in _TIMES and literal.kind == "date" and isinstance(literal.value, dt.date):
        return dt.datetime.combine(literal.value, dt.time())
    if kind in _TIMES and isinstance(text, str) and (_DAY.fullmatch(text) or _TIME.fullmatch(text)):
        return _read(dt.datetime.fromisoformat, text)
    return None


def _read(reader: Any, text: str) -> Value | None:
    try:
        return cast("Value", reader(text))
    except ValueError:  # the 30th of February: Spark says what it thinks of it
        return None


def _passes(comparison: Comparison, value: Any, bounds: tuple[Any, Any]) -> bool:
    low, high = bounds
    above = low is None or (low < value if comparison == "<" else low <= value)
    below = high is None or (high > value if comparison == ">" else high >= value)
    if comparison == "=":
        return bool(above and below)
    return bool(above if comparison.startswith("<") else below)


def possible(conditions: Sequence[Condition], kinds: Mapping[str, str], bounds: Mapping[str, Bounds]) -> bool:
    """Whether a file may hold a row that passes all conditions."""
    by_lower = {name.lower(): name for name in kinds}
    if len(by_lower) < len(kinds):
        return True  # names that differ in case alone
    found = ((by_lower.get(one.column.lower(), ""), one) for one in conditions)
    return all(one.possible(kinds[name], bounds[name]) for name, one in found if name in bounds)
