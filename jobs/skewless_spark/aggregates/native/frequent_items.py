"""The most frequent values of a key, by sketches that never miss a heavy value.

Anderson et al. (2017), "A high-performance algorithm for identifying frequent items in data streams".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import INTEGRAL_TYPES, one_of_required, top_k_item_required
from skewless.document import unmet
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.counts import Options, publishing


class ItemsOptions(Options):
    """Options of ``approx_top_k`` with ``publish: state``."""

    max_items_tracked: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Values that a sketch keeps; with no more counts are exact."
    )


class TopKOptions(ItemsOptions):
    """Options of ``approx_top_k``."""

    k: int = Field(default=5, ge=1, le=100_000, description="Values in the result, at most.")

    @model_validator(mode="after")
    def _tracked(self) -> Self:
        if self.k > self.max_items_tracked:
            raise unmet("k <= max_items_tracked", f"{self.k} and {self.max_items_tracked}")
        return self


# These functions treat null as a value like any other, in a row and as a state. FILTER exists only in SQL.


def _update(arguments: Arguments, options: ItemsOptions) -> tuple[Column]:
    items = f"approx_top_k_accumulate({arguments.names[0]}, {options.max_items_tracked})"
    return (F.expr(f"{items} FILTER (WHERE {arguments.counts})"),)


def _merge(states: Sequence[str], options: ItemsOptions, spark_type: str) -> tuple[Column]:
    del spark_type
    (state,) = states
    return (F.expr(f"approx_top_k_combine({state}, {options.max_items_tracked}) FILTER (WHERE {state} IS NOT NULL)"),)


def _evaluate(states: Sequence[Column], options: TopKOptions, spark_type: str) -> Column:
    del spark_type
    return F.call_function("approx_top_k_estimate", states[0], F.lit(options.k))


#: Times the rows, by the values that a sketch keeps: how much a count is off at most (see docs/aggregates.md).
_OFF = 2.7


def _agree(result: Column, states: Sequence[Column], options: TopKOptions, spark_type: str, rows: Column) -> Column:
    """Whether no count is off by more than both errors. A value that one result lacks has at most its least count."""
    other, kept = _evaluate(states, options, spark_type), options.max_items_tracked
    off = F.when(rows <= kept, 0).otherwise(F.floor(rows * (2 * _OFF / kept)))

    def each(these: Column, those: Column) -> Column:
        least = F.when(F.size(those) < options.k, 0).otherwise(F.array_min(those.getField("count")))

        def near(one: Column) -> Column:
            same = F.filter(those, lambda two: two["item"].eqNullSafe(one["item"]))
            there = F.abs(one["count"] - F.get(same, F.lit(0))["count"]) <= off
            return F.when(F.size(same) > 0, there).otherwise(one["count"] <= least + off)

        return F.forall(these, near)

    return each(result, other) & each(other, result)


APPROX_TOP_K = NativeAggregate(
    "approx_top_k",
    accepts=top_k_item_required,
    update=_update,
    merge=_merge,
    evaluate=_evaluate,
    options=TopKOptions,
    state_bytes=200,
    any_order=True,
    agrees=_agree,
)

# What is published is DataSketches' own. Spark appends how many nulls there were: a text of 8 bytes, here of zeros.
_NULLS = bytes(8)


def _kind(spark_type: str) -> str:
    return "bigint" if spark_type in INTEGRAL_TYPES else spark_type


def _update_plain(arguments: Arguments, options: ItemsOptions) -> tuple[Column]:
    (name,), (spark_type,) = arguments.names, arguments.spark_types
    items = f"approx_top_k_accumulate(CAST({name} AS {_kind(spark_type)}), {options.max_items_tracked})"
    return (F.expr(f"{items} FILTER (WHERE {arguments.counts} AND {name} IS NOT NULL)"),)


def _bytes(states: Sequence[Column], options: ItemsOptions, spark_type: str) -> Column:
    del options, spark_type
    sketch = states[0]["sketch"]
    return F.substring(sketch, F.lit(1), F.octet_length(sketch) - len(_NULLS))


def _state(result: Column, options: ItemsOptions, spark_type: str) -> Column:
    """What was published, as Spark's functions take it."""
    fields = {
        "sketch": F.concat(result, F.lit(_NULLS)),
        "maxItemsTracked": F.lit(options.max_items_tracked),
        "itemDataType": F.lit(None).cast(_kind(spark_type)),
        "itemDataTypeDDL": F.lit(f"item {_kind(spark_type)}"),
    }
    return F.when(result.isNotNull(), F.struct(*(field.alias(name) for name, field in fields.items())))


#: Two sketches are compared by so many of their most frequent values (Spark reads both anew for each of them), and a
#: report shows so many.
_COMPARED, _SHOWN = 20, 3


def _like_items(
    result: Column, states: Sequence[Column], options: ItemsOptions, spark_type: str, rows: Column
) -> Column:
    tracked = options.max_items_tracked
    most = TopKOptions(k=min(_COMPARED, tracked), max_items_tracked=tracked)
    return _agree(_evaluate([_state(result, options, spark_type)], most, spark_type), states, most, spark_type, rows)


def _shown(result: Column, options: ItemsOptions, spark_type: str) -> Column:
    few = F.lit(min(_SHOWN, options.max_items_tracked))
    few = F.call_function("approx_top_k_estimate", _state(result, options, spark_type), few)
    return F.concat(F.lit("a sketch with "), F.to_json(few))


APPROX_TOP_K = publishing(
    APPROX_TOP_K,
    accepts=one_of_required("string"),
    update=_update_plain,
    evaluate=_bytes,
    options=ItemsOptions,
    agrees=_like_items,
    shown=_shown,
)
