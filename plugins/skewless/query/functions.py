"""Which of our aggregates an aggregate function of Spark SQL is, and which of its arguments are columns and options."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from skewless.document import unmet
from skewless.query.sql import call_name, columns_of, parsed_expression, shown, written


class Call(NamedTuple):
    """A call as a spec writes it, with expressions in place of columns."""

    function: str
    columns: Mapping[str, exp.Expr]
    """By field: ``column`` first, then the options that name further columns."""
    options: Mapping[str, Any]


#: Second names in Spark, each with ours.
SYNONYMS = {
    "mean": "avg",
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
    "array_agg": "collect_list",
    "percentile_approx": "approx_percentile",
}
#: Functions that number the rows that they make, by those that do not; all that make rows.
NUMBERED = {"explode": "posexplode", "explode_outer": "posexplode_outer"}
GENERATORS = frozenset((*NUMBERED, *NUMBERED.values(), "inline", "inline_outer", "stack", "json_tuple"))
#: Aggregates of ours that Spark has not.
_OURS = frozenset(("value_counts", "streaming_histogram", "histogram"))
#: By our functions, the fields of a call's arguments in their order.
_FIELDS = {
    **dict.fromkeys((
        "sum", "avg", "min", "max", "try_sum", "try_avg", "count_if", "bool_and", "bool_or", "bit_and", "bit_or",
        "bit_xor", "var_samp", "var_pop", "stddev_samp", "stddev_pop", "skewness", "kurtosis", "collect_set",
        "collect_list",
    ), "column"),
    **dict.fromkeys((
        "corr", "covar_samp", "covar_pop", "regr_count", "regr_sxx", "regr_sxy", "regr_syy", "regr_slope",
        "regr_intercept", "regr_r2",
    ), "column other"),
    "first": "column ignore_nulls",
    "max_by": "column by",
    "min_by": "column by",
    "median": "column",
    "percentile": "column percentage",
    "mode": "column deterministic",
    "approx_percentile": "column percentage accuracy",
    "approx_count_distinct": "column rsd",
    "approx_top_k": "column k max_items_tracked",
}  # fmt: skip
#: By our function, the one of different values alone.
_OF_DIFFERENT = {
    **{name: name for name in ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "collect_set")},
    **{name: f"{name}_distinct" for name in ("count", "sum", "avg")},
    "approx_count_distinct": "approx_count_distinct",
    "collect_list": "collect_set",
}
#: Those whose result depends on the order of the rows.
IN_ORDER = frozenset(("first", "first_value", "last", "last_value"))
#: The aggregate functions of Spark 4.3, and ours.
AGGREGATES = frozenset((
    *_FIELDS, *SYNONYMS, *_OURS, "count", "last", "regr_avgx", "regr_avgy", "approx_top_k_accumulate",
    "approx_top_k_combine", "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "collect_union",
    "count_min_sketch", "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "listagg", "measure",
    "percentile_cont", "percentile_disc", "string_agg",
    "theta_sketch_agg", "theta_intersection_agg", "theta_union_agg",
    *(f"kll_{what}_agg_{kind}" for what in ("sketch", "merge") for kind in ("bigint", "float", "double")),
    *(f"tuple_{what}_agg_{kind}" for what in ("sketch", "union", "intersection") for kind in ("double", "integer")),
))  # fmt: skip


def call_of(name: str, arguments: Sequence[exp.Expr], *, distinct: bool = False) -> Call | None:
    """The aggregate that serves for a call of Spark SQL; None if there is none, and Spark has to compute it itself.

    Args:
        name: of the function, in lower case.
        arguments: without their DISTINCT.

    Raises:
        ValueError: what it gives depends on the order of the rows, or Spark has no function of this name.

    >>> from sqlglot import parse_one
    >>> found = call_of("percentile", [parse_one("ms + 1"), parse_one("0.3")])
    >>> found.function, found.columns["column"].sql(), dict(found.options)
    ('percentile', 'ms + 1', {'percentage': 0.3})
    """
    if name in IN_ORDER:
        raise unmet("max_by or min_by with what orders the rows, or any_value", f"{name}, which depends on their order")
    if name in _OURS:
        yaml = f"write key and aggregates in place of query: {{name: {{function: {name}, column: ...}}}}"
        raise unmet("aggregate functions of Spark's in a query", name, yaml)
    if name == "count":
        return _count(arguments, distinct=distinct)
    if name in {"regr_avgx", "regr_avgy"} and len(arguments) == 2:
        other, column = arguments if name == "regr_avgx" else reversed(arguments)
        return None if distinct else Call("avg", {"column": _where_filled([other], column)}, {})
    function = SYNONYMS.get(name, name)
    fields = _fields(_FIELDS.get(function, "").split(), arguments)
    if distinct:
        function = _OF_DIFFERENT.get(function, "")
    if not fields or not function:
        return None
    columns, options = ({field: value for field, value in fields.items() if (field in _COLUMNS) == named}
                        for named in (True, False))  # fmt: skip
    if function == "median":
        return Call("percentile", columns, {"percentage": 0.5})
    # Of values that come as often, our mode is always the least.
    return Call(function, columns, {} if function == "mode" else options)


def _fields(names: Sequence[str], arguments: Sequence[exp.Expr]) -> dict[str, Any]:
    """The fields of a call; empty if these are no arguments of it, or an option is no literal."""
    if len(arguments) > len(names) or any(one.is_star for one in arguments):
        return {}
    fields = {name: one if name in _COLUMNS else _literal(one) for name, one in zip(names, arguments, strict=False)}
    if None in fields.values() or not {*names} & _COLUMNS <= fields.keys():
        return {}
    if isinstance(fields.get("percentage"), list):
        fields["percentages"] = fields.pop("percentage")
    return fields


#: The fields of a call that name columns.
_COLUMNS = {"column", "other", "by"}


def _count(arguments: Sequence[exp.Expr], *, distinct: bool) -> Call | None:
    """``count(a, b)`` is of the rows in which neither is null, ``count(DISTINCT a, b)`` of their different pairs."""
    stars = [one for one in arguments if one.is_star]
    if not arguments or (stars and (distinct or not isinstance(stars[0], exp.Star) or len(arguments) > 1)):
        return None
    if stars or (not distinct and len(arguments) == 1 and _literal(arguments[0]) is not None):
        return Call("count", {}, {})
    column: exp.Expr = arguments[0]
    if len(arguments) > 1:
        several = exp.Anonymous(this="struct", expressions=[one.copy() for one in arguments])
        column = _where_filled(arguments, several if distinct else exp.Literal.number(1))
    return Call("count_distinct" if distinct else "count", {"column": column}, {})


def _where_filled(columns: Sequence[exp.Expr], value: exp.Expr) -> exp.Expr:
    filled = exp.and_(*(exp.Not(this=exp.Is(this=exp.paren(one), expression=exp.Null())) for one in columns))
    return exp.Case(ifs=[exp.If(this=filled, true=value.copy())])


def _literal(tree: exp.Expr) -> Any:
    """The number, the boolean or the list of numbers that an argument is; None if it is anything else."""
    tree = tree.unnest()
    if call_name(tree) == "array":
        values = [_literal(one) for one in tree.expressions]
        return [float(one) for one in values] if values and all(type(one) in {int, float} for one in values) else None
    if isinstance(tree, exp.Cast):  # as 0.5D and 12L are read
        return _literal(tree.this)
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Neg):
        value = _literal(tree.this)
        return -value if type(value) in {int, float} else None
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return int(tree.name) if tree.name.isdigit() else float(tree.name)
    return None


#: What Spark computes with an order alone, which only the last two can have.
_UNORDERED = {
    *IN_ORDER, "any_value", "array_agg", "collect_list", "collect_set", "collect_union", "listagg", "string_agg",
}  # fmt: skip


class SparkCall:
    """One call of an aggregate function that Spark computes itself, where all rows of a key are.

    Raises:
        ValueError: it is none, or the result depends on the order of the rows.

    >>> found = SparkCall("max_by(c.name, ms, 3) FILTER (WHERE size(c.tags) > 1)")
    >>> found.columns, found.over({"c": "c7", "ms": "c8"})
    (('c', 'ms'), 'max_by(c7.name, c8, 3) FILTER(WHERE size(c7.tags) > 1)')
    """

    def __init__(self, text: str) -> None:
        self._tree = tree = parsed_expression(text)
        ordered = False
        while isinstance(tree, exp.Filter | exp.WithinGroup):
            ordered = ordered or isinstance(tree, exp.WithinGroup)
            tree = tree.this
        name = call_name(tree)
        if name not in AGGREGATES:
            raise unmet("one call of an aggregate function of Spark's", shown(self._tree))
        if name in _UNORDERED and not ordered:
            raise unmet("WITHIN GROUP (ORDER BY ...) where the order of the rows counts", shown(self._tree))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names, each once."""
        return tuple(dict.fromkeys(str(one.parts[0].name) for one in columns_of(self._tree)))

    def over(self, names: Mapping[str, str]) -> str:
        """The call in SQL over columns of other names."""
        tree = exp.Paren(this=self._tree.copy())
        for column in list(columns_of(tree)):
            column.parts[0].replace(exp.to_identifier(names[column.parts[0].name]))
        return written(tree.this)
