"""Random queries, each as a job and in plain Spark; ``SKEWLESS_QUERIES=500`` asks so many, of ``SKEWLESS_SEED``."""

import os
import random
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession

from skewless.query.understood import GROUPING, STATE, understood
from tests.query.fuzz import draw, draw_lookup, written
from tests.query.oracle import asked, in_duckdb, in_spark, loosely, plain_spark, spec_of
from tests.query.rows import DAYS, differences
from tests.tiers import mostly_long

SEED, COUNT = os.environ.get("SKEWLESS_SEED", "49"), int(os.environ.get("SKEWLESS_QUERIES", "40"))
ROUTED = {
    "engine": "staged",
    "routing": {"reducers": 3, "waves": [1, 2], "stage_overhead": 0, "first_plan": ["last_run"]},
}


def test_states_of_random_queries_are_joined_as_rows_are() -> None:
    def counted(database: duckdb.DuckDBPyConnection, rows: str, key: tuple[str, ...], count: str) -> pa.Table:
        text = sqlglot.transpile(rows, read="spark", write="duckdb")[0]
        return database.sql(f"SELECT {', '.join(key)}, {count} AS {STATE} FROM ({text}) GROUP BY ALL").to_arrow_table()

    joined = 0
    for number in range(COUNT):
        drawn = draw(random.Random(f"{SEED} {number}"))
        found = understood(drawn.text, frozenset(drawn.tables))
        if found.joined is None or GROUPING in found.key:  # DuckDB has no inline()
            continue
        with suppress(duckdb.BinderException), duckdb.connect() as database:  # what it has not
            for name, table in drawn.tables.items():
                database.register("input" if name == found.input else name, table)
            plain = counted(database, str(found.rows), found.key, "count(*)")
            of_rows = found.joined.rows or "SELECT * FROM input"
            database.register("input", counted(database, of_rows, found.joined.key, "count(*)"))
            ours = counted(database, found.joined.query, found.key, f"sum({STATE})::BIGINT")
            joined += 1
            assert not differences(ours.to_pylist(), plain.to_pylist(), {}), drawn.text
    assert joined > COUNT // 5


#: In DuckDB grouping sets of no rows have a total, lists of none are null, times in zones have their own type and text,
#: percentiles are values that are there, null is the largest field; OUTER is lost with a LATERAL VIEW.
DIFFERS = (
    "ROLLUP", "CUBE", "GROUPING SETS", "OUTER EXPLODE", "COLLECT_SET", "FROM_UTC_TIMESTAMP", "PERCENTILE", "LISTAGG",
    "NAMED_STRUCT",
)  # fmt: skip


@pytest.mark.parametrize("number", mostly_long(range(COUNT), 0, 1, 2))
def test_a_random_query_is_what_plain_spark_makes_of_it(spark: SparkSession, tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    drawn = draw(chance)
    paths = written(drawn, tmp_path)
    spec = spec_of(drawn.text, paths)
    mergeable = all(call.function != "spark" for call in spec.aggregates.values())
    fields = ROUTED if mergeable and chance.random() < 0.6 else {}
    windowed = mergeable and chance.random() < 0.4
    joining = number % 2 and not windowed and spec.joining is not spec
    spec = spec_of(drawn.text, paths, **fields, **({"window": 3} if windowed else {"state": "join"} if joining else {}))
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
