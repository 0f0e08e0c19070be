"""State forwarding: a key lives in one task, and sees its rows in the order of the input, whatever moved."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from skewless.documents.stage_report import StageReport
from skewless.planner.planner import plan_next_stage
from skewless.routing.ring import VirtualTask
from skewless.run.directory import RunDirectory, commit_path, stage_step
from skewless_spark.engines.stage import run_stage
from skewless_spark.session.spark_errors import sentence_for
from skewless_spark.states.committed_files import PYTHON as PYTHON_STATES
from tests.spark.scenario import prepared, reduce_job, result_of, spec_of, write_input
from tests.tiers import mostly_long

ORDERED = {
    "n": "count",
    "visits": {"function": "sessions", "column": "at", "gap": 5.0},
    "middle": {"function": "exact_median", "column": "at"},
}


def events(rows: int = 10_000, seed: int = 4) -> pa.Table:
    """Zipf keys with null among them, times that mostly go forward, and a word that names the row."""
    rng = np.random.default_rng(seed)
    ranks = rng.zipf(1.3, rows) % 300
    keys = [None if rank == 7 else f"k{rank}" for rank in ranks.tolist()]
    times = np.cumsum(rng.integers(0, 3, rows)) - np.where(rng.random(rows) < 0.001, 40, 0)
    return pa.table({"key": pa.array(keys, pa.string()), "at": times, "word": [f"w{n}" for n in range(rows)]})


def expected(table: pa.Table, gap: float = 5.0) -> dict[Any, dict[str, Any]]:
    """What one thread says that reads the table from its first row to its last."""
    seen: dict[Any, dict[str, Any]] = {}
    for row in table.to_pylist():
        one = seen.setdefault(row["key"], {"n": 0, "visits": [], "times": []})
        one["n"] += 1
        one["times"].append(row["at"])
        last = one["visits"][-1] if one["visits"] else None
        if last is None or not last["end"] <= row["at"] <= last["end"] + gap:
            one["visits"].append({"start": row["at"], "end": row["at"], "rows": 1})
        else:
            last["end"], last["rows"] = row["at"], last["rows"] + 1
    for one in seen.values():
        one["middle"] = statistics.median(one.pop("times"))
    return seen


def moved_keys(run: RunDirectory, reports: list[StageReport]) -> list[int]:
    moved = []
    for stage in range(1, len(reports)):
        before, plan = run.plan(stage - 1), run.plan(stage)
        keys = set(before.head) | set(plan.head)
        moved.append(sum(before.task_of(key, 0) != plan.task_of(key, 0) for key in keys))
    return moved


def require_states_in_their_places(run: RunDirectory, reports: list[StageReport]) -> None:
    """Each stage wrote states of the keys whose rows it reduced; it read those of keys that it knew, few of them moved.

    Of these, only states of keys whose task is another one now came from the files of another task.
    """
    places: dict[str | None, VirtualTask] = {}
    for report in reports:
        plan = run.plan(report.stage)
        files = run.committed(stage_step(report.stage)).of_kind(PYTHON_STATES)
        assert all(set(pq.read_table(run.path(file.path))["task"].to_pylist()) == {file.task} for file in files)
        states = [row for file in files for row in pq.read_table(run.path(file.path)).to_pylist()]
        keys = {row["c0"]: plan.tasks[row["task"]] for row in states if row["python_rows"]}
        assert len(keys) == sum(row["python_rows"] > 0 for row in states)
        known = keys.keys() & places.keys()
        assert (report.found_states, report.moved_states) == (
            len(known),
            sum(keys[key] != places[key] for key in known),
        )
        assert (report.moved_bytes or 0) >= 8 * (report.moved_states or 0)
        places |= keys


ADAPTIVE = {"policy": "adaptive", "reducers": 4, "stage_overhead": 0}


@pytest.mark.parametrize(
    "routing",
    mostly_long(
        [
            ADAPTIVE,
            {**ADAPTIVE, "reducers": 5, "budget": 1.0, "waves": [1, 1, 1, 1]},
            {"policy": "halving", "reducers": 4},
            {"policy": "virtual_tasks", "reducers": 3},
            {"policy": "static", "reducers": 1},
        ],
        ADAPTIVE,
    ),
    ids=["adaptive", "small budget", "halving", "virtual tasks", "one task"],
)
def test_keys_are_seen_in_order_whatever_moves(spark: SparkSession, tmp_path: Path, routing: dict[str, Any]) -> None:
    table = events()
    path = write_input(tmp_path / "input", table, files=20)
    run, reports = reduce_job(spark, spec_of(path, "key", ORDERED, routing=routing), tmp_path / "run")
    result = {row.pop("key"): row for row in result_of(run).to_pylist()}
    reference = expected(table)
    assert result.keys() == reference.keys()
    for key, row in result.items():
        visits = [{name: visit[name] for name in ("start", "end", "rows")} for visit in row["visits"]]
        assert {**row, "visits": visits} == reference[key], key
    require_states_in_their_places(run, reports)
    if routing["policy"] == "adaptive":
        assert sum(report.moved_states or 0 for report in reports) > 0
        assert sum(count > 0 for count in moved_keys(run, reports)) >= 2
        assert sum(report.forwarded_rows for report in reports) > 0


@pytest.mark.long
def test_python_aggregates_alone_account_for_every_row_through_stages_without_a_budget(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = events(3_000)
    path = write_input(tmp_path / "input", table)
    aggregates = {"middle": ORDERED["middle"]}
    routing = {"policy": "static", "reducers": 2, "waves": [1, 2]}
    run, reports = reduce_job(spark, spec_of(path, "key", aggregates, routing=routing), tmp_path / "run")
    assert [run.plan(report.stage).budget_rows for report in reports] == [None, None]
    assert run.committed("result").counts["rows"] == 3_000
    middles = {key: one["middle"] for key, one in expected(table).items()}
    assert {row["key"]: row["middle"] for row in result_of(run).to_pylist()} == middles


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2.5], ids=["whole numbers", "floating point numbers"])
def test_keys_of_any_type_go_on_from_their_states_and_a_lost_state_stops_the_stage(
    spark: SparkSession, tmp_path: Path, number: float
) -> None:
    table = pa.table({"key": [number * (place % 5) for place in range(400)], "at": range(400)})
    path = write_input(tmp_path / "input", table, files=4)
    aggregates = {"middle": ORDERED["middle"]}
    routing = {"policy": "static", "reducers": 2, "waves": [1, 1, 2], "first_plan": []}
    spec = spec_of(path, "key", aggregates, routing=routing)
    run = prepared(tmp_path, spec)
    run_stage(spark, run, 0)
    run.decide(1, plan_next_stage)
    file = run.committed(stage_step(0)).of_kind(PYTHON_STATES)[0]
    kept = Path(run.path(file.path)).read_bytes()
    Path(run.path(file.path)).write_bytes(kept[:-1])
    with pytest.raises(PythonException) as raised:
        run_stage(spark, run, 1)
    assert f"{run.path(file.path)}: expected the file of {len(kept):,} bytes that was" in sentence_for(raised.value)
    Path(run.path(file.path)).write_bytes(kept)
    # Where no task of a file is written down, all tasks look into it.
    commit = run.committed(stage_step(0))
    files = tuple(one.model_copy(update={"task": None}) for one in commit.files)
    unnamed = commit.model_copy(update={"files": files})
    Path(run.path(commit_path(stage_step(0)))).write_text(unnamed.sealed(), encoding="utf-8")
    report = run_stage(spark, run, 1)
    assert (report.found_states, report.moved_states) == (5, 5)
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    middles = {row["key"]: row["middle"] for row in result_of(run).to_pylist()}
    assert middles == {number * rest: statistics.median(range(rest, 400, 5)) for rest in range(5)}
