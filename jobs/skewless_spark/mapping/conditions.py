"""What ``map.where`` says about single columns: by it, files of a table are left out whose bounds hold no such row."""
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
from __future__ import annotations
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
import datetime as dt
from skewless_spark.session.session import session_in_jvm
import re
from skewless_spark.session.session import session_in_jvm
from collections.abc import Iterator, Mapping, Sequence
from skewless_spark.session.session import session_in_jvm
from typing import Any, Literal, NamedTuple, cast
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
from pyspark.errors import ParseException
from skewless_spark.session.session import session_in_jvm
from pyspark.sql import SparkSession
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
Value = int | str | dt.date | dt.datetime
from skewless_spark.session.session import session_in_jvm
Comparison = Literal["=", "<", "<=", ">", ">="]
from skewless_spark.session.session import session_in_jvm
#: The least and the greatest value of a column in a file; None is unknown. Nulls are not among the values.
from skewless_spark.session.session import session_in_jvm
Bounds = tuple[Value | None, Value | None]
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
from skewless_spark.session.session import session_in_jvm
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
from skewless_spark.session.session import session_in_jvm
_COMPARISONS: Mapping[str, Comparison] = {
from skewless_spark.session.session import session_in_jvm
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
from skewless_spark.session.session import session_in_jvm
}  # fmt: skip
from skewless_spark.session.session import session_in_jvm
_TURNED: Mapping[Comparison, Comparison] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
from skewless_spark.session.session import session_in_jvm
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # times are compared as those of UTC, without a zone
from skewless_spark.session.session import session_in_jvm
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
from skewless_spark.session.session import session_in_jvm
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}")
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
class Typed(NamedTuple):
from skewless_spark.session.session import session_in_jvm
    """A literal as Spark's parser reads it: its Spark SQL type, and its value."""
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
    kind: str
from skewless_spark.session.session import session_in_jvm
    value: Value
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
class Condition(NamedTuple):
from skewless_spark.session.session import session_in_jvm
    """A comparison that each row must pass: with one of some literals.
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
    Attributes:
from skewless_spark.session.session import session_in_jvm
        column: as it is written; Spark does not look at its case.
from skewless_spark.session.session import session_in_jvm
        comparison: the column is on its left.
from skewless_spark.session.session import session_in_jvm
        literals: one, or those of ``IN``.
from skewless_spark.session.session import session_in_jvm
    """
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
    column: str
from skewless_spark.session.session import session_in_jvm
    comparison: Comparison
from skewless_spark.session.session import session_in_jvm
    literals: tuple[Typed, ...]
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
    def possible(self, kind: str, bounds: Bounds) -> bool:
from skewless_spark.session.session import session_in_jvm
        """Whether a file may hold a row that passes. What cannot be told is possible."""
from skewless_spark.session.session import session_in_jvm
        known = [_as_column(kind, one) for one in self.literals]
from skewless_spark.session.session import session_in_jvm
        return any(one is None or _passes(self.comparison, one, bounds) for one in known)
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def conditions_of(spark: SparkSession, where: str | None) -> tuple[Condition, ...]:
from skewless_spark.session.session import session_in_jvm
    """The comparisons of columns with literals that all rows of a condition pass.
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
    Other parts of the condition are left to Spark. There are none if times are not in UTC, as the bounds of files are.
from skewless_spark.session.session import session_in_jvm
    """
from skewless_spark.session.session import session_in_jvm
    if where is None or spark.conf.get("spark.sql.session.timeZone") != "UTC":
from skewless_spark.session.session import session_in_jvm
        return ()
from skewless_spark.session.session import session_in_jvm
    try:
from skewless_spark.session.session import session_in_jvm
        root = session_in_jvm(spark).sessionState().sqlParser().parseExpression(where)
from skewless_spark.session.session import session_in_jvm
    except ParseException:  # which is told by who checks the map
from skewless_spark.session.session import session_in_jvm
        return ()
from skewless_spark.session.session import session_in_jvm
    return tuple(_conjuncts(root))
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _conjuncts(node: Any) -> Iterator[Condition]:
from skewless_spark.session.session import session_in_jvm
    kind = node.getClass().getSimpleName()
from skewless_spark.session.session import session_in_jvm
    if kind == "And":
from skewless_spark.session.session import session_in_jvm
        yield from _conjuncts(node.left())
from skewless_spark.session.session import session_in_jvm
        yield from _conjuncts(node.right())
from skewless_spark.session.session import session_in_jvm
    elif kind in _COMPARISONS:
from skewless_spark.session.session import session_in_jvm
        yield from _compared(_COMPARISONS[kind], node.left(), node.right())
from skewless_spark.session.session import session_in_jvm
    elif kind == "UnresolvedFunction" and node.nameParts().apply(0).lower() == "between":
from skewless_spark.session.session import session_in_jvm
        value, low, high = (node.arguments().apply(number) for number in range(3))
from skewless_spark.session.session import session_in_jvm
        yield from _compared(">=", value, low)
from skewless_spark.session.session import session_in_jvm
        yield from _compared("<=", value, high)
from skewless_spark.session.session import session_in_jvm
    elif kind == "In":
from skewless_spark.session.session import session_in_jvm
        column, listed = _column(node.value()), node.list()
from skewless_spark.session.session import session_in_jvm
        values = [_literal(listed.apply(number)) for number in range(listed.size())]
from skewless_spark.session.session import session_in_jvm
        some = [one for one in values if one is not None]
from skewless_spark.session.session import session_in_jvm
        if column is not None and some and len(some) == len(values):
from skewless_spark.session.session import session_in_jvm
            yield Condition(column, "=", tuple(some))
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _compared(comparison: Comparison, left: Any, right: Any) -> Iterator[Condition]:
from skewless_spark.session.session import session_in_jvm
    column, value = _column(left), _literal(right)
from skewless_spark.session.session import session_in_jvm
    if column is None or value is None:
from skewless_spark.session.session import session_in_jvm
        comparison, column, value = _TURNED[comparison], _column(right), _literal(left)
from skewless_spark.session.session import session_in_jvm
    if column is not None and value is not None:
from skewless_spark.session.session import session_in_jvm
        yield Condition(column, comparison, (value,))
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _column(node: Any) -> str | None:
from skewless_spark.session.session import session_in_jvm
    if node.getClass().getSimpleName() != "UnresolvedAttribute" or node.nameParts().size() != 1:
from skewless_spark.session.session import session_in_jvm
        return None
from skewless_spark.session.session import session_in_jvm
    return str(node.nameParts().apply(0))
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _literal(node: Any) -> Typed | None:
from skewless_spark.session.session import session_in_jvm
    if node.getClass().getSimpleName() != "Literal" or node.value() is None:
from skewless_spark.session.session import session_in_jvm
        return None
from skewless_spark.session.session import session_in_jvm
    kind = str(node.dataType().simpleString())
from skewless_spark.session.session import session_in_jvm
    if kind in _INTEGERS:
from skewless_spark.session.session import session_in_jvm
        return Typed(kind, int(node.value()))
from skewless_spark.session.session import session_in_jvm
    if kind == "string":
from skewless_spark.session.session import session_in_jvm
        return Typed(kind, str(node.value().toString()))
from skewless_spark.session.session import session_in_jvm
    if kind == "date":
from skewless_spark.session.session import session_in_jvm
        return Typed(kind, _EPOCH.date() + dt.timedelta(days=int(node.value())))
from skewless_spark.session.session import session_in_jvm
    if kind in _TIMES:
from skewless_spark.session.session import session_in_jvm
        return Typed(kind, _EPOCH + dt.timedelta(microseconds=int(node.value())))
from skewless_spark.session.session import session_in_jvm
    return None
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _as_column(kind: str, literal: Typed) -> Value | None:
from skewless_spark.session.session import session_in_jvm
    """The value with which Spark compares a column of a type; None where it may convert otherwise."""
from skewless_spark.session.session import session_in_jvm
    if kind == literal.kind or {kind, literal.kind} <= _INTEGERS:
from skewless_spark.session.session import session_in_jvm
        return literal.value
from skewless_spark.session.session import session_in_jvm
    text = literal.value if literal.kind == "string" else None
from skewless_spark.session.session import session_in_jvm
    if kind == "date" and isinstance(text, str) and _DAY.fullmatch(text):
from skewless_spark.session.session import session_in_jvm
        return _read(dt.date.fromisoformat, text)
from skewless_spark.session.session import session_in_jvm
    if kind in _TIMES and literal.kind == "date" and isinstance(literal.value, dt.date):
from skewless_spark.session.session import session_in_jvm
        return dt.datetime.combine(literal.value, dt.time())
from skewless_spark.session.session import session_in_jvm
    if kind in _TIMES and isinstance(text, str) and (_DAY.fullmatch(text) or _TIME.fullmatch(text)):
from skewless_spark.session.session import session_in_jvm
        return _read(dt.datetime.fromisoformat, text)
from skewless_spark.session.session import session_in_jvm
    return None
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _read(reader: Any, text: str) -> Value | None:
from skewless_spark.session.session import session_in_jvm
    try:
from skewless_spark.session.session import session_in_jvm
        return cast("Value", reader(text))
from skewless_spark.session.session import session_in_jvm
    except ValueError:  # the 30th of February: Spark says what it thinks of it
from skewless_spark.session.session import session_in_jvm
        return None
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def _passes(comparison: Comparison, value: Any, bounds: tuple[Any, Any]) -> bool:
from skewless_spark.session.session import session_in_jvm
    low, high = bounds
from skewless_spark.session.session import session_in_jvm
    above = low is None or (low < value if comparison == "<" else low <= value)
from skewless_spark.session.session import session_in_jvm
    below = high is None or (high > value if comparison == ">" else high >= value)
from skewless_spark.session.session import session_in_jvm
    if comparison == "=":
from skewless_spark.session.session import session_in_jvm
        return bool(above and below)
from skewless_spark.session.session import session_in_jvm
    return bool(above if comparison.startswith("<") else below)
from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm

from skewless_spark.session.session import session_in_jvm
def possible(conditions: Sequence[Condition], kinds: Mapping[str, str], bounds: Mapping[str, Bounds]) -> bool:
from skewless_spark.session.session import session_in_jvm
    """Whether a file may hold a row that passes all conditions."""
from skewless_spark.session.session import session_in_jvm
    by_lower = {name.lower(): name for name in kinds}
from skewless_spark.session.session import session_in_jvm
    if len(by_lower) < len(kinds):
from skewless_spark.session.session import session_in_jvm
        return True  # names that differ in case alone
from skewless_spark.session.session import session_in_jvm
    found = ((by_lower.get(one.column.lower(), ""), one) for one in conditions)
from skewless_spark.session.session import session_in_jvm
    return all(one.possible(kinds[name], bounds[name]) for name, one in found if name in bounds)
from skewless_spark.session.session import session_in_jvm
