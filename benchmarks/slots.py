"""Measure: the time of plain hashing as savings predict it, beside a real run of it, at 2, 4, 8 and 16 slots.

``python -m benchmarks.slots FOLDER``, with ``tests.spark.clusters.install_paced(FOLDER)`` on the ``PYTHONPATH`` and
``PACE_ROW_SECONDS=0.003``: rows sleep, so sixteen slots fit on two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from skewless.replay.savings import longest_seconds
from skewless_lake.publication import keep_savings
from skewless_spark.session.session import build_session
from tests.spark.scenario import run_job, spec_of, write_input

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    keys = [f"k{row * row % 211}" if row % 10 > 2 else "hot" for row in range(4_000)]
    path = write_input(folder / "input", pa.table({"key": keys, "at": pa.array(range(4_000), pa.int64())}), files=16)
    aggregates = {"total": {"function": "paced_sum", "column": "at"}}
    for slots in (2, 4, 8, 16):
        runs = []
        for policy in ("adaptive", "static"):
            routing = {"policy": policy, "stage_overhead": 0, "waves": [1, 3], "first_plan": ["sample"], "slots": None}
            session = build_session("slept", f"local[{slots}]")
            spec = spec_of(path, "key", aggregates, routing=routing)
            runs.append(run_job(session, spec, folder / f"{policy}-{slots}")[0])
            session.stop()
        savings, plain = keep_savings(runs[0]), longest_seconds(runs[1].job(), runs[1].reports())
        print(slots, "slots:", savings and savings.against_seconds, "predicted,", plain, "measured")
