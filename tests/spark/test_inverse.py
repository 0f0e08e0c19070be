"""Rows are taken out of native states again: the bits are those of the rest, and so is what plain Spark says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.binding import check_types, serves_instead
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.counts import HistogramOptions
from tests.spark.scenario import spec_of

COLUMNS = {
    "tiny": ("tinyint", pa.int8(), st.integers(-128, 127)),
    "whole": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": ("bigint", pa.int64(), st.integers(-(2**48), 2**48)),
    "huge": ("bigint", pa.int64(), st.sampled_from([-(2**61), 2**61 - 1, -1, 0, 1])),
    "price": ("decimal(12,2)", pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "broad": ("decimal(38,18)", pa.decimal128(38, 18), st.decimals(-(10**15), 10**15, places=18)),
    "real": ("double", pa.float64(), st.floats()),
    "flag": ("boolean", pa.bool_(), st.booleans()),
}
EDGES = [-1.0, 0.0, 2.5]
HISTOGRAM = (
    "array(count_if(real < -1), count_if(real >= -1 AND real < 0), count_if(real >= 0 AND real < 2.5),"
    " count_if(real >= 2.5 AND NOT isnan(real)))"
)
#: Function, column, and what plain SQL says; "" where its sum overflows or is rounded.
CALLS = [
    ("count", "real", "count(real)"),
    ("count_if", "flag", "count_if(flag)"),
    ("histogram", "real", HISTOGRAM),
    *(
        (function, column, f"{function}({column})")
        for function in ("sum", "avg")
        for column in ("tiny", "whole", "big")
    ),
    *((function, column, f"{function}({column})") for function in ("sum", "avg") for column in ("price", "broad")),
    ("sum", "huge", ""),
    ("avg", "huge", ""),
    *(("bit_xor", column, f"bit_xor({column})") for column in ("tiny", "whole", "big", "huge")),
]

ROW = st.tuples(*(st.none() | values for _, _, values in COLUMNS.values()))
#: The parts of a key, each with at most three rows, and what becomes of a part: it stays, it leaves, or it comes.
KEY = st.lists(st.tuples(st.lists(ROW, max_size=3), st.sampled_from(["stays", "leaves", "comes"])), max_size=5)

#: A key that has rows and no value: not every draw has one.
NO_VALUES = [([(None,) * len(COLUMNS)], "stays")]


def native(function: str) -> NativeAggregate:
    found = REGISTRY[function]
    assert isinstance(found, NativeAggregate)
    return found


def options(function: str) -> Any:
    return HistogramOptions(edges=EDGES) if function == "histogram" else None


def names(n: int, frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith(f"s{n}_")]


def updated(rows: DataFrame) -> DataFrame:
    states = [
        state.alias(f"s{n}_{i}")
        for n, (function, column, _) in enumerate(CALLS)
        for i, state in enumerate(
            native(function).update(
                Arguments((F.col(column),), (column,), (COLUMNS[column][0],), F.lit(1), "kept"), options(function)
            )
        )
    ]
    return rows.groupBy("key", "part", "fate").agg(F.count("*").alias("rows"), *states)


def merged(states: DataFrame) -> DataFrame:
    """As the merge of a run: a key without rows is none."""
    columns = [
        state.alias(name)
        for n, (function, column, _) in enumerate(CALLS)
        for name, state in zip(
            names(n, states),
            native(function).merge(names(n, states), options(function), COLUMNS[column][0]),
            strict=True,
        )
    ]
    return states.groupBy("key").agg(F.sum("rows").alias("rows"), *columns).where("rows > 0")


def inverted(states: DataFrame) -> DataFrame:
    columns = []
    for n, (function, column, _) in enumerate(CALLS):
        inverse = native(function).inverse
        assert inverse is not None
        of = names(n, states)
        columns += [
            one.alias(name)
            for name, one in zip(of, inverse([F.col(name) for name in of], None, COLUMNS[column][0]), strict=True)
        ]
    return states.select("key", (-F.col("rows")).alias("rows"), *columns)


def evaluated(states: DataFrame) -> list[Column]:
    values = []
    for n, (function, column, sql) in enumerate(CALLS):
        if sql:
            one = native(function).evaluate(
                [F.col(name) for name in names(n, states)], options(function), COLUMNS[column][0]
            )
            values.append(
                (F.transform(one, lambda bin_: bin_["count"]) if function == "histogram" else one).alias(f"r{n}")
            )
    return values


def rows_of(spark: SparkSession, keys: Sequence[Any]) -> DataFrame:
    flat = [
        (key, part, fate, *row)
        for key, parts in enumerate(keys)
        for part, (rows, fate) in enumerate(parts)
        for row in rows
    ]
    kinds = [pa.int64(), pa.int64(), pa.string(), *(kind for _, kind, _ in COLUMNS.values())]
    columns = list(zip(*flat, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=["key", "part", "fate", *COLUMNS]))


@pytest.mark.long
def test_subtracting_equals_merging_what_is_left_bit_for_bit(spark: SparkSession) -> None:
    """Every random case is a key of its own, so that all of them are one query."""

    @settings(max_examples=1, phases=[Phase.generate])
    @given(keys=st.lists(KEY, min_size=150, max_size=200))
    def check(keys: Sequence[Any]) -> None:
        rows = rows_of(spark, [*keys, NO_VALUES])
        states = updated(rows).cache()
        before = merged(states.where("fate != 'comes'"))  # the window of the night before, merged
        slid = merged(
            before.unionByName(inverted(states.where("fate = 'leaves'"))).unionByName(
                states.where("fate = 'comes'").select(*before.columns)
            )
        )
        rest = merged(states.where("fate != 'leaves'"))
        assert slid.exceptAll(rest).isEmpty()
        assert rest.exceptAll(slid).isEmpty()
        said = [F.expr(sql).alias(f"r{n}") for n, (_, _, sql) in enumerate(CALLS) if sql]
        theirs = rows.where("fate != 'leaves'").groupBy("key").agg(*said)
        ours = slid.select("key", *evaluated(slid))
        assert [kind for _, kind in ours.dtypes] == [kind for _, kind in theirs.dtypes]
        wrong = (
            ours.join(
                theirs.withColumnsRenamed({name: f"t_{name}" for name in theirs.columns}), F.expr("key = t_key"), "full"
            )
            .where(" OR ".join(f"NOT {name} <=> t_{name}" for name in ours.columns))
            .collect()
        )
        assert not wrong, wrong[:2]
        states.unpersist()

    check()


def test_invertible_are_the_exact_ones() -> None:
    """Never sums of floating-point numbers, never sketches, sets or extremes."""
    integers, floats = ["bigint"], ["double"]
    with_integers = {
        name for name, one in REGISTRY.items() if isinstance(one, NativeAggregate) and one.invertible(integers)
    }
    with_floats = {
        name for name, one in REGISTRY.items() if isinstance(one, NativeAggregate) and one.invertible(floats)
    }
    counts = {"count", "count_if", "histogram", "bit_xor"}
    assert with_integers == {"sum", "avg", "mean", *counts}
    assert with_floats == counts
    assert all(
        (native(name).inverse is not None) == (name in with_integers) for name in with_integers | {"max", "corr"}
    )
    types = {"whole": "int", "real": "float", "price": "decimal(4,2)"}
    calls = {
        **{f"sum_{column}": {"function": "sum", "column": column} for column in types},
        "values": {"function": "value_counts", "column": "real"},
        "median": {"function": "exact_median", "column": "real"},
        "most": {"function": "max", "column": "whole"},
    }
    algebra = check_types(spec_of(Path("in"), "whole", calls), types, "spec")
    assert {name for name, one in algebra.items() if one.invertible} == {"sum_whole", "sum_price", "values"}


def test_an_aggregate_that_cannot_be_merged_names_one_that_can() -> None:
    named = {name: serves_instead(definition) for name, definition in REGISTRY.items() if not definition.mergeable}
    assert (named["exact_median"], named["latest"], named["sessions"]) == ("approx_percentile", "last", None)
    assert all(REGISTRY[name].mergeable for name in named.values() if name)
    assert not any(serves_instead(definition) for definition in REGISTRY.values() if definition.mergeable)


def result_over(spark: SparkSession, parts: Sequence[Sequence[int | None]], function: str) -> tuple[Any, Any]:
    """The result of a bigint column whose states are made by part and merged; and that of plain Spark."""
    rows = [(part, value) for part, values in enumerate(parts) for value in values]
    table = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    frame = spark.createDataFrame(pa.table(table, names=["part", "v"]))
    made = native(function).update(Arguments((F.col("v"),), ("v",), ("bigint",), F.lit(1), "kept"), None)
    columns = [f"s0_{n}" for n in range(len(made))]
    states = frame.groupBy("part").agg(*(one.alias(name) for one, name in zip(made, columns, strict=True)))
    whole = states.agg(
        *(one.alias(name) for name, one in zip(columns, native(function).merge(columns, None, "bigint"), strict=True))
    )
    ours = whole.select(native(function).evaluate([F.col(name) for name in columns], None, "bigint")).first()
    theirs = frame.agg(F.avg("v")).first()
    assert ours is not None
    assert theirs is not None
    return ours[0], theirs[0]


@pytest.mark.long
def test_only_a_whole_sum_may_overflow_when_states_are_merged(spark: SparkSession) -> None:
    """The result does not depend on the order of merging; a sum that is no bigint ends the run, as in plain Spark."""
    assert result_over(spark, [[2**62], [2**62], [2**62], [-(2**62)], [-(2**62)], [-(2**62)], [7]], "sum")[0] == 7
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        result_over(spark, [[2**62], [2**62]], "sum")


@pytest.mark.long
def test_averages_of_integers_are_rounded_once(spark: SparkSession) -> None:
    """Spark's ``avg`` adds up doubles. It does not overflow, nor do we; but large values cancel each other exactly."""
    ours, theirs = result_over(spark, [[2**63 - 1] * 3, [2**63 - 1, -(2**63), None]], "avg")
    assert ours == theirs
    assert result_over(spark, [[2**62 + 1, 3], [-(2**62), None]], "avg")[0] == 4 / 3
    assert result_over(spark, [[None], [None]], "avg") == (None, None)
