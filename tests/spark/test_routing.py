"""Spark says of every row what the core says of it."""

import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.routing.hashing import bucket_hash, decode_columns, key_hash
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from skewless.routing.ring import Ring
from skewless_spark.aggregates.keys import key_text
from skewless_spark.session.versions import local_frame, to_arrow
from skewless_spark.stage.routes import LISTED_KEYS, draw, drawing_rows, route, route_drawn, share_cells
from skewless_spark.stage.routes import bucket_hash as spark_bucket_hash
from skewless_spark.stage.routes import key_hash as spark_key_hash
from tests.tiers import mostly_long

#: One, two, three and four bytes in UTF-8, NUL and quotes among them.
ALPHABET = "a0 \0\n'\"\\\u00e9\u03b1\u0436\u4e2d\u20ac\u200b\U0001f600\U00010348"


def random_keys(count: int) -> list[str]:
    """Keys of every length from nothing to some dozens of bytes, and a few long ones."""
    rng = random.Random(42)
    keys = ["".join(rng.choice(ALPHABET) for _ in range(number % 25)) for number in range(count)]
    return [*keys, "", "\0", "\0\0\0\0", "x" * 10_000, "\U0001f600" * 2500]


def unsigned(value: int) -> int:
    return value & 0xFFFFFFFF


def test_spark_and_python_hash_ten_thousand_unicode_keys_alike(spark: SparkSession) -> None:
    keys = random_keys(12_000)
    assert {len(key.encode()) % 4 for key in keys} == {0, 1, 2, 3}
    rows = local_frame(spark, pa.table({"key": keys}))
    hashed = to_arrow(rows.selectExpr(spark_key_hash("key"), spark_bucket_hash("key")))
    assert [unsigned(value) for value in hashed.column(0).to_pylist()] == [key_hash(key) for key in keys]
    assert [unsigned(value) for value in hashed.column(1).to_pylist()] == [bucket_hash(key) for key in keys]


def test_spark_and_python_encode_several_columns_alike(spark: SparkSession) -> None:
    pairs = [("a", None), (None, "a"), (None, None), ("", ""), ("1:a,", "~,"), ("\u00e9", "\U0001f600"), ("a", "b,c")]
    rows = spark.createDataFrame(pairs, "first string, second string")
    texts = to_arrow(rows.selectExpr(key_text(["first", "second"], ["string", "string"]))).column(0)
    assert [tuple(decode_columns(text) or ()) for text in texts.to_pylist()] == pairs


@pytest.mark.parametrize("placed_keys", mostly_long([0, 20_000], 0), ids=["few head keys", "more than slots"])
def test_spark_routes_every_row_as_the_plan_says(spark: SparkSession, placed_keys: int) -> None:
    placed = [f"placed '{number}'" for number in range(placed_keys)]
    keys: list[str | None] = [*random_keys(3000), *["hot"] * 3000, *["warm"] * 500, *[None] * 500, *placed]
    plan = RoutingPlan(
        epoch=3,
        policy="adaptive",
        waves=(3, 4),
        ring=Ring.even(5, 16, ring_bits=10),
        factors={1: 4, 3: 2},
        head={
            "hot": ((0, 1024), (4, 40_000), (8, WHOLE_WEIGHT - 51_024), (4, 10_000)),
            "warm": ((7, WHOLE_WEIGHT),),
            **{key: ((number % 9, WHOLE_WEIGHT),) for number, key in enumerate(placed)},
        },
        share_salt=3,
    )
    origins = [(number % 7 << 40) | number for number in range(len(keys))]
    rows = local_frame(spark, pa.table({"key": keys, "origin": origins}))
    routed = to_arrow(route(rows, plan, "key", "origin"))
    said = {row["origin"]: row["task"] for row in routed.to_pylist()}
    assert said == {origin: plan.task_of(key, origin) for key, origin in zip(keys, origins, strict=True)}
    assert len(set(said.values())) == len(plan.tasks)


@pytest.mark.parametrize("split_keys", mostly_long([1, LISTED_KEYS + 1], 1), ids=["a few split keys", "many"])
def test_rows_that_are_added_up_first_go_to_the_tasks_of_the_plan(spark: SparkSession, split_keys: int) -> None:
    keys: list[str | None] = [*random_keys(500), *["warm"] * 500, *[None] * 500]
    keys += [f"hot '{number % split_keys}'" for number in range(200 * split_keys)]
    weights = ((0, 1024), (4, 40_000), (8, WHOLE_WEIGHT - 51_024), (4, 10_000))
    plan = RoutingPlan(
        epoch=3, policy="adaptive", waves=(3, 4), ring=Ring.even(5, 16, ring_bits=10), factors={1: 4, 3: 2},
        head={f"hot '{number}'": weights for number in range(split_keys)} | {"warm": ((7, WHOLE_WEIGHT),)},
        share_salt=3,
    )  # fmt: skip
    origins = [(number % 7 << 40) | number for number in range(len(keys))]
    rows = local_frame(spark, pa.table({"key": keys, "origin": origins}))
    assert (drawing_rows(plan, "key") is None) == (split_keys > LISTED_KEYS)
    states = draw(rows, plan, "key", "origin").groupBy("key", "drawn").count()
    counted = Counter((key, plan.task_of(key, origin)) for key, origin in zip(keys, origins, strict=True))
    found = [(row["key"], row["task"], row["count"]) for row in route_drawn(states, plan, "key").collect()]
    assert sorted(found, key=repr) == sorted(((*place, count) for place, count in counted.items()), key=repr)


def test_the_cells_of_a_share_are_as_few_as_can_be_and_hold_each_task_by_its_weight() -> None:
    assert share_cells(((3, WHOLE_WEIGHT),)) == [3]
    assert share_cells(((1, WHOLE_WEIGHT // 4), (2, 3 * WHOLE_WEIGHT // 4))) == [1, 2, 2, 2]
    fine = share_cells(((0, 1), (1, WHOLE_WEIGHT - 1)))
    assert len(fine) == WHOLE_WEIGHT
    assert fine.count(0) == 1
