"""Which of our aggregates an aggregate function of Spark SQL is, and which of its arguments are columns and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from skewless.document import unmet


class Call(NamedTuple):
    """A call as a spec writes it, with expressions in place of columns.

    Attributes:
        columns: by field: ``column`` first, then the options that name further columns.
    """

    function: str
    columns: Mapping[str, exp.Expr]
    options: Mapping[str, Any]


#: Functions of one column, and of two, whose names are the same here.
_OF_ONE = (
    "sum", "avg", "min", "max", "try_sum", "try_avg", "count_if", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor",
    "var_samp", "var_pop", "stddev_samp", "stddev_pop", "skewness", "kurtosis", "collect_set", "collect_list",
)  # fmt: skip
_OF_TWO = (
    "corr", "covar_samp", "covar_pop", "regr_count", "regr_avgx", "regr_avgy", "regr_sxx", "regr_sxy", "regr_syy",
    "regr_slope", "regr_intercept", "regr_r2",
)  # fmt: skip
#: By name in Spark: our function, and the fields of its arguments in their order.
_FIELDS = {
    **{name: (name, "column") for name in _OF_ONE},
    **{name: (name, "column other") for name in _OF_TWO},
    "mean": ("avg", "column"),
    "any": ("bool_or", "column"),
    "some": ("bool_or", "column"),
    "every": ("bool_and", "column"),
    "std": ("stddev_samp", "column"),
    "stddev": ("stddev_samp", "column"),
    "variance": ("var_samp", "column"),
    "any_value": ("first", "column ignore_nulls"),
    "array_agg": ("collect_list", "column"),
    "max_by": ("max_by", "column by"),
    "min_by": ("min_by", "column by"),
    "median": ("percentile", "column"),
    "percentile": ("percentile", "column percentage"),
    "mode": ("mode", "column deterministic"),
    "approx_percentile": ("approx_percentile", "column percentage accuracy"),
    "percentile_approx": ("approx_percentile", "column percentage accuracy"),
    "approx_count_distinct": ("approx_count_distinct", "column rsd"),
    "approx_top_k": ("approx_top_k", "column k max_items_tracked"),
    "hll_sketch_agg": ("approx_count_distinct", "column"),
    "theta_sketch_agg": ("theta_sketch_estimate", "column lg_nom_entries"),
    # These are no functions of Spark's.
    "value_counts": ("value_counts", "column"),
    "streaming_histogram": ("streaming_histogram", "column bins"),
    "histogram": ("histogram", "column edges"),
}
#: What a call has beside its arguments.
_ALWAYS: dict[str, dict[str, Any]] = {
    "median": {"percentage": 0.5},
    "hll_sketch_agg": {"publish": "state"},
    "theta_sketch_agg": {"publish": "state"},
}
#: By our function, the one of different values alone.
_OF_DIFFERENT = {
    **{name: name for name in ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "collect_set")},
    **{name: f"{name}_distinct" for name in ("count", "sum", "avg")},
    "approx_count_distinct": "approx_count_distinct",
    "collect_list": "collect_set",
}
#: Those whose result depends on the order of the rows.
IN_ORDER = frozenset(("first", "first_value", "last", "last_value"))
#: The aggregate functions of Spark 4.3, and ours that a query may call.
AGGREGATES = frozenset((
    *_FIELDS, *IN_ORDER, "count", "approx_top_k_accumulate", "approx_top_k_combine", "bitmap_and_agg",
    "bitmap_construct_agg", "bitmap_or_agg", "collect_union", "count_min_sketch", "histogram_numeric",
    "hll_union_agg", "listagg", "measure", "percentile_cont", "percentile_disc", "string_agg",
    "theta_intersection_agg", "theta_union_agg",
    *(f"kll_{what}_agg_{kind}" for what in ("sketch", "merge") for kind in ("bigint", "float", "double")),
    *(f"tuple_{what}_agg_{kind}" for what in ("sketch", "union", "intersection") for kind in ("double", "integer")),
))  # fmt: skip


def passes_over_nulls(function: str) -> bool:
    """Whether our aggregate is the same without the rows in which its column, or the last of several, is null."""
    return function not in {"first", "last", "approx_top_k"}


def call_of(name: str, arguments: Sequence[exp.Expr], *, distinct: bool = False) -> Call | None:
    """The aggregate that serves for a call of Spark SQL; None if there is none, and Spark has to compute it itself.

    Args:
        name: of the function, in lower case.
        arguments: without their DISTINCT.

    Raises:
        ValueError: what it gives depends on the order of the rows.

    >>> from sqlglot import parse_one
    >>> found = call_of("percentile", [parse_one("ms + 1"), parse_one("0.3")])
    >>> found.function, found.columns["column"].sql(), dict(found.options)
    ('percentile', 'ms + 1', {'percentage': 0.3})
    """
    if name in IN_ORDER:
        raise unmet("max_by or min_by with what orders the rows, or any_value", f"{name}, which depends on their order")
    if name == "count":
        return _count(arguments, distinct=distinct)
    function, fields = _FIELDS.get(name, ("", ""))
    if distinct:
        function = _OF_DIFFERENT.get(function, "")
    names, columns, options = fields.split(), dict[str, exp.Expr](), dict(_ALWAYS.get(name, {}))
    if not function or not arguments or len(arguments) > len(names) or any(one.is_star for one in arguments):
        return None
    for field, argument in zip(names, arguments, strict=False):
        if field in _COLUMNS:
            columns[field] = argument
            continue
        value = _literal(argument)
        if value is None:
            return None
        options["percentages" if isinstance(value, list) and field == "percentage" else field] = value
    if function == "mode":
        options.pop("deterministic", None)  # of values that come as often, ours is always the least
    complete = all(field in columns for field in names if field in _COLUMNS)
    return Call(function, columns, options) if complete else None


#: The fields of a call that name columns.
_COLUMNS = ("column", "other", "by")


def _count(arguments: Sequence[exp.Expr], *, distinct: bool) -> Call | None:
    """``count(a, b)`` is of the rows in which neither is null, ``count(DISTINCT a, b)`` of their different pairs."""
    stars = [one for one in arguments if one.is_star]
    if not arguments or (stars and (distinct or not isinstance(stars[0], exp.Star) or len(arguments) > 1)):
        return None
    if stars or (not distinct and len(arguments) == 1 and _literal(arguments[0]) is not None):
        return Call("count", {}, {})
    column: exp.Expr = arguments[0]
    if len(arguments) > 1:
        filled = exp.and_(*(exp.Not(this=exp.Is(this=exp.paren(one), expression=exp.Null())) for one in arguments))
        several = exp.Anonymous(this="struct", expressions=[one.copy() for one in arguments])
        column = exp.Case(ifs=[exp.If(this=filled, true=several if distinct else exp.Literal.number(1))])
    return Call("count_distinct" if distinct else "count", {"column": column}, {})


def _literal(tree: exp.Expr) -> Any:
    """The number, the boolean or the list of numbers that an argument is; None if it is anything else."""
    tree = tree.unnest()
    if isinstance(tree, exp.Array) or (isinstance(tree, exp.Anonymous) and str(tree.this).lower() == "array"):
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
