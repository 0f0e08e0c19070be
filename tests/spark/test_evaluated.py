"""Results that a stage evaluated: the same rows and the same kind of files as if the merge had evaluated them."""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.result.merge import merge_states
from skewless_spark.sources.worker_files import SCHEMA_NOTE
from skewless_spark.states import committed_files
from skewless_spark.states.committed_files import EVALUATED
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import as_rows, reduce_job, result_of, run_job, session_settings, spec_of, write_input
from tests.tiers import mostly_long

NATIVE = {"n": "count", "users": {"function": "approx_count_distinct", "column": "user"}}
PYTHON = {"seen": {"function": "value_counts", "column": "word"}}
#: The rows of a key are counted anyway: for their number alone the input is not read once more.
COUNTED = {"n": "count", **PYTHON}
MEDIAN = {"median": {"function": "exact_median", "column": "user"}}


def merged_again(spark: SparkSession, run: RunDirectory) -> pa.Table:
    (Path(run.root) / "result" / "COMMIT.json").unlink()
    merge_states(spark, run)
    return result_of(run)


@pytest.fixture(scope="module")
def hot_and_null() -> pa.Table:
    rng = np.random.default_rng(5)
    light = [f"k{number}" for number in rng.integers(0, 900, 8_000).tolist()]
    keys = rng.permutation(np.array(["hot"] * 9_000 + [None] * 3_000 + light, dtype=object)).tolist()
    users = rng.integers(0, 1000, len(keys))
    return pa.table({"key": keys, "user": users, "word": [f"w{user % 7}" for user in users]})


@pytest.mark.parametrize("engine", mostly_long(["bypass", "staged"], "staged"))
@pytest.mark.parametrize("aggregates", mostly_long([NATIVE, COUNTED], NATIVE), ids=["native", "python"])
def test_keys_in_several_tasks_are_merged_and_added_to_what_the_stage_evaluated(
    spark: SparkSession, hot_and_null: pa.Table, tmp_path: Path, engine: str, aggregates: dict[str, Any]
) -> None:
    path = write_input(tmp_path / "input", hot_and_null)
    output = {"path": str(tmp_path / "published"), "files": 1}
    routing = {"reducers": 4, "first_plan": ["last_run", "sample"], "waves": [20]}
    spec = spec_of(path, "key", aggregates, engine=engine, routing=routing, output=output)
    run, finished, (report,) = run_job(spark, spec, tmp_path / "run")
    assert finished.quality.success
    assert len(run.plan(0).head["hot"]) > 1
    assert {file.kind for file in run.committed(stage_step(0)).files if file.rows} == {EVALUATED}
    counts = Counter(hot_and_null["key"].to_pylist())
    assert report.histogram.head["hot"] == (counts["hot"], 0)
    assert (report.histogram.seen_null_rows, report.histogram.keys) == (counts[None], len(counts) - 1)
    (published,) = (tmp_path / "published").rglob("*.parquet")
    found = pq.read_table(published)
    assert found.column_names == ["key", *aggregates]
    words = Counter(zip(*(hot_and_null[name].to_pylist() for name in ("key", "word")), strict=True))
    for row in found.to_pylist():
        assert row.get("n", counts[row["key"]]) == counts[row["key"]]
        assert all(words[row["key"], one["value"]] == one["count"] for one in row.get("seen") or ())
    assert len(found) == len(counts)
    hashed = report.rows_hash
    assert run.committed("result").counts == {"rows": len(hot_and_null), "keys": len(counts), "hash": hashed}


@pytest.mark.long
def test_a_file_that_no_task_has_reported_is_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was killed after it had written, or a copy of a task that was not needed any more."""
    monkeypatch.setattr(committed_files, "spark_reads", lambda *_: False)  # so workers write
    attempt = RunDirectory(str(tmp_path)).new_attempt(stage_step(0))
    committed_files.write_files(spark.range(0, 10, 1, 2).toDF("n"), attempt, "kind=native")
    (first, *_) = folder = sorted(Path(attempt.path("kind=native")).iterdir())
    (first.parent / "part-00000-of-a-task-that-was-killed.parquet").write_bytes(first.read_bytes())
    found = committed_files.written(attempt, "native", "kind=native")
    assert sorted(Path(attempt.run.path(file.path)) for file in found) == folder


@pytest.mark.parametrize(
    "aggregates", mostly_long([NATIVE, COUNTED, MEDIAN], COUNTED), ids=["native", "python", "not mergeable"]
)
def test_keys_that_stay_whole_are_all_evaluated_in_an_only_stage_null_among_them(
    spark: SparkSession, hot_and_null: pa.Table, tmp_path: Path, aggregates: dict[str, Any]
) -> None:
    path = write_input(tmp_path / "input", hot_and_null)
    routing = {"reducers": 4, "waves": [20]}
    spec = spec_of(path, "key", aggregates, engine="staged", routing=routing, state="forward")
    run, (report,) = reduce_job(spark, spec, tmp_path / "run")
    files = run.committed(stage_step(0)).of_kind(EVALUATED)
    assert {file.kind for file in run.committed(stage_step(0)).files if file.rows} == {EVALUATED}
    assert all(pq.read_table(run.path(file.path))["whole"].to_pylist() == [True] * file.rows for file in files)
    counts = Counter(hot_and_null["key"].to_pylist())
    assert report.histogram.head["hot"] == (counts["hot"], 0)
    users: dict[str | None, list[int]] = {key: [] for key in counts}
    for row in hot_and_null.to_pylist():
        users[row["key"]].append(row["user"])
    found = result_of(run).to_pylist()
    assert {row["key"] for row in found} == set(counts)
    assert len(found) == len(counts)
    for row in found:
        assert row.get("n", counts[row["key"]]) == counts[row["key"]]
        assert sum(one["count"] for one in row.get("seen") or [{"count": counts[row["key"]]}]) == counts[row["key"]]
        assert row.get("median", np.median(users[row["key"]])) == np.median(users[row["key"]])


@pytest.mark.long
def test_python_states_of_splits_are_merged_in_the_query_of_their_stage_to_the_bits_of_the_merge(
    spark: SparkSession, hot_and_null: pa.Table, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(size=len(hot_and_null)) * 10.0 ** rng.integers(0, 9, len(hot_and_null))
    path = write_input(tmp_path / "input", hot_and_null.append_column("value", pa.array(values)), files=20)
    # Which bins of a histogram become one depends on the order in which states are merged.
    aggregates = {"spread": {"function": "streaming_histogram", "column": "value", "bins": 4}}
    found: dict[str, Any] = {}
    # Native aggregates beside keep the states for the merge.
    for name, further in (("evaluated", {}), ("merged", {"n": {"function": "count", "column": "user"}})):
        spec = spec_of(path, "key", {**aggregates, **further}, engine="combine", routing={"reducers": 3})
        run, (report,) = reduce_job(spark, spec, tmp_path / name)
        files = run.committed(stage_step(0)).files
        assert (EVALUATED in {file.kind for file in files}) == (name == "evaluated")
        assert len(report.splits) > 1
        found[name] = (as_rows(result_of(run).select(["key", "spread"])), report.histogram)
        loads = [(split.rows, split.states) for split in report.splits]
        assert found.setdefault("loads", loads) == loads
        assert all(split.busy_seconds for split in report.splits)
    assert found["evaluated"] == found["merged"]


@pytest.mark.long
def test_a_copy_is_written_as_spark_writes_the_result(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 600
    table = pa.table(
        {
            "name": [None if number % 50 == 0 else f"k{number % 90}" for number in range(rows)],
            "day": [dt.date(2026, 1, 1 + number % 3) for number in range(rows)],
            "price": pa.array([Decimal(number % 40) / 4 for number in range(rows)], pa.decimal128(8, 2)),
            "value": pa.array(range(rows), pa.int32()),
            "flag": [number % 2 == 0 for number in range(rows)],
            "real": [number / 7 for number in range(rows)],
        }
    )
    path = write_input(tmp_path / "input", table, files=4)
    aggregates = {
        "n": "count",
        "total": {"function": "sum", "column": "price"},
        "wide": {"function": "sum", "column": "value"},
        "mean": {"function": "avg", "column": "real"},
        "last_day": {"function": "max", "column": "day"},
        "any_flag": {"function": "first", "column": "flag"},
        "least": {"function": "min", "column": "price"},
    }
    spec = spec_of(path, ["name", "day"], aggregates, engine="staged", routing={"waves": [4], "reducers": 3})
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    files = run.committed(stage_step(0)).of_kind(EVALUATED)
    assert committed_files.AsSpark.of(run, files, JobColumns.of(run.job()).own_names)
    copied, (copy, *_) = result_of(run), run.committed("result").files
    monkeypatch.setattr(committed_files, "COPIED_BYTES", -1)
    assert as_rows(merged_again(spark, run)) == as_rows(copied)
    by_spark, by_arrow = (pq.ParquetFile(run.path(one.path)) for one in (run.committed("result").files[0], copy))
    # Their first line names the writer's root.
    assert str(by_arrow.schema).splitlines()[2:] == str(by_spark.schema).splitlines()[2:]
    notes = [json.loads(one.metadata.metadata[SCHEMA_NOTE]) for one in (by_arrow, by_spark)]
    assert notes[0] == notes[1]
    chunks = [one.metadata.row_group(0).column(0) for one in (by_spark, by_arrow)]
    assert chunks[0].compression == chunks[1].compression


@pytest.mark.long
def test_results_that_arrow_would_write_otherwise_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    moments = [dt.datetime(2026, 1, 1, hour=number % 24, tzinfo=dt.UTC) for number in range(100)]
    table = pa.table({"key": [f"k{number % 10}" for number in range(100)], "at": moments})
    path = write_input(tmp_path / "input", table, files=2)
    aggregates = {"latest": {"function": "max", "column": "at"}}
    with session_settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        run, _ = reduce_job(spark, spec_of(path, "key", aggregates, engine="combine"), tmp_path / "run")
    files = run.committed(stage_step(0)).of_kind(EVALUATED)
    assert files
    assert committed_files.AsSpark.of(run, files, JobColumns.of(run.job()).own_names) is None
    kinds = {pq.read_schema(run.path(file.path)).field("latest").type for file in run.committed("result").files}
    assert kinds == {pa.timestamp("ns")}, "as Spark writes every timestamp"
    latest = {f"k{key}": max(moments[key::10]).replace(tzinfo=None) for key in range(10)}
    assert {row["key"]: row["latest"] for row in result_of(run).to_pylist()} == latest


def test_a_damaged_result_of_a_stage_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": [f"key {number}" for number in range(3_000)]})
    path = write_input(tmp_path / "input", table, files=2)
    run, _ = reduce_job(spark, spec_of(path, "key", {"n": "count"}, engine="combine"), tmp_path / "run")
    (file, *_) = run.committed(stage_step(0)).of_kind(EVALUATED)
    target = Path(run.path(file.path))
    content = bytearray(target.read_bytes())
    content[pq.read_metadata(target).row_group(0).column(0).data_page_offset + 100] ^= 1
    target.write_bytes(content)
    with pytest.raises(RunDirectoryError, match="others, by its checksum; restore it from a copy"):
        merged_again(spark, run)
