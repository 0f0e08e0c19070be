"""Jobs that are queries: their tables are what plain Spark makes of the same text, on every engine."""

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.errors import InputError, SpecError
from skewless.planner import engine_choice
from skewless.spec import JobSpec, parse_spec
from skewless_spark.comparison import OtherSide, compare, results_of_all_rows
from skewless_spark.engines.bypass import _placed
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.session.session import query_in_jvm
from skewless_spark.session.step_measures import JobsSeen
from skewless_spark.sources.unit_reading import lookups_of, scanned_bytes
from skewless_spark.stage.routes import TASK, Stage, unrouted_queue
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import DATE, Quiet, Told, finished, prepared, result_of, run_job, session_settings, window_of

QUERIES, JOINED = (
    yaml.safe_load(Path(__file__).with_name(f"{one}.yaml").read_text()) for one in ("queries", "joined_queries")
)
ENGINES = ("combine", "bypass", "staged")


def clicks(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    pages = np.minimum(draw.zipf(1.3, rows), 60)

    def some(values: Sequence[Any], missing: float) -> pa.Array:
        return pa.array([None if lost else one for one, lost in zip(values, draw.random(rows) < missing, strict=True)])

    return pa.table({
        "page": some([f"p{page}" for page in pages], 0.05),
        "site": some(draw.choice(["a", "b", "c"], rows).tolist(), 0.1),
        "visitor": pa.array(draw.permutation(rows)),
        "ms": some(draw.integers(0, 1000, rows).tolist(), 0.2),
        "tags": some(draw.choice(["x y", "y", "", "x x z"], rows).tolist(), 0.1),
        "price": some((draw.integers(0, 10_000, rows) / 100).tolist(), 0.1),
        "at": pa.array(draw.integers(0, 5, rows) * 3_600_000_000).cast(pa.timestamp("us", "UTC")),
    })  # fmt: skip


def pages(numbers: Sequence[int]) -> pa.Table:
    listed = [*numbers, *numbers[:3]]
    return pa.table(
        {
            "page": [f"p{one}" for one in listed],
            "category": [None if one % 9 == 0 else f"c{one % 4}" for one in listed],
            "weight": [one % 5 for one in listed],
        }
    )


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("queries")
    (folder / "clicks").mkdir()
    table = clicks(3_000, 1)
    for number in range(6):
        pq.write_table(table.slice(number * 500, 500), folder / "clicks" / f"part-{number}.parquet")
    (folder / "pages").mkdir()
    pq.write_table(pages(range(1, 40)), folder / "pages" / "pages.parquet")
    for name in ("clicks", "pages"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    return folder


def spec_of_query(query: str, output: Path, paths: dict[str, Any], **fields: Any) -> JobSpec:
    used = {name: table for name, table in paths.items() if f" {name}" in query}
    raw = {"name": "asked", "query": query, "tables": used, "output": {"path": str(output), "files": 2}, **fields}
    raw["routing"] = {"slots": 4, "reducers": 4, "first_plan": ["last_run"]}
    return parse_spec(yaml.safe_dump(raw, sort_keys=False))


def rounded(rows: DataFrame | pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, floats to 9 digits: sums of them are rounded at each step."""
    found = rows.to_pylist() if isinstance(rows, pa.Table) else [row.asDict() for row in rows.collect()]

    def text(value: Any) -> str:
        if isinstance(value, dt.datetime):
            return str(value.timestamp() if value.tzinfo else value.replace(tzinfo=dt.UTC).timestamp())
        return f"{value:.9g}" if isinstance(value, float) else repr(bytes(value) if type(value) is bytearray else value)

    return sorted(tuple(map(text, row.values())) for row in found)


@pytest.mark.parametrize(("number", "query"), list(enumerate(QUERIES)), ids=lambda one: str(one)[:60])
def test_the_result_of_a_query_is_what_spark_makes_of_it(
    spark: SparkSession, lake: Path, tmp_path: Path, number: int, query: str
) -> None:
    paths = {name: {"path": str(lake / name)} for name in ("clicks", "pages")}
    spec = spec_of_query(query, tmp_path / "published", paths, engine=ENGINES[number % 3])
    run, done, _ = run_job(spark, spec, tmp_path / "run")
    asked = spark.sql(query)
    assert done.quality.success
    assert rounded(result_of(run)) == rounded(asked)
    published = spark.read.parquet(f"{tmp_path}/published/date={DATE}")
    assert published.dtypes == asked.dtypes


def test_large_files_are_scanned_whole_and_joined_in_more_tasks_than_states_need(
    spark: SparkSession, tmp_path: Path
) -> None:
    drawn = pa.table({"page": [f"p{n}" for n in range(40_000)], "weight": np.random.default_rng(1).random(40_000)})
    paths = {name: {"path": f"{tmp_path}/{name}.parquet"} for name in ("visits", "others")}
    for name, table in paths.items():
        drawn = drawn.append_column(f"note{name}", drawn["page"])
        pq.write_table(drawn, table["path"], row_group_size=5_000)
        spark.read.parquet(table["path"]).createOrReplaceTempView(name)
    query = (
        "SELECT CAST(v.weight * 10 AS INT) AS tenth, count(*) AS n, max(o.page) AS last FROM visits v "
        "JOIN others o ON v.page = o.page WHERE o.weight < 0.7 GROUP BY 1"
    )
    names = ("adaptive.advisoryPartitionSizeInBytes", "adaptive.coalescePartitions.minPartitionSize")
    small = dict.fromkeys((f"spark.sql.{name}" for name in names), "1") | {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    with session_settings(spark, small):
        spec = spec_of_query(query, tmp_path / "published", paths, engine="combine")
        run, _, (report,) = run_job(spark, spec, tmp_path / "run")
    assert rounded(result_of(run)) == rounded(spark.sql(query))
    job, every = run.job(), range(len(run.job().units))
    assert len(every) > 1
    assert len(scanned_bytes(spark, job, every, located=False)) == len(job.lookups[0].units) == 1
    assert not scanned_bytes(spark, job, every, located=True) + scanned_bytes(spark, job, every[1:], located=False)
    assert report.work is not None
    assert report.work.tasks > 20
    read = spark.read.parquet(paths["others"]["path"]).select("page", "weight")
    ours, theirs = (query_in_jvm(one).optimizedPlan().stats() for one in (lookups_of(spark, job)["others"], read))
    assert str(ours.sizeInBytes()) == str(theirs.sizeInBytes()), "so both are broadcast, or none"
    stage = Stage(spark, run, JobColumns.of(job), run.plan(0))
    rows = unrouted_queue(stage).withColumn("c0", F.lit(None).cast("int"))  # of no key, so any task may have them
    first, again = (_placed(rows.orderBy(F.rand(seed)), stage).select("c1", TASK).collect() for seed in (1, 2))
    assert sorted(first) == sorted(again), "a join that is read again has another order"
    assert len({task for _, task in first}) > 1


@pytest.mark.parametrize(("select", "keys"), [("sum(ms) AS ms", 1), ("lower(page) AS page, count(*) AS n", 61)])
def test_keys_that_a_query_makes_are_sampled_by_spark_where_there_are_several_and_a_stage_would_have_to_find_out(
    spark: SparkSession, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str, keys: int
) -> None:
    monkeypatch.setattr(engine_choice, "FIRST_STAGE_SECONDS", 0.0)
    query = f"SELECT {select} FROM clicks WHERE ms > 5 {'GROUP BY 1' if keys > 1 else ''}"
    seen, spec = JobsSeen(spark), spec_of_query(query, tmp_path / "published", {"clicks": {"path": f"{lake}/clicks"}})
    choice = prepared(tmp_path, spec).decision(0).engine
    assert choice is not None
    assert (choice.engine, bool(seen.jobs())) == ("combine", keys > 1)
    assert 0.5 * keys < choice.keys < 2 * keys


@pytest.mark.parametrize("number", range(len(JOINED)))
def test_states_that_are_joined_give_what_spark_makes_of_joined_rows(
    spark: SparkSession, lake: Path, tmp_path: Path, number: int
) -> None:
    query, paths = JOINED[number], {name: {"path": str(lake / name)} for name in ("clicks", "pages")}
    spec = spec_of_query(query, tmp_path / "published", paths, engine=ENGINES[number % 3], state="join")
    assert "pages" not in ((spec.map and spec.map.sql) or "")
    run, done, _ = run_job(spark, spec, tmp_path / "run")
    assert done.quality.success, done.quality
    asked = spark.sql(query)
    assert rounded(result_of(run)) == rounded(asked)
    if number == 0:
        fresh = OtherSide(results_of_all_rows(spark, run.job()), {}, fresh=True)
        assert not compare(spark, run, fresh, 1e-9, 3).found
        assert not compare(spark, run, OtherSide(asked, dict(asked.dtypes)), 1e-9, 3).found


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[2], QUERIES[8]], ids=["joined", "one row", "above"])
def test_the_result_of_a_query_is_compared_by_its_published_columns(
    spark: SparkSession, lake: Path, tmp_path: Path, query: str
) -> None:
    paths = {name: {"path": str(lake / name)} for name in ("clicks", "pages")}
    run, _, _ = run_job(spark, spec_of_query(query, tmp_path / "published", paths), tmp_path / "run")
    fresh = OtherSide(results_of_all_rows(spark, run.job()), {}, fresh=True)
    assert not compare(spark, run, fresh, 1e-9, 3).found
    theirs = spark.sql(query)
    same = compare(spark, run, OtherSide(theirs, dict(theirs.dtypes)), 1e-9, 3)
    assert not same.found
    assert (same.lacking, same.types, len(same.columns)) == ((), {}, len(run.job().spec.values))
    last = theirs.columns[-1]
    other = theirs.withColumn(last, F.lit(None).cast(theirs.schema[last].dataType))
    wrong = compare(spark, run, OtherSide(other, dict(other.dtypes)), 1e-9, 3)
    assert wrong.columns[last] == wrong.differ > 0
    assert last in wrong.examples[0].columns


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT site, sum(rand()) AS s FROM clicks GROUP BY site", "[Nn]on-?deterministic"),
        ("SELECT sit, count(*) AS n FROM clicks GROUP BY sit", "columns of the tables, but got 'sit'; did .* 'site'"),
        ("SELECT upper(s) AS s, count(*) AS n FROM (SELECT site AS s FROM clicks) GROUP BY s", "'s', a column of FROM"),
        ("SELECT site, sum(page) AS s FROM clicks GROUP BY site", "a number for sum"),
        ("SELECT site, count(*) AS n, current_date() AS d FROM clicks GROUP BY site", "got current_date()"),
        (
            "SELECT p._metadata.file_name AS f, count(*) AS n FROM clicks c JOIN pages p ON c.page = p.page GROUP BY 1",
            "columns of the tables, but got 'p._metadata.file_name'",
        ),
        (
            "SELECT listagg(DISTINCT page) WITHIN GROUP (ORDER BY page) AS l, count(DISTINCT ms) AS n FROM clicks",
            "a query that Spark can plan, but got .*ClassCastException",
        ),
        (
            "SELECT site, count(*) AS n FROM clicks WHERE page IN (SELECT page FROM pages LIMIT 3) GROUP BY site",
            "the same rows whenever it is asked, but got a LIMIT",
        ),
    ],
)  # fmt: skip
def test_a_query_that_spark_cannot_or_may_not_run_is_refused_before_it_starts(
    lake: Path, tmp_path: Path, spark: SparkSession, query: str, said: str
) -> None:
    assert spark
    paths = {name: {"path": str(lake / name)} for name in ("clicks", "pages")}
    with pytest.raises((SpecError, InputError), match=said):
        prepared(tmp_path, spec_of_query(query, tmp_path / "published", paths))


def test_a_query_may_name_the_files_of_its_input(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    query = (
        "SELECT c._metadata.file_name AS f, sum(c._metadata.row_index) AS rows, max(p.weight) AS weight FROM clicks c "
        "LEFT JOIN pages p ON c.page = p.page WHERE c._metadata.file_path NOT LIKE '%part-3%' GROUP BY 1"
    )
    paths = {name: {"path": str(lake / name)} for name in ("clicks", "pages")}
    run, _, _ = run_job(spark, spec_of_query(query, tmp_path / "published", paths), tmp_path / "run")
    spark.read.parquet(f"{lake}/clicks").select("*", "_metadata").createOrReplaceTempView("with_files")
    assert rounded(result_of(run)) == rounded(spark.sql(query.replace("FROM clicks", "FROM with_files")))


def test_with_a_window_a_changed_lookup_makes_all_parts_anew_or_none_as_the_spec_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = (
        "SELECT p.category, count(*) AS n, sum(c.ms) AS ms FROM clicks c JOIN pages p ON c.page = p.page GROUP BY ALL"
    )
    days = [DATE - dt.timedelta(days=back) for back in (2, 1, 0)]
    for seed, day in enumerate(days):
        (folder := tmp_path / "clicks" / str(day)).mkdir(parents=True)
        pq.write_table(clicks(300, seed), folder / "part-0.parquet")
    (tmp_path / "pages").mkdir()

    above = (
        "SELECT r.page, p.category, r.n FROM (SELECT page, count(*) AS n FROM clicks GROUP BY page) r "
        "JOIN pages p ON r.page = p.page"
    )

    def night(day: dt.date, numbers: Sequence[int], asked: str = query, **of_pages: Any) -> Any:
        pq.write_table(pages(numbers), tmp_path / "pages" / "pages.parquet")
        paths = {"clicks": {"path": f"{tmp_path}/clicks/{{date}}"}, "pages": {"path": f"{tmp_path}/pages", **of_pages}}
        name = "above" if asked == above else of_pages.get("as_of", "run")
        spec = spec_of_query(asked, tmp_path / name, paths, window=2, engine="combine", state="merge")
        run = prepared(tmp_path, spec, f"runs/{name}-{day}", date=day)
        run_pipeline(spark, run, Quiet())
        assert finished(run).quality.success
        return run

    for day, numbers in zip(days[1:], (range(1, 40), range(5, 50)), strict=True):
        run = night(day, numbers)
        assert len(window_of(run).reduced) == 2
    frames = [spark.read.parquet(f"{tmp_path}/clicks/{day}") for day in days[1:]]
    frames[0].unionByName(frames[1]).createOrReplaceTempView("clicks")
    spark.read.parquet(f"{tmp_path}/pages").createOrReplaceTempView("pages")
    assert rounded(result_of(run)) == rounded(spark.sql(query))

    first = night(days[1], range(1, 40), as_of="night")
    second = night(days[2], range(5, 50), as_of="night")
    assert (len(window_of(first).reduced), len(window_of(second).reduced)) == (2, 1)

    first, second = night(days[1], range(1, 40), above), night(days[2], range(5, 50), above)
    assert (len(window_of(first).reduced), len(window_of(second).reduced)) == (2, 1), "results are joined, not rows"
    assert rounded(result_of(second)) == rounded(spark.sql(above))


def test_a_lookup_is_found_in_a_map_however_its_name_is_written(spark: SparkSession, tmp_path: Path) -> None:
    assert spark
    raw = {
        "name": "asked", "window": 2, "state": "merge", "output": {"path": str(tmp_path / "out")},
        "tables": {name: {"path": f"{tmp_path}/{path}"} for name, path in (("c", "clicks/{date}"), ("pages", "pages"))},
        "query": "SELECT c.page, count(*) AS n FROM c JOIN Pages AS p ON c.page = p.page GROUP BY c.page",
    }  # fmt: skip
    (folder := tmp_path / "clicks" / str(DATE)).mkdir(parents=True)
    pq.write_table(clicks(30, 1), folder / "part-0.parquet")
    (tmp_path / "pages").mkdir()
    seen = set()
    for number, listed in enumerate((range(1, 40), range(5, 50))):
        pq.write_table(pages(listed), tmp_path / "pages" / "pages.parquet")
        seen.add(window_of(prepared(tmp_path, parse_spec(yaml.safe_dump(raw)), f"runs/{number}")).fingerprint)
    assert len(seen) == 2, "states of other rows of a lookup are other states"


def test_a_check_prints_a_query_as_it_was_understood(
    spark: SparkSession, lake: Path, tmp_path: Path, command_here: Callable[..., Told]
) -> None:
    assert spark
    query = (
        "SELECT c.site, sum(c.ms) / count(c.ms) AS mean, median(c.price) AS mid, histogram_numeric(c.ms, 3) AS h "
        "FROM clicks c LEFT JOIN pages p ON c.page = p.page WHERE p.weight > 1 GROUP BY c.site HAVING count(*) > 10 "
        "ORDER BY mean DESC"
    )
    paths = {name: {"path": str(lake / name)} for name in ("clicks", "pages")}
    written = {"name": "asked", "query": query, "tables": paths, "output": {"path": str(tmp_path / "published")}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(written))
    told = command_here("check", str(tmp_path / "spec.yaml"))
    assert told.returncode == 0, told.stderr
    said = " ".join(told.stdout.split())
    for part in (
        f"input clicks: {lake}/clicks lookup",
        f"lookup pages: {lake}/pages, 42 rows in 1 file",
        "rows SELECT c.site AS site, c.price AS price, c.ms AS ms FROM input AS c LEFT JOIN pages AS p",
        "key site",
        "state sum_ms: sum(ms)",
        "state mid: percentile(price, percentage=0.5)",
        "state h: histogram_numeric(ms, 3); it cannot be split: a hot key stays in one task",
        "hot key stays in one task result site, sum_ms / count_ms AS mean, mid, h",
        "where count > 10",
        "order mean desc",
    ):
        assert part in said, said


@pytest.mark.parametrize(("query", "rows"), [(JOINED[-1], 300), (JOINED[1], 300), (JOINED[1], 0)])
def test_windows_are_joined_to_a_changed_lookup(spark: SparkSession, tmp_path: Path, query: str, rows: int) -> None:
    (tmp_path / "pages").mkdir()
    for back, numbers in ((1, range(1, 40)), (0, range(5, 50))):
        day = DATE - dt.timedelta(days=back)
        (folder := tmp_path / "clicks" / str(day)).mkdir(parents=True)
        pq.write_table(clicks(300, back).slice(0, 300 if back else rows), folder / "part-0.parquet")
        pq.write_table(pages(numbers), tmp_path / "pages" / "pages.parquet")
        paths = {"clicks": {"path": f"{tmp_path}/clicks/{{date}}"}, "pages": {"path": f"{tmp_path}/pages"}}
        spec = spec_of_query(query, tmp_path / "out", paths, window=[1, 2], engine="staged")
        run = prepared(tmp_path, spec, f"runs/{day}", date=day)
        run_pipeline(spark, run, Quiet())
        assert finished(run).quality.success
    assert len(window_of(run).reduced) == 1
    spark.read.parquet(f"{tmp_path}/pages").createOrReplaceTempView("pages")
    for length in (1, 2):
        days = [str(tmp_path / "clicks" / str(DATE - dt.timedelta(days=back))) for back in range(length)]
        spark.read.parquet(*days).createOrReplaceTempView("clicks")
        ours = [row for row in result_of(run).to_pylist() if row.pop("window") == length]
        assert rounded(pa.Table.from_pylist(ours)) == rounded(spark.sql(query))


def test_a_check_says_whether_states_are_joined_and_why_not(
    spark: SparkSession, lake: Path, tmp_path: Path, command_here: Callable[..., Told]
) -> None:
    joined = "SELECT p.category, c.site, count(*) AS n FROM clicks c JOIN pages p ON c.page = p.page GROUP BY ALL"
    paths = {name: {"path": str(lake / name)} for name in ("clicks", "pages")}

    def said(query: str, **fields: Any) -> str:
        raw = {"name": "asked", "query": query, "tables": paths, "output": {"path": str(tmp_path / "out")}, **fields}
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(raw))
        told = command_here("check", str(tmp_path / "spec.yaml"))
        return " ".join((told.stdout + told.stderr).split())

    assert "join rows, before they are aggregated, as that costs less" in said(joined)
    of_states = said(joined, state="join")
    assert "join states by site, page, when they are merged" in of_states
    assert "hot key is split over tasks, for 8 bytes of states in each" in of_states
    assert "join rows, before they are aggregated: state: merge" in said(joined, state="merge")
    of_lookup = joined.replace("count(*)", "sum(p.weight)")
    why = "expected a lookup that no aggregate reads, joined by what is equal, but got p"
    assert f"join rows, before they are aggregated: {why}" in said(of_lookup)
    assert f"rows have to be joined ({why})" in said(of_lookup, state="join")
    session = SparkSession.getActiveSession() or spark  # that check has left
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "100")
    try:
        by_page, by_visitor = joined.replace("c.site, ", ""), joined.replace("c.site,", "c.visitor DIV 100 AS v,")
        run = prepared(tmp_path, spec_of_query(by_page, tmp_path / "out", paths), "runs/large")
        assert run.job().spec.joined, "a lookup that Spark would have to shuffle in each stage"
        many = prepared(tmp_path, spec_of_query(by_visitor, tmp_path / "out", paths), "runs/many")
        assert many.job().spec.joined is None, "there would be a state for some four rows"
        again = prepared(tmp_path, spec_of_query(by_page, tmp_path / "out", paths), "runs/large")
        assert again.job() == run.job()
    finally:
        session.conf.unset("spark.sql.autoBroadcastJoinThreshold")
