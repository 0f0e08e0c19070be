"""Runs that several clusters share, for tests: their kinds, and what each must come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory, stage_step
from skewless.spec.spec import JobSpec
from skewless_spark.result.merge import merge_states
from tests.spark.clusters import ClusterProcess
from tests.spark.scenario import as_rows, prepared, reduce_job, result_of, spec_of, without_times, write_input
from tests.spark.test_forwarding import ORDERED, events, expected

ROWS = 6_000
#: Several stages, each but the last with a backlog.
STAGES = {"policy": "adaptive", "reducers": 5, "stage_overhead": 0, "budget": 1.0, "waves": [1, 2, 4], "first_plan": []}
NO_BUDGET = {"policy": "static", "reducers": 4, "waves": [1, 2], "first_plan": []}
NATIVE = {
    "n": "count",
    "total": {"function": "sum", "column": "at"},
    "mean": {"function": "avg", "column": "at"},
    "last_word": {"function": "max", "column": "word"},
    "different": {"function": "approx_count_distinct", "column": "at"},
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "native": {"aggregates": NATIVE, "routing": STAGES},
    "native, no budget": {"aggregates": NATIVE, "routing": NO_BUDGET},
    "python": {"aggregates": {"n": "count", "words": {"function": "value_counts", "column": "at"}}, "routing": STAGES},
    "python alone, no budget": {
        "aggregates": {"histogram": {"function": "streaming_histogram", "column": "at", "bins": 8}},
        "routing": NO_BUDGET,
    },
    "carried states": {"aggregates": ORDERED, "routing": STAGES},
    "carried states alone, no budget": {
        "aggregates": {name: ORDERED[name] for name in ("middle", "last_word")},
        "routing": NO_BUDGET,
    },
    "mapped": {
        "aggregates": NATIVE,
        "map": {"select": ["explode(sequence(0, at % 3)) AS part", "key", "at", "word"], "where": "at % 5 > 0"},
        "routing": STAGES,
    },
}

#: Those in which one is killed, too; each of the others is a stage of its own kind.
DISTURBED = ("native", "python", "carried states", "mapped")


@contextmanager
def clusters(run: RunDirectory, *names: str, **how: Any) -> Iterator[list[ClusterProcess]]:
    found: list[ClusterProcess] = []
    try:
        # One by one, so that those that have been started end if the next one cannot be.
        for name in names:
            found.append(ClusterProcess(run, name, **how))  # noqa: PERF401
        yield found
    finally:
        for one in found:
            one.end()


def shared_run(folder: Path, scenario: str, **sharing: Any) -> tuple[RunDirectory, JobSpec]:
    fields = dict(SCENARIOS[scenario])
    path = write_input(folder / "input", events(ROWS), files=12)
    spec = spec_of(path, "key", fields.pop("aggregates"), sharing={"lease_seconds": 1, **sharing}, **fields)
    run = prepared(folder, spec, "shared")
    return run, spec


def stages_done(run: RunDirectory) -> bool:
    stage = run.committed_stages()
    return stage > 0 and run.exists(f"decisions/{stage:04d}.json") and run.decision(stage).next_plan is None


def require_the_answer_of_one_alone(spark: SparkSession, run: RunDirectory, spec: JobSpec, folder: Path) -> None:
    """The same plans, the same counts of each task and key, the same result; and that is what plain counting says."""
    merge_states(spark, run)
    alone, reports = reduce_job(spark, spec, folder / "alone")
    assert [without_times(report) for report in run.reports()] == [without_times(report) for report in reports]
    assert [run.plan(report.stage) for report in reports] == [alone.plan(report.stage) for report in reports]
    assert as_rows(result_of(run)) == as_rows(result_of(alone))
    result = {row["key"]: row for row in result_of(run).to_pylist()}
    counted = counts(events(ROWS), mapped=spec.map is not None)
    assert result.keys() == counted.keys()
    assert run.committed("result").counts["rows"] == counted.total()
    if "n" in spec.aggregates:
        assert {key: row["n"] for key, row in result.items()} == counted
    if "middle" in spec.aggregates:
        reference = expected(events(ROWS))
        assert {key: row["middle"] for key, row in result.items()} == {
            key: one["middle"] for key, one in reference.items()
        }


def counts(table: pa.Table, *, mapped: bool) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for row in table.to_pylist():
        found[row["key"]] += (row["at"] % 3 + 1 if row["at"] % 5 else 0) if mapped else 1
    return +found


def paced_run(folder: Path, **fields: Any) -> RunDirectory:
    path = write_input(folder / "input", events(ROWS), files=12)
    routing = {"policy": "static", "reducers": 16, "waves": [1], "tokens": 64, "first_plan": []}
    spec = spec_of(path, "key", sharing={"lease_seconds": 1}, routing=routing, **fields)
    return prepared(folder, spec, "shared")


PACED_SUM = {"total": {"function": "paced_sum", "column": "at"}}


def sums_in_the_states(run: RunDirectory) -> Counter[str | None]:
    """What the committed states add up to, read without any code of ours."""
    files = [file for stage in range(run.committed_stages()) for file in run.committed(stage_step(stage)).files]
    found: Counter[str | None] = Counter()
    for file in files:
        if file.kind == "python":
            for row in pq.ParquetFile(run.path(file.path)).read(["c0", "s0_0"]).to_pylist():
                found[row["c0"]] += row["s0_0"]
    return found


def plain_sums() -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for row in events(ROWS).to_pylist():
        found[row["key"]] += row["at"]
    return found
