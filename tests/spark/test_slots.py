"""Slots: how many tasks of the application run at one time, and what is said and decided by them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.replay.savings import longest_seconds
from skewless.run.certificate import run_certificate
from skewless.run.directory import RunDirectory
from skewless_lake.replays import keep_savings
from skewless_spark.session.session import build_session
from tests.spark.scenario import on_slots, reduce_job, run_job, spec_of, write_input

#: Longer than anything that a task takes beside its rows, for which it only sleeps: sixteen slots fit on two cores.
ROW_SECONDS = 0.003
ROWS = 4_000
SLOTS = (2, 4, 8, 16)


def skewed_rows() -> pa.Table:
    """A key with three in ten rows, and many others."""
    keys = [f"k{row * row % 211}" if row % 10 > 2 else "hot" for row in range(ROWS)]
    return pa.table({"key": keys, "at": pa.array(range(ROWS), pa.int64())})


@pytest.mark.parametrize("engine", ["staged", "combine", "bypass"])
def test_the_slots_are_those_that_spark_has_and_not_the_reducers(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    path = write_input(tmp_path / "input", skewed_rows(), files=4)
    fields: dict[str, Any] = {"routing": {"reducers": 8, "waves": [1, 4]}, "engine": engine}
    spec = spec_of(path, "key", {"n": "count"}, **fields)
    run, reports = reduce_job(spark, on_slots(spec, None), tmp_path / "run")
    assert (run.job().slots, {report.slots for report in reports}) == (2, {2})
    whole = run_certificate(run.job(), reports)
    assert (whole.tasks, whole.fair_rows) == (2, ROWS / 2)
    asked, again = reduce_job(spark, on_slots(spec, 4), tmp_path / "asked")
    assert run_certificate(asked.job(), again).tasks == 4, "what the spec gives overrides"


def slept(folder: Path, policy: str, slots: int) -> RunDirectory:
    """A run of sleeping rows on so many slots, each wave in a stage of its own, to its end in a Spark of its own."""
    path = folder / "input"
    aggregates = {"total": {"function": "paced_sum", "column": "at"}}
    routing = {"policy": policy, "stage_overhead": 0, "waves": [1, 3], "first_plan": ["sample"]}
    spark = build_session("slept", f"local[{slots}]")
    try:
        spec = on_slots(spec_of(path, "key", aggregates, routing=routing), None)
        run, *_ = run_job(spark, spec, folder / f"{policy}-{slots}")
    finally:
        spark.stop()
    return run


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_time_that_was_saved_is_within_a_tenth_of_a_real_run_of_hashing_or_not_told(
    tmp_path: Path, packages: Path
) -> None:
    write_input(tmp_path / "input", skewed_rows(), files=16)
    subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(packages), "PACE_ROW_SECONDS": str(ROW_SECONDS)}, check=True,
    )  # fmt: skip
    told = []
    for slots in SLOTS:
        ours, plain = (RunDirectory(str(tmp_path / f"{policy}-{slots}")) for policy in ("adaptive", "static"))
        measured, savings = longest_seconds(plain.job(), plain.reports()), keep_savings(ours)
        assert {report.slots for run in (ours, plain) for report in run.reports()} == {slots}
        assert savings is not None
        if savings.against_seconds is not None:  # a busy machine makes rows of some keys take longer
            told.append(slots)
            assert savings.against_seconds == pytest.approx(measured, rel=0.1)
    assert told


if __name__ == "__main__":
    for slots in SLOTS:
        for policy in ("adaptive", "static"):
            slept(Path(sys.argv[1]), policy, slots)
