"""Which of our aggregates serves for a call of Spark SQL; None where Spark has to compute it itself."""

from typing import Any

import pytest
from sqlglot import exp

from skewless.query.functions import call_of
from skewless.query.sql import call_name, parsed_expression, written

CALLS: dict[str, tuple[str, dict[str, str], dict[str, Any]] | None] = {
    "count(*)": ("count", {}, {}),
    "count(1)": ("count", {}, {}),
    "count(x)": ("count", {"column": "x"}, {}),
    "count(a, b)": ("count", {"column": "CASE WHEN NOT (a) IS NULL AND NOT (b) IS NULL THEN 1 END"}, {}),
    "count(DISTINCT a)": ("count_distinct", {"column": "a"}, {}),
    "COUNT(DISTINCT a, b)": (
        "count_distinct",
        {"column": "CASE WHEN NOT (a) IS NULL AND NOT (b) IS NULL THEN struct(a, b) END"},
        {},
    ),
    "count(t.*)": None,
    "count(DISTINCT *)": None,
    "mean(x + 1)": ("avg", {"column": "x + 1"}, {}),
    "sum(DISTINCT x)": ("sum_distinct", {"column": "x"}, {}),
    "max(DISTINCT x)": ("max", {"column": "x"}, {}),
    "array_agg(DISTINCT x)": ("collect_set", {"column": "x"}, {}),
    "stddev(DISTINCT x)": None,
    "any_value(x, true)": ("first", {"column": "x"}, {"ignore_nulls": True}),
    "max_by(x, y)": ("max_by", {"column": "x", "by": "y"}, {}),
    "max_by(x, y, 3)": None,
    "regr_slope(y, x)": ("regr_slope", {"column": "y", "other": "x"}, {}),
    "regr_avgx(y, x)": ("avg", {"column": "CASE WHEN NOT (y) IS NULL THEN x END"}, {}),
    "corr(x)": None,
    "median(x)": ("percentile", {"column": "x"}, {"percentage": 0.5}),
    "percentile(x, 0.3D)": ("percentile", {"column": "x"}, {"percentage": 0.3}),
    "percentile(x, array(0, 0.9))": ("percentile", {"column": "x"}, {"percentages": [0.0, 0.9]}),
    "percentile(x, 0.3, w)": None,
    "percentile(x, p)": None,
    "mode(x, true)": ("mode", {"column": "x"}, {}),
    "percentile_approx(x, 0.5, 100L)": ("approx_percentile", {"column": "x"}, {"percentage": 0.5, "accuracy": 100}),
    "approx_count_distinct(DISTINCT x, 0.01)": ("approx_count_distinct", {"column": "x"}, {"rsd": 0.01}),
    "listagg(x, ',')": None,
}


def called(text: str) -> Any:
    node = parsed_expression(text)
    arguments, distinct = list(node.expressions), bool(node.find(exp.Distinct))
    return call_of(call_name(node), arguments[0].expressions if distinct else arguments, distinct=distinct)


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_that_of_the_aggregate_which_serves(text: str) -> None:
    found = called(text)
    columns = {name: written(tree) for name, tree in found.columns.items()} if found else {}
    assert CALLS[text] == (found and (found.function, columns, found.options))


def test_what_depends_on_the_order_of_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="max_by or min_by with what orders the rows"):
        called("first(x)")
