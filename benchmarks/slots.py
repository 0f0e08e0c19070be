"""Measure: the time of plain hashing as savings tell it, beside a real run of it, at 2, 4, 8 and 16 slots.

``python -m benchmarks.slots FOLDER``, with ``tests.spark.clusters.install_paced(FOLDER)`` on the ``PYTHONPATH`` and
``PACE_ROW_SECONDS=0.005``: rows sleep, so sixteen slots fit on two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from skewless.savings import longest_seconds
from skewless_lake.publication import keep_savings
from skewless_spark.session.session import build_session
from tests.spark.scenario import run_job, spec_of, write_input

WAVES = {"waves": [1, 3, 12], "first_plan": ["sample"], "slots": None}
CASES = {
    "static": ("staged", {"policy": "static", "waves": [1], "slots": None}),
    "static in three waves": ("staged", {**WAVES, "policy": "static"}),
    "three stages": ("staged", {**WAVES, "stage_overhead": 0}),
    "joined waves": ("staged", WAVES),
    "one stage": ("staged", {**WAVES, "waves": [1]}),
    "bypass": ("bypass", WAVES),
    "combine": ("combine", WAVES),
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    keys = [f"k{row * row % 211}" if row % 10 > 2 else "hot" for row in range(4_000)]
    path = write_input(folder / "input", pa.table({"key": keys, "at": pa.array(range(4_000), pa.int64())}), files=16)
    aggregates = {"total": {"function": "paced_sum", "column": "at"}}
    for slots in map(int, sys.argv[2:] or ("2", "4", "8", "16")):
        session = build_session("slept", f"local[{slots}]")
        for case, (engine, routing) in CASES.items():
            spec = spec_of(path, "key", aggregates, engine=engine, routing=routing)
            run, *_ = run_job(session, spec, folder / f"{case.replace(' ', '-')}-{slots}")
            saved, seconds = keep_savings(run), longest_seconds(run.job(), run.reports())
            predicted = saved and saved.against_seconds
            print(
                f"{slots} slots, {case}: {len(run.reports())} stages, {seconds} s; plain hashing predicted {predicted}"
            )
        session.stop()
