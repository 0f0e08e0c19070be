"""What ``map.where`` says about single columns: by it, files of a table are left out whose bounds hold no such row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from skewless_spark.sources.formats.column_types import UNSUPPORTED
from skewless_spark.sources.formats.input_files import quoted

Comparison = Literal["=", "<", "<=", ">", ">="]
#: The types of columns whose bounds are compared. Not floats: to Spark alone, NaN is greater than all numbers.
KINDS = frozenset({"tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "timestamp_ntz"})
_COMPARISONS: Mapping[str, Comparison] = {
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
}  # fmt: skip
_TURNED: Mapping[Comparison, Comparison] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Condition(NamedTuple):
    """A comparison that each row must pass: of a column, on its left, with one of some values.

    Attributes:
        column: by its name in the table.
        kind: the type of the column and of the values, one of ``KINDS``.
        values: a date is a number of days, and a time one of microseconds, since 1970 in UTC, as Spark has them.
    """

    column: str
    kind: str
    comparison: Comparison
    values: tuple[int | str, ...]


#: Makes the conditions on a table of its columns' types by name.
Conditions = Callable[[Mapping[str, str]], Sequence[Condition]]


def conditions_of(spark: SparkSession | None, where: str | None, kinds: Mapping[str, str]) -> tuple[Condition, ...]:
    """The comparisons of columns with literals that all rows of a condition pass, as Spark's optimizer types them.

    Other parts of the condition are left to Spark. There are none if times are not in UTC, as the bounds of files are.
    """
    if spark is None or where is None or spark.conf.get("spark.sql.session.timeZone") != "UTC":
        return ()
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items() if not kind.startswith(UNSUPPORTED))
    try:
        rows = spark.createDataFrame(cast("list[Row]", []), columns).where(where)
        plan = cast("Any", rows)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public name
    except PySparkException:  # which is told by who checks the map
        return ()
    if _class(plan) != "Filter":
        return ()
    names = {column.exprId().id(): str(column.name()) for column in _listed(plan.child().output())}
    return tuple(_conjuncts(plan.condition(), names))


def _conjuncts(node: Any, names: Mapping[int, str]) -> Iterator[Condition]:
    kind = _class(node)
    if kind == "And":
        yield from _conjuncts(node.left(), names)
        yield from _conjuncts(node.right(), names)
    elif kind in _COMPARISONS:
        column, literal, comparison = node.left(), node.right(), _COMPARISONS[kind]
        if _class(column) == "Literal":
            column, literal, comparison = literal, column, _TURNED[comparison]
        yield from _condition(names, column, comparison, [_value(literal)])
    elif kind == "In":
        yield from _condition(names, node.value(), "=", [_value(one) for one in _listed(node.list())])
    elif kind == "InSet":
        yield from _condition(names, node.child(), "=", _listed(node.hset().toSeq()))


def _condition(names: Mapping[int, str], column: Any, comparison: Comparison, values: list[Any]) -> Iterator[Condition]:
    kind = str(column.dataType().simpleString())
    if _class(column) == "AttributeReference" and kind in KINDS and None not in values:
        plain = tuple(value if isinstance(value, int) else str(value.toString()) for value in values)
        yield Condition(names[column.exprId().id()], kind, comparison, plain)


def _value(node: Any) -> Any:
    return node.value() if _class(node) == "Literal" else None


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _listed(nodes: Any) -> list[Any]:
    return [nodes.apply(number) for number in range(nodes.size())]
