"""Slots: how many tasks of the application run at one time, and what is said and decided by them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.replay.savings import longest_seconds
from skewless.run.certificate import run_certificate
from skewless.run.directory import RunDirectory
from skewless_lake.replays import keep_savings
from skewless_spark.session.session import build_session
from tests.spark.scenario import reduce_job, run_job, spec_of, write_input

ROWS, SLOTS = 4_000, (2, 4, 8, 16)


def write_skewed(folder: Path) -> Path:
    """A key with three in ten rows, and many others."""
    keys = [f"k{row * row % 211}" if row % 10 > 2 else "hot" for row in range(ROWS)]
    return write_input(folder, pa.table({"key": keys, "at": pa.array(range(ROWS), pa.int64())}), files=16)


@pytest.mark.parametrize("engine", ["staged", "combine", "bypass"])
def test_the_slots_are_those_that_spark_has_and_not_the_reducers(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    path = write_skewed(tmp_path / "input")
    for given, slots in ((None, 2), (4, 4)):
        spec = spec_of(path, "key", {"n": "count"}, routing={"reducers": 8, "slots": given}, engine=engine)
        run, reports = reduce_job(spark, spec, tmp_path / f"run-{slots}")
        assert (run.job().slots, {report.slots for report in reports}) == (2, {2})
        whole = run_certificate(run.job(), reports)
        assert (whole.tasks, whole.fair_rows) == (slots, ROWS / slots), "what the spec gives overrides"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_time_that_was_saved_is_within_a_tenth_of_a_real_run_of_hashing_or_not_told(
    tmp_path: Path, packages: Path
) -> None:
    write_skewed(tmp_path / "input")
    # Rows sleep: sixteen slots fit on two cores.
    paced = {**os.environ, "PYTHONPATH": str(packages), "PACE_ROW_SECONDS": "0.003"}
    subprocess.run([sys.executable, "-m", __name__, str(tmp_path)], env=paced, check=True)
    told = {}
    for slots in SLOTS:
        ours, plain = (RunDirectory(str(tmp_path / f"{policy}-{slots}")) for policy in ("adaptive", "static"))
        assert {report.slots for run in (ours, plain) for report in run.reports()} == {slots}
        savings = keep_savings(ours)
        if savings is not None and savings.against_seconds is not None:
            told[slots] = savings.against_seconds / (longest_seconds(plain.job(), plain.reports()) or 1.0)
    assert told, "though a busy machine makes rows of some keys take longer"
    assert all(0.9 < off < 1.1 for off in told.values()), told


if __name__ == "__main__":
    for slots in SLOTS:
        for policy in ("adaptive", "static"):
            routing = {"policy": policy, "stage_overhead": 0, "waves": [1, 3], "first_plan": ["sample"], "slots": None}
            aggregates = {"total": {"function": "paced_sum", "column": "at"}}
            session, folder = build_session("slept", f"local[{slots}]"), Path(sys.argv[1])
            run_job(
                session, spec_of(folder / "input", "key", aggregates, routing=routing), folder / f"{policy}-{slots}"
            )
            session.stop()
