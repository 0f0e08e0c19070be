"""Nights that build on nights: what they keep, and what they say of it.

That a result is that of all rows of its window, whatever was reused, is in ``tests/fuzz/nights.py``.
"""

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from rich.console import Console

from skewless.documents.window import WindowPart
from skewless.errors import InputError, RunDirectoryError, SpecError
from skewless.planner import engine_choice
from skewless.routing.plan import WHOLE_WEIGHT
from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless.standing.states_store import StatesStore
from skewless.standing.tree import plan_of
from skewless_cli import run_view, views
from skewless_spark.branches.native import Native
from skewless_spark.engines import combine
from skewless_spark.entries.pipeline import run_pipeline, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from skewless_spark.session.step_measures import JobsSeen
from skewless_spark.sources.worker_files import SCHEMA_NOTE
from skewless_spark.states.committed_files import OF_PART
from skewless_spark.states.job_columns import JobColumns
from skewless_spark.windows import kept_states
from tests.spark.scenario import as_rows, result_of, shown, spec_of, turn_bit_of_largest_page, window_of
from tests.tiers import mostly_long

DAY = dt.date(2026, 11, 20)
AGGREGATES: dict[str, Any] = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "mean": {"function": "avg", "column": "value"},
    "least": {"function": "min", "column": "value"},
    "newest": {"function": "max_by", "column": "word", "by": "value"},
    "earliest": {"function": "first", "column": "word"},
    "latest_word": {"function": "last", "column": "word"},
    "words": {"function": "count_distinct", "column": "word"},
    "some": {"function": "approx_count_distinct", "column": "value"},
    "listed": {"function": "collect_list", "column": "value"},
    "counted": {"function": "value_counts", "column": "word"},
}


class Lake:
    """Days of small files, and runs over them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self._seed, self._runs = spark, folder, 0, 0

    def put(self, day: int, name: str, rows: int = 300) -> None:
        """Write a file of a day, or write it anew."""
        self._seed += 1
        drawn = np.random.default_rng(self._seed)
        keys = [None if one == 7 else f"key{one}" for one in np.minimum(drawn.zipf(1.4, rows), 40)]
        table = pa.table(
            {
                "key": keys,
                "value": drawn.integers(0, 1000, rows),
                "word": [f"w{one}" for one in drawn.integers(0, 9, rows)],
                "share": drawn.random(rows),
            }
        )
        path = self.path(day, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)

    def path(self, day: int, name: str) -> Path:
        return self.folder / "lake" / f"date={DAY + dt.timedelta(days=day)}" / f"{name}.parquet"

    def keys(self, day: int, name: str) -> set[str | None]:
        return set(pq.read_table(self.path(day, name), columns=["key"])["key"].to_pylist())

    def spec(self, **fields: Any) -> JobSpec:
        given = {"window": 3, "engine": "auto", "routing": {"reducers": 3, "waves": [1, 3]}, **fields}
        given["output"] = {"path": str(self.folder / "published"), "files": 2}
        aggregates = given.pop("aggregates", AGGREGATES)
        return spec_of(self.folder / "lake" / "date={date}", "key", aggregates, **given)

    def night(self, day: int, spec: JobSpec | None = None, *, publish: bool = False) -> RunDirectory:
        run = self.prepared(day, spec or self.spec())
        if publish:
            run_pipeline(self.spark, run)
        else:
            run_stages(self.spark, run)
            merge_states(self.spark, run)
        return run

    def prepared(self, day: int, spec: JobSpec) -> RunDirectory:
        self._runs += 1
        run = RunDirectory(str(self.folder / "runs" / f"{self._runs:03d}"))
        prepare(run, spec, DAY + dt.timedelta(days=day), str(self.folder))
        return run

    def whole(self, days: range, aggregates: dict[str, Any] | None = None, **fields: Any) -> list[tuple[Any, ...]]:
        folder = self.folder / f"whole{self._runs}"
        for day in days:
            source = self.path(day, "x").parent
            if source.exists():
                shutil.copytree(source, folder / "in" / source.name)
        spec = spec_of(folder / "in", "key", aggregates or AGGREGATES, engine="combine", **fields)
        run = self.prepared(days[-1], spec)
        run_stages(self.spark, run)
        merge_states(self.spark, run)
        return as_rows(result_of(run))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def reduced(run: RunDirectory) -> int:
    return sum(report.processed_rows for report in run.reports())


#: Without those whose states are of Python: what a stage has made one for each key is copied.
NATIVE = {name: call for name, call in AGGREGATES.items() if name not in {"listed", "counted"}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "aggregates"), [("combine", AGGREGATES), ("staged", AGGREGATES), ("combine", NATIVE)]
)
def test_the_states_of_a_part_lie_in_the_order_of_their_keys(
    lake: Lake, engine: str, aggregates: dict[str, Any]
) -> None:
    """So that the least and the greatest key of a row group tell whether a key is in it."""
    for day in range(2):
        lake.put(day, "b")
    window = window_of(lake.night(1, lake.spec(engine=engine, aggregates=aggregates)))
    store, read = StatesStore(window.store), 0
    for part in window.parts:
        known, _ = store.newest(part.name)
        assert known is not None
        for file in known.version.states:
            table = pq.read_table(store.path(file.path), partitioning=None)
            keys = table["c0"].to_pylist()
            assert keys == sorted(keys, key=lambda key: (key is not None, key or ""))
            read += len(keys)
    assert read > 40


@pytest.mark.parametrize("engine", mostly_long(["combine", "staged", "bypass"], "combine"))
def test_states_that_are_copied_are_those_that_spark_would_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    calls = {name: NATIVE[name] for name in ("n", "total", "mean", "least", "newest", "some")}
    fields = {"engine": engine, "aggregates": calls, "routing": {"reducers": 3, "waves": [1], "policy": "static"}}
    if engine != "combine":  # rows without a key are everybody's
        fields["map"] = {"select": ["key", "value", "word"], "where": "key IS NOT NULL"}
    lake = Lake(spark, tmp_path)
    lake.put(0, "a")
    lake.put(1, "a")
    run = lake.prepared(1, lake.spec(**fields))
    run_stages(spark, run)
    found, jobs_run = [], []
    for folder in (OF_PART, "none"):
        monkeypatch.setattr(kept_states, "OF_PART", folder)
        jobs = JobsSeen(spark)
        Path(run.path("result/COMMIT.json")).unlink(missing_ok=True)
        merge_states(spark, run)
        jobs_run.append(len(jobs.jobs()))
        found.append({part.name: _kept(run, part) for part in window_of(run).parts})
    assert found[0] == found[1]
    assert jobs_run[0] < jobs_run[1], "copying takes no job"


def _kept(run: RunDirectory, part: WindowPart) -> Any:
    """The newest states of a part: the values of each column, and its type."""
    store, columns = StatesStore(window_of(run).store), JobColumns.of(run.job())
    newest, _ = store.newest(part.name)
    assert newest is not None
    tables = [pq.read_table(store.path(file.path), partitioning=None) for file in newest.version.states]
    rows = pa.concat_tables(tables).sort_by("c0")
    assert rows.num_rows > 20
    assert set(rows["place"].to_pylist()) == {part.place}
    noted = StructType.fromJson(json.loads(tables[0].schema.metadata[SCHEMA_NOTE]))
    # What the stage says of a key beside its state is there only where its files were copied.
    return {
        field.name: (field.dataType.simpleString(), rows[field.name].to_pylist())
        for field in noted
        if field.name in {*columns.keys, "rows", "place", *Native(columns).names}
    }


@pytest.mark.long
def test_a_key_that_one_stage_has_split_has_one_state_in_its_part(lake: Lake) -> None:
    lake.put(0, "b")
    calls = {"n": "count", "total": {"function": "sum", "column": "value"}}
    run = lake.prepared(0, lake.spec(engine="staged", aggregates=calls, routing={"reducers": 4, "waves": [1]}))
    plan, halves = run.plan(0), ((0, WHOLE_WEIGHT // 2), (1, WHOLE_WEIGHT // 2))
    split = plan.model_copy(update={"head": {"key1": halves}, "budget_rows": None})
    Path(run.path("plans/0000.json")).write_text(split.sealed(), encoding="utf-8")
    run_stages(lake.spark, run)
    merge_states(lake.spark, run)
    (report,) = run.reports()
    assert sum(load.states or 0 for load in report.tasks) > len(lake.keys(0, "b")), "the key has two in the stage"
    newest, _ = StatesStore(window_of(run).store).newest(f"{DAY}")
    assert newest is not None
    assert sum(file.rows for file in newest.version.states) == len(lake.keys(0, "b"))


EXACT = {name: AGGREGATES[name] for name in ("n", "total", "mean", "counted")}


def test_a_night_goes_on_from_the_nodes_of_the_nights_before(lake: Lake) -> None:
    spec = lake.spec(aggregates=EXACT, window=4, engine="combine")
    for day in range(4):
        lake.put(day, "b", rows=100)
    store = StatesStore(window_of(lake.night(3, spec)).store)
    before = store.merges()
    lake.put(4, "b", rows=100)
    lake.put(2, "a", rows=30)
    run = lake.night(4, spec)
    result = as_rows(result_of(run))
    assert result == lake.whole(range(1, 5), EXACT)
    assert run_view.ledger_of(run).balanced
    plan = plan_of(run)
    assert plan is not None
    assert set(plan.made) == store.merges() - before
    (window,) = run_view.as_object(run)["window_plan"]
    assert window == {"window": "4", "merged": list(plan.results["4"])}
    assert f"states of parts: {plan.sentence}\n" in shown(run)

    name = next(iter(set(plan.results["4"]) & store.merges()))
    states = Path(store.path(store.merge(name).states[0].path))
    content = bytearray(states.read_bytes())
    content[100] ^= 1
    states.write_bytes(bytes(content))
    Path(run.path("result/COMMIT.json")).unlink()
    merge_states(lake.spark, run)
    assert as_rows(result_of(run)) == result
    assert store.path(store.merge(name).states[0].path) != str(states), "it was made anew"


def test_many_states_of_parts_are_read_and_merged_in_more_tasks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "UNSEEN_SECONDS", 0.0)  # keys are sampled
    monkeypatch.setattr(combine, "KEYS_OF_A_TASK", 10)
    for day in range(9):
        lake.put(day, "b", rows=800)
    run = lake.prepared(8, lake.spec(aggregates={"n": "count"}, window=9, engine="auto", routing={"slots": 1}))
    run_stages(lake.spark, run)
    (report,) = run.reports()
    assert [split.rows for split in report.splits] == [800] * 9
    monkeypatch.setattr(kept_states, "STATES_FILE_BYTES", 1 << 10)  # a node has the two of output.files
    jobs = JobsSeen(lake.spark)
    merge_states(lake.spark, run)
    assert 2 * len(StatesStore(window_of(run).store).merges()) in {one["numTasks"] for one in jobs.stages(jobs.jobs())}


@pytest.mark.parametrize("parts", mostly_long([60, 200], 60))
def test_a_night_has_as_many_jobs_for_a_long_window_as_for_one_of_7_parts(lake: Lake, parts: int) -> None:
    for day in range(parts + 2):
        lake.put(day, "b", rows=20)
    counted: dict[int, list[int]] = {7: [], parts: []}
    for length, of_nights in counted.items():
        spec = lake.spec(aggregates=EXACT, window=length, engine="combine", name=f"job{length}")
        for day, late in ((parts - 1, ()), (parts, ()), (parts + 1, (3, 5))):
            for back in late:
                lake.put(day - back, f"late{length}", rows=10)
            jobs = JobsSeen(lake.spark)
            run = lake.night(day, spec)
            of_nights.append(len(jobs.jobs()))
    assert counted[7] == counted[parts], counted
    assert as_rows(result_of(run)) == lake.whole(range(2, parts + 2), EXACT)


@pytest.mark.long
def test_states_that_are_damaged_are_made_anew_tonight_or_by_the_next_run(lake: Lake) -> None:
    for day in range(3):
        lake.put(day, "b")
    first = lake.night(2)
    window = window_of(first)
    store, right = StatesStore(window.store), as_rows(result_of(first))
    states = [Path(store.path(store.version(part.name, 1).states[0].path)) for part in window.parts]
    states[0].write_bytes(bytes(states[0].stat().st_size))
    second = lake.night(2)
    assert reduced(second) == 300
    assert "version 1 cannot be used" in window_of(second).parts[0].reasons[0]
    assert as_rows(result_of(second)) == right
    # A bit that turned within a page is seen by who reads it: the merge, unless it reads a node over the part.
    for name in store.merges():
        store.forget_merge(name)
    turn_bit_of_largest_page(states[1])
    with pytest.raises(RunDirectoryError) as err:
        lake.night(2)
    assert str(err.value).startswith(f"states of part {window.parts[1].name}: version 1, from which this run goes on, ")
    assert str(err.value).endswith("; begin a new run directory: the rows of the part are read again.")
    third = lake.night(2)
    assert reduced(third) == 300
    assert as_rows(result_of(third)) == right
    # A run directory begins again after it and the states that it had made were lost.
    shutil.rmtree(str(third))
    (made,) = store.version(window.parts[1].name, 2).states
    Path(store.path(made.path)).unlink()
    prepare(third, lake.spec(), DAY + dt.timedelta(days=2), str(lake.folder))
    run_stages(lake.spark, third)
    merge_states(lake.spark, third)
    assert reduced(third) == 300
    assert as_rows(result_of(third)) == right
    assert store.numbers(window.parts[1].name) == [1, 2, 3]


def test_late_and_missing_parts_fail_a_run_if_the_spec_says_so(lake: Lake) -> None:
    lake.put(0, "b")
    lake.put(2, "b")
    counts: dict[str, Any] = {"aggregates": {"n": "count"}, "engine": "combine"}
    assert window_of(lake.night(2, lake.spec(**counts))).missing == ("2026-11-21",)
    with pytest.raises(InputError, match="expected files of each part, but got none of 2026-11-21"):
        lake.prepared(2, lake.spec(**counts, window={"length": 3, "missing": "fail"}))
    lake.put(0, "c")
    with pytest.raises(InputError, match="part 2026-11-20: expected an older part that has not changed"):
        lake.prepared(2, lake.spec(**counts, window={"length": 3, "late": "fail"}))
    with pytest.raises(InputError, match="part 2026-11-23: expected files of the part that the run computes"):
        lake.prepared(3, lake.spec(**counts))


def test_an_aggregate_that_cannot_be_merged_is_refused_with_one_that_could_serve(lake: Lake) -> None:
    lake.put(0, "b")
    with pytest.raises(SpecError, match="approx_percentile could serve"):
        lake.night(0, lake.spec(aggregates={"m": {"function": "exact_median", "column": "value"}}))


@pytest.mark.long
def test_the_command_says_what_was_read_and_what_was_reused(lake: Lake) -> None:
    for day in range(2):
        lake.put(day, "b")
    lake.night(0)
    lake.put(0, "late", rows=50)
    run = lake.night(1)
    told = run_view.as_object(run)
    assert told["rows_read"] == 350
    assert told["parts"] == {"reused": 1, "reread": 0, "added": 2, "replaced": 0, "removed": 0}
    assert told["late_parts"] == {"2026-11-20": 1}
    assert told["ledger"]["balanced"]
    assert told["ledger"]["unchanged_rows"] == 300
    location = views.states_location_of(run.job().spec, "spec", str(lake.folder))
    listed = views.states_as_object(location)["parts"]
    assert [(one["part"], one["version"], one["files"], one["rows"]) for one in listed] == [
        ("2026-11-20", 2, 2, 350), ("2026-11-21", 1, 1, 300)
    ]  # fmt: skip
    console = Console(record=True, width=200)
    views.show_states(location, console)
    text = shown(run) + console.export_text()
    assert "window: 2 parts; files: 1 reused, 0 reread, 2 added, 0 replaced, 0 removed; 350 rows read, 300" in text
    assert "parts: 1 added to, 1 new" in text
    assert "late by 1 part: 2026-11-20, added to, 50 late rows, 50 rows read" in text
    assert "late.parquet was added" in text
    assert "2026-11-21            1   1      1             300" in text
    pruned = list(views.prune_states(location, run.job().spec, dt.datetime.now(tz=dt.UTC), dry_run=True))
    assert "no run under way needs what it names" in pruned[0]
    assert pruned[-1].startswith("dry run: 1 files of ")
