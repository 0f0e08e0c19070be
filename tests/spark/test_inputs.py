"""Whole runs over every format, over one large file, over mapped rows: the answer of plain Spark, and a ledger."""

import datetime as dt
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyarrow import orc
from pyspark.sql import SparkSession

from skewless.errors import InputError, LedgerError, SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_spark.engines.stage import run_stage
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.versions import to_arrow
from skewless_spark.sources.unit_reading import read_units
from tests.spark.scenario import DATE, as_rows, reduce_job, result_of, run_job

ROUTING = {"reducers": 3, "waves": [1, 9], "stage_overhead": 0, "first_plan": []}
COUNTS = {"n": "count", "total": {"function": "sum", "column": "v"}}


def rows(number: int = 6000) -> pa.Table:
    ranks = np.random.default_rng(5).zipf(1.4, number) % 300
    return pa.table({"k": [f"k{rank}" for rank in ranks.tolist()], "v": [n % 100 for n in range(number)]})


def expected(table: pa.Table) -> list[tuple[Any, ...]]:
    grouped = table.group_by("k").aggregate([("k", "count"), ("v", "sum")])
    triples = zip(grouped["k"].to_pylist(), grouped["k_count"].to_pylist(), grouped["v_sum"].to_pylist(), strict=True)
    return sorted((repr(k), repr(n), repr(total)) for k, n, total in triples)


def spec(source: dict[str, Any], published: Path, **fields: Any) -> JobSpec:
    raw = {
        "name": "scenario", "input": source, "key": "k", "aggregates": COUNTS, "routing": ROUTING,
        "output": {"path": str(published), "files": 2}, **fields,
    }  # fmt: skip
    return parse_spec(json.dumps(raw))


def write(kind: str, path: Path, table: pa.Table) -> None:
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "orc":
        orc.write_table(table, str(path))
    elif kind == "csv":
        path.write_text("k,v\n" + "".join(f"{row['k']},{row['v']}\n" for row in table.to_pylist()))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.mark.parametrize("kind", ["orc", "csv", "json"])
def test_every_format_is_read_and_published_with_the_answer_of_its_rows_and_a_ledger(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    for number in range(12):
        folder = tmp_path / "in" / f"part={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        write(kind, folder / f"{number:02d}.{kind}", rows().slice(number * 500, 500))
    source = {"path": str(tmp_path / "in"), "format": kind, "columns": {"v": "bigint"} if kind == "csv" else None}
    job = spec(source, tmp_path, output={"path": str(tmp_path / "out"), "format": kind})
    run, finished, reports = run_job(spark, job, tmp_path / "run")
    assert sum(report.admitted_rows for report in reports) == 6000
    assert all((report.given_rows is None) == (kind == "orc") for report in reports)
    folder = Path(finished.publication.path)
    assert {file.suffix for file in folder.iterdir() if file.name != "_published"} == {f".{kind}"}
    schema = "k string, n bigint, total bigint"
    read = to_arrow(spark.read.schema(schema).format(kind).option("header", value=True).load(str(folder)))
    assert as_rows(read) == as_rows(result_of(run)) == expected(rows())


def test_an_exploding_select_counts_words_and_keeps_their_order(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [f"a b{number % 7} a c{number % 3}" if number % 5 else "" for number in range(3000)]
    for part in range(10):
        (tmp_path / "in" / f"{part}.txt").write_text("".join(f"{line}\n" for line in lines[part::10]))
    mapping = {
        "select": ["explode(regexp_extract_all(value, '([a-z]\\\\d*)', 1)) AS k", "length(value) AS v",
                   "_metadata.file_name AS file"],
        "where": "value <> ''",
    }  # fmt: skip
    words_of = {"function": "collect_list", "column": "k"}
    longest = {"function": "max_by", "column": "k", "by": "v"}
    aggregates = {**COUNTS, "words": words_of, "last": longest}
    source = {"path": str(tmp_path / "in"), "format": "text"}
    job = spec(source, tmp_path / "out", map=mapping, key="file", aggregates=aggregates)
    run, finished, reports = run_job(spark, job, tmp_path / "run")
    words = {f"{part}.txt": [word for line in lines[part::10] for word in line.split()] for part in range(10)}
    assert {row["file"]: row["words"] for row in result_of(run).to_pylist()} == {k: v for k, v in words.items() if v}
    assert finished.quality.ledger.balanced
    assert sum(report.source_rows or 0 for report in reports) == 3000
    assert sum(report.given_rows or 0 for report in reports) == sum(map(len, words.values()))


def test_fields_of_what_an_array_holds_are_keys_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    baskets = [[{"sku": f"s{number % step}", "qty": number % 5} for step in (2, 7)] for number in range(900)]
    lines = [json.dumps({"items": items, "tags": {"size": "xs"}}) for items in baskets]
    (tmp_path / "in.json").write_text("\n".join(lines))
    columns = {"items": "array<struct<sku:string,qty:int>>", "tags": "map<string,string>"}
    source = {"path": str(tmp_path / "in.json"), "format": "json", "columns": columns}
    selected = {"select": ["explode(items) AS item", "tags['size'] AS size"]}
    aggregates = {"n": "count", "total": {"function": "sum", "column": "item.qty"},
                  "sizes": {"function": "count_distinct", "column": "size"}}  # fmt: skip
    job = spec(source, tmp_path / "out", map=selected, key="item.sku", aggregates=aggregates)
    run, _, _ = run_job(spark, job, tmp_path / "run")
    counts, totals = Counter[str](), Counter[str]()
    for item in itertools.chain(*baskets):
        counts[str(item["sku"])] += 1
        totals[str(item["sku"])] += int(str(item["qty"]))
    found = {row["item.sku"]: (row["n"], row["total"], row["sizes"]) for row in result_of(run).to_pylist()}
    assert found == {sku: (rows, totals[sku], 1) for sku, rows in counts.items()}


def mapped(tmp_path: Path, engine: str) -> RunDirectory:
    pq.write_table(pa.table({"value": ["a 1", "b 2"]}), tmp_path / "in.parquet")
    mapping = {"select": ["substr(value, 1, 1) AS k", "int(substr(value, 3)) AS v"]}
    run = RunDirectory(str(tmp_path / "run"))
    prepare(run, spec({"path": str(tmp_path / "in.parquet")}, tmp_path / "out", map=mapping, engine=engine), DATE, "/")
    return run


def test_unrouted_rows_of_a_map_are_counted_in_the_loop_that_makes_states(spark: SparkSession, tmp_path: Path) -> None:
    assert run_stage(spark, mapped(tmp_path, "combine"), 0).given_rows == 2
    query = spark._jsparkSession.sharedState().statusStore().executionsList().last()
    assert "CollectMetrics" not in query.physicalPlanDescription()


def test_mapped_rows_that_are_lost_before_they_are_routed_stop_the_stage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = mapped(tmp_path, "staged")

    def lossy(*arguments: Any, **named: Any) -> Any:
        return read_units(*arguments, **named).where("c0 <> 'b'")

    monkeypatch.setattr("skewless_spark.stage.routes.read_units", lossy)
    with pytest.raises(LedgerError, match=r"stage 0.*admitted 1 rows of the 2 listed.*nothing was committed"):
        run_stage(spark, run, 0)
    assert run.commit_of("stages/0000") is None


@pytest.mark.parametrize(
    ("select", "said"), yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())["selects"]
)
def test_a_select_list_that_may_not_be_run_is_refused_before_it_starts(
    spark: SparkSession, tmp_path: Path, select: list[str], said: str
) -> None:
    assert spark
    (tmp_path / "in.txt").write_text("a b\n")
    source = {"path": str(tmp_path / "in.txt"), "format": "text"}
    with pytest.raises((SpecError, InputError), match=said) as told:
        freeze(spec(source, tmp_path / "out", map={"select": select}), DATE, "/", "spec")
    assert "\n" not in str(told.value)


ODD_TEXTS = [
    "a ", " b", "\t", "\x00", 'q"x', '"', '""', "\\", '\\"', "a\\", "", None, "a,b", " ", 'x"y,z\\', '"all"', "a\xa0",
]  # fmt: skip


@pytest.mark.long
def test_each_text_of_a_published_csv_is_read_back_by_others_and_by_the_next_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"k": ODD_TEXTS, "v": range(len(ODD_TEXTS))}), tmp_path / "in.parquet")
    output = {"path": str(tmp_path / "out"), "format": "csv"}
    run, finished, _ = run_job(
        spark, spec({"path": str(tmp_path / "in.parquet")}, tmp_path, output=output), tmp_path / "r"
    )
    assert sorted(result_of(run)["k"].to_pylist(), key=repr) == sorted(ODD_TEXTS, key=repr)
    files = sorted(Path(finished.publication.path).glob("*.csv"))
    place = f"{finished.publication.path}/*.csv"
    again = spec({"path": place, "format": "csv"}, tmp_path / "o", aggregates={"n": "count"})
    job = freeze(again, DATE, "/", "spec")
    ours = [row["c0"] for row in read_units(spark, job, range(len(job.units)), ["k"]).collect()]
    assert sorted(ours, key=repr) == sorted(ODD_TEXTS, key=repr)
    duck = duckdb.connect()
    read = [row for file in files for row in duck.execute(
        "SELECT k FROM read_csv(?, header = true, all_varchar = true, quote = '\"', escape = '\"', delim = ',', "
        "allow_quoted_nulls = false)", [str(file)]).fetchall()]  # fmt: skip
    assert sorted((text for (text,) in read), key=repr) == sorted(ODD_TEXTS, key=repr)


@pytest.mark.long
def test_days_before_1582_are_published_in_orc_as_all_readers_know_them(spark: SparkSession, tmp_path: Path) -> None:
    day = dt.date(1500, 3, 7)
    pq.write_table(pa.table({"k": ["a"], "day": [day]}), tmp_path / "in.parquet")
    output = {"path": str(tmp_path / "out"), "format": "orc"}
    aggregates = {"day": {"function": "max", "column": "day"}}
    job = spec({"path": str(tmp_path / "in.parquet")}, tmp_path, aggregates=aggregates, output=output)
    _, finished, _ = run_job(spark, job, tmp_path / "run")
    assert [orc.read_table(one)["day"].to_pylist() for one in Path(finished.publication.path).glob("*.orc")] == [[day]]
    assert [row["day"] for row in spark.read.orc(finished.publication.path).collect()] == [day]


def test_nested_columns_in_csv_are_refused_before_the_run(spark: SparkSession, tmp_path: Path) -> None:
    assert spark
    pq.write_table(rows(), tmp_path / "in.parquet")
    output = {"path": str(tmp_path / "out"), "format": "csv"}
    aggregates = {"all": {"function": "collect_set", "column": "v"}}
    job = spec({"path": str(tmp_path / "in.parquet")}, tmp_path, output=output, aggregates=aggregates)
    with pytest.raises(SpecError, match=r"output\.format: expected columns of one value each for csv.*'all'.*array"):
        freeze(job, DATE, "/", "spec")


def test_a_table_of_files_is_read_as_its_files_and_a_view_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(rows().to_pylist(), "k string, v bigint").createOrReplaceTempView("skewless_rows")
    spark.sql(
        f"CREATE TABLE skewless_t USING parquet PARTITIONED BY (p) LOCATION '{tmp_path / 't'}' "
        "AS SELECT k, v, v % 2 AS p FROM skewless_rows"
    )
    try:
        run, _ = reduce_job(
            spark, spec({"format": "catalog", "path": "skewless_t"}, tmp_path / "out"), tmp_path / "run"
        )
        assert as_rows(result_of(run)) == expected(rows())
        assert run.job().source.partition_columns == {"p": "bigint"}
        for table, said in [("skewless_rows", "a view"), ("nowhere", "expected a table that Spark knows")]:
            with pytest.raises(InputError, match=said):
                freeze(spec({"format": "catalog", "path": table}, tmp_path / "out"), DATE, "/", "spec")
    finally:
        spark.sql("DROP TABLE skewless_t")


@pytest.mark.long
def test_columns_of_a_table_that_spark_pads_or_collates_are_refused_where_they_are_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files have a CHAR as it was written, and know no collation: their groups would be others than Spark's."""
    odd = "c CHAR(3), k STRING COLLATE UTF8_LCASE, l ARRAY<CHAR(2)>, t VARCHAR(9), v BIGINT, p CHAR(2)"
    spark.sql(f"CREATE TABLE skewless_odd ({odd}) USING parquet PARTITIONED BY (p) LOCATION '{tmp_path / 't'}'")
    spark.sql(f"CREATE TABLE skewless_csv (k CHAR(3), v BIGINT) USING csv LOCATION '{tmp_path / 'c'}'")
    try:
        spark.sql("INSERT INTO skewless_odd VALUES ('a', 'X', array('b'), 'x', 1, 'p'), ('a', 'x', NULL, 'x', 2, 'p')")
        spark.sql("INSERT INTO skewless_csv VALUES ('a', 1)")
        of = {name: {"function": "max", "column": name} for name in "ckl"}

        source = {"format": "catalog", "path": "skewless_odd"}

        def job(key: str, aggregate: Any, **more: Any) -> JobSpec:
            return spec(source, tmp_path / "out", key=key, aggregates={"n": aggregate}, **more)

        run, _ = reduce_job(spark, job("t", {"function": "sum", "column": "v"}), tmp_path / "run")
        assert as_rows(result_of(run)) == [("'x'", "3")]
        for refused, said in [
            (job("c", "count"), r"key: expected a column that can be a key, but got 'c' of type unsupported char\(3\)"),
            (job("p", "count"), r"but got 'p' of type unsupported char\(2\)"),
            (job("k", "count"), r"but got 'k' of type unsupported string collate UTF8_LCASE"),
            *(
                (job("t", of[name]), rf"expected a type that Spark reads for max, but got column '{name}'")
                for name in of
            ),
            (job("t", "count", map={"select": ["t"], "where": "c = 'a'"}), r"map: .*'c' of type unsupported char"),
            (job("t", "count", map={"select": ["t", "upper(k) AS u"]}), r"map: .*'k' of type unsupported string"),
            (
                spec(source | {"path": "skewless_csv"}, tmp_path / "out"),
                r"'k' of type char\(3\); declare it as a STRING",
            ),
        ]:
            with pytest.raises((InputError, SpecError), match=said):
                freeze(refused, DATE, "/", "spec")
    finally:
        spark.sql("DROP TABLE skewless_odd")
        spark.sql("DROP TABLE skewless_csv")
