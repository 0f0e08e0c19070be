"""What serves where a Spark lacks something, beside what Spark has: equal, whichever version this is."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from skewless_spark.session import versions
from skewless_spark.session.session import session_in_jvm
from skewless_spark.session.versions import AGGREGATES, STAND_INS

ROOT = Path(__file__).parents[2]
#: By what stands in the room, whether this Spark has it.
HERE = {
    "collect_union": hasattr(F, "collect_union"),
    "repartitionById": hasattr(DataFrame, "repartitionById"),
    "is_valid_utf8": hasattr(F, "is_valid_utf8"),
    "VariantType": hasattr(types, "VariantType"),
    "approx_percentile": hasattr(F, "kll_sketch_agg_double"),
    "theta_sketch_estimate": hasattr(F, "theta_sketch_agg"),
}
#: What only the room may ask for or call.
ELSEWHERE = re.compile(
    r"pyspark.*__version__|[^.]\bspark\.version\b|repartitionById|F\.(collect_union|is_valid_utf8)|VariantType$"
    r"|\.toArrow\(|\* EXCEPT|\.try_cast\(|AS JSON|conf\.getAll|createDataFrame\((pa|table)\b"
)


def test_the_room_is_right_about_this_spark_and_nothing_else_asks() -> None:
    now = versions.here()
    for name, there in HERE.items():
        assert there == (now >= {**AGGREGATES, **STAND_INS}[name].first), name
    asked = [
        f"{path.name}: {line}"
        for folder in ("jobs", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if ELSEWHERE.search(line) and path.name != "versions.py"
    ]
    assert asked == []


def test_the_page_has_the_table_of_the_room() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    rows = [(name, gap.first, f"refused: {gap.before}") for name, gap in AGGREGATES.items()]
    rows += [(name, *gap) for name, gap in STAND_INS.items()]
    assert "".join(f"|`{name}`|{first[0]}.{first[1]}|{before}|\n" for name, first, before in rows) in page


@pytest.fixture(params=["as it is", "without anything"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "as it is":
        monkeypatch.setattr(versions, "here", lambda: (3, 5))


@pytest.mark.usefixtures("either")
def test_unions_of_sets_and_texts_that_are_utf_8(spark: SparkSession) -> None:
    sets = "VALUES (array(1d, -0d)), (array(double('nan'), 0d)), (array(double('nan'), 2d)), (NULL) AS t(s)"
    union = spark.sql(f"SELECT * FROM {sets}").agg(F.sort_array(versions.collect_union("s")))
    assert union.schema[0].dataType == types.ArrayType(types.DoubleType(), containsNull=not HERE["VariantType"])
    (row,) = union.collect()
    assert list(dict.fromkeys(str(abs(value)) for value in row[0])) == ["0.0", "1.0", "2.0", "nan"]
    texts = spark.sql(
        "SELECT CAST(x AS STRING) AS t FROM VALUES (X'61'), (X'C3A4'), (X'FF'), (X'EDA080'), (NULL) AS t(x)"
    )
    told = texts.selectExpr(versions.is_valid_utf8("t")).collect()
    assert [row[0] for row in told] == [True, True, False, False, None]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("partitions", [1, 2, 7, 40])
def test_rows_are_in_the_partitions_of_their_numbers_and_grouped_there(spark: SparkSession, partitions: int) -> None:
    rows = spark.range(200).selectExpr(f"CAST(id % {partitions} AS INT) AS task", "id % 3 AS key")
    placed = versions.place(rows, partitions, F.col("task")).where(F.spark_partition_id() != F.col("task"))
    assert placed.count() == 0
    grouped = versions.place_by(rows, partitions, "task").groupBy("key", "task").agg(F.count("*").alias("n"))
    told = versions.numbers_of(grouped, partitions, "task")
    assert grouped._jdf.queryExecution().executedPlan().toString().count("Exchange") == 1
    assert sorted(map(tuple, told.select("key", "task", "n").collect())) == sorted(
        map(tuple, rows.groupBy("key", "task").count().collect())
    )


@pytest.mark.usefixtures("either")
def test_tables_come_from_arrow_and_go_there(spark: SparkSession) -> None:
    table = pa.table(
        {"n": pa.array([1, None], pa.int32()), "l": pa.array([[1], None], pa.list_(pa.int32())), "t": ["a", "b"]}
    )
    frame = versions.local_frame(spark, table)
    assert frame.dtypes == [("n", "int"), ("l", "array<int>"), ("t", "string")]
    assert versions.to_arrow(frame.coalesce(1)).to_pylist() == table.to_pylist()
    moments = spark.sql("SELECT timestamp'2026-11-20 10:00:00' AS at")
    for rows in (moments, moments.where("false")):
        told = versions.to_arrow(rows)
        assert str(told.schema.field("at").type) == "timestamp[us, tz=UTC]"
        assert [one["at"].isoformat()[:13] for one in told.to_pylist()] == ["2026-11-20T10"] * told.num_rows


@pytest.mark.usefixtures("either")
def test_a_session_says_its_settings_and_a_table_its_options(spark: SparkSession, tmp_path: Path) -> None:
    assert "spark.sql.ansi.enabled" in versions.set_names(spark)
    spark.sql(
        f"CREATE TABLE options_of_it (a INT) USING csv OPTIONS (sep '|', header true) LOCATION '{tmp_path / 't'}'"
    )
    try:
        known = versions.reader_options(spark, "options_of_it", session_in_jvm(spark))
    finally:
        spark.sql("DROP TABLE options_of_it")
    assert {"sep": "|", "header": "true"}.items() <= {key.lower(): value for key, value in known.items()}.items()


@pytest.mark.usefixtures("either")
@pytest.mark.skipif(bool(versions.lacking_aggregate("approx_top_k")), reason="this Spark has no approx_top_k")
@pytest.mark.parametrize("kind", ["string", "int", "decimal(12,2)"])
def test_states_of_top_values_are_merged_where_some_are_missing(spark: SparkSession, kind: str) -> None:
    rows = spark.range(60).selectExpr("id % 2 AS k", "id % 5 AS p", f"CAST(id % 3 AS {kind}) AS v")
    states = rows.groupBy("k", "p").agg(F.expr("approx_top_k_accumulate(v, 100)").alias("s"))
    some = states.withColumn("s", F.expr("IF(k = 0 OR p = 1, NULL, s)"))
    merged: Any = some.groupBy("k").agg(F.expr(versions.combine_top_k("s", 100, kind)).alias("s"))
    told = {row.k: row.top for row in merged.selectExpr("k", "approx_top_k_estimate(s, 3) AS top").collect()}
    assert told[0] == []
    assert sorted(one["count"] for one in told[1]) == [8, 8, 8]
