"""Random queries, each as a job and in plain Spark; ``SKEWLESS_QUERIES=500`` asks so many, of ``SKEWLESS_SEED``."""

import os
import random
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.query.fuzz import draw, draw_lookup, written
from tests.query.oracle import asked, in_duckdb, in_spark, loosely, plain_spark, spec_of
from tests.query.rows import DAYS, differences
from tests.tiers import mostly_long

SEED, COUNT = os.environ.get("SKEWLESS_SEED", "49"), int(os.environ.get("SKEWLESS_QUERIES", "40"))
ROUTED = {
    "engine": "staged",
    "routing": {"reducers": 3, "waves": [1, 2], "stage_overhead": 0, "first_plan": ["last_run"]},
}


#: In DuckDB grouping sets of no rows have a total, lists of none are null, times in zones have a type of their own, and
#: percentiles are values that are there; OUTER is lost when a LATERAL VIEW is written for it.
DIFFERS = ("ROLLUP", "CUBE", "GROUPING SETS", "OUTER EXPLODE", "COLLECT_SET", "FROM_UTC_TIMESTAMP", "PERCENTILE")


@pytest.mark.parametrize("number", mostly_long(range(COUNT), 0, 1, 2))
def test_a_random_query_is_what_plain_spark_makes_of_it(spark: SparkSession, tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    drawn = draw(chance)
    paths = written(drawn, tmp_path)
    spec = spec_of(drawn.text, paths)
    mergeable = all(call.function != "spark" for call in spec.aggregates.values())
    fields = ROUTED if mergeable and chance.random() < 0.6 else {}
    windowed = mergeable and chance.random() < 0.4
    spec = spec_of(drawn.text, paths, **fields, **({"window": 3} if windowed else {}))
    if windowed:
        asked(spark, spec, tmp_path, DAYS[-2])  # of which states are kept, and then a lookup is another one
        for name in sorted(spec.lookups)[:1]:
            draw_lookup(chance, drawn, name, paths[name])
    ours = asked(spark, spec, tmp_path)
    with plain_spark(spark, paths):
        assert not differences(ours, in_spark(spark, drawn.text), drawn.near), f"seed {SEED}: {drawn.text}"
    if any(word in drawn.text for word in DIFFERS):
        return
    try:
        others = in_duckdb(drawn.text, paths)
    except duckdb.Error:
        return  # a function or a rule of types that DuckDB has not
    near = {str([*ours[0]].index(name)): off for name, off in drawn.near.items()} if ours else {}
    assert not differences(loosely(ours), others, near), f"seed {SEED}, beside DuckDB: {drawn.text}"
