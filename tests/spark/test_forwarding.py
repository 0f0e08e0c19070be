"""State forwarding: a key lives in one task, and sees its rows in the order of the input, whatever moved."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.documents.stage_report import StageReport
from skewless.run.directory import RunDirectory
from tests.spark.scenario import reduce_job, result_of, spec_of, write_input

ORDERED = {
    "n": "count",
    "visits": {"function": "sessions", "column": "at", "gap": 5.0},
    "middle": {"function": "exact_median", "column": "at"},
    "last_word": {"function": "latest", "column": "word"},
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
        one = seen.setdefault(row["key"], {"n": 0, "visits": [], "times": [], "last_word": None})
        one["n"] += 1
        one["times"].append(row["at"])
        one["last_word"] = row["word"]
        last = one["visits"][-1] if one["visits"] else None
        if last is None or not last["end"] <= row["at"] <= last["end"] + gap:
            one["visits"].append({"start": row["at"], "end": row["at"], "rows": 1})
        else:
            last["end"], last["rows"] = row["at"], last["rows"] + 1
    for one in seen.values():
        one["middle"] = statistics.median(one.pop("times"))
    return seen


def moved_keys(run: RunDirectory, reports: list[StageReport]) -> list[int]:
    """How many head keys each plan sends elsewhere than the one before."""
    moved = []
    for stage in range(1, len(reports)):
        before, plan = run.plan(stage - 1), run.plan(stage)
        keys = set(before.head) | set(plan.head)
        moved.append(sum(before.task_of(key, 0) != plan.task_of(key, 0) for key in keys))
    return moved


@pytest.mark.parametrize(
    "routing",
    [
        {"policy": "adaptive", "reducers": 4, "stage_overhead": 0},
        pytest.param(
            {"policy": "adaptive", "reducers": 5, "stage_overhead": 0, "budget": 1.0, "waves": [1, 1, 1, 1]},
            marks=pytest.mark.long,
        ),
        pytest.param({"policy": "halving", "reducers": 4}, marks=pytest.mark.long),
        pytest.param({"policy": "virtual_tasks", "reducers": 3}, marks=pytest.mark.long),
        pytest.param({"policy": "static", "reducers": 1}, marks=pytest.mark.long),
    ],
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
    if routing["policy"] == "adaptive":
        assert sum(count > 0 for count in moved_keys(run, reports)) >= 2
        assert sum(report.forwarded_rows for report in reports) > 0


def test_a_mergeable_aggregate_may_be_forwarded_too(spark: SparkSession, tmp_path: Path) -> None:
    table = events(5_000)
    path = write_input(tmp_path / "input", table)
    aggregates = {"n": "count", "words": {"function": "value_counts", "column": "at"}}
    spec = spec_of(path, "key", aggregates, state="forward", routing={"reducers": 3, "stage_overhead": 0})
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    for row in result_of(run).to_pylist():
        assert sum(one["count"] for one in row["words"]) == row["n"]
    assert sum(row["n"] for row in result_of(run).to_pylist()) == 5_000


def test_python_aggregates_alone_account_for_every_row_through_stages_without_a_budget(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = events(3_000)
    path = write_input(tmp_path / "input", table)
    aggregates = {name: ORDERED[name] for name in ("middle", "last_word")}
    routing = {"policy": "static", "reducers": 2, "waves": [1, 2]}
    run, reports = reduce_job(spark, spec_of(path, "key", aggregates, routing=routing), tmp_path / "run")
    assert [run.plan(report.stage).budget_rows for report in reports] == [None, None]
    assert run.committed("result").counts["rows"] == 3_000
    reference = expected(table)
    assert {row["key"]: row["last_word"] for row in result_of(run).to_pylist()} == {
        key: one["last_word"] for key, one in reference.items()
    }
