"""``python -m tests.load.many_nights``: a window, night after night, through the Airflow of `make up`; some rows late.

After each night the published result is compared with plain Python over all rows of the window, and the rows that
Spark's scans have read with the rows that have changed. Ends with 1 if any of it is not as it should be.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.load.installation import Installation, installation
from tests.load.nights import JOB, Arrived, NightLake, spec
from tests.load.page import write
from tests.load.spark_log import ScanLog, logging_options


class NightLine(NamedTuple):
    """One night."""

    arrived: Arrived
    read: int
    window: int
    seconds: float
    faults: tuple[str, ...]


def nights(place: Installation, lake: NightLake, logs: ScanLog, count: int) -> list[NightLine]:
    """Run the job night after night."""
    lines, before = list[NightLine](), 0
    for number in range(count):
        arrived, began = lake.arrive(), time.monotonic()
        ident = place.trigger(JOB, arrived.day.isoformat(), number)
        place.await_end(JOB, ident)
        seconds = time.monotonic() - began
        after = logs.rows_below(place.root / "lake")
        faults = [*place.faults] or lake.faults_of(place.run_of(JOB, ident), arrived)
        read, before = after - before, after
        if read != arrived.changed:
            faults.append(f"{arrived.day}: {read:,} rows were read, and {arrived.changed:,} have changed")
        lines.append(NightLine(arrived, read, lake.rows_in_window, seconds, tuple(faults)))
        sys.stderr.write(f"night {number + 1}: {read:,} rows read in {seconds:.0f} s; faults: {faults}\n")
        if place.faults:
            break  # the nights after one that failed have nothing to build on
    return lines


def figures(lines: Sequence[NightLine], window: int, rows: int) -> str:
    """What came of them."""
    faults = [fault for line in lines for fault in line.faults]
    read, whole = sum(line.read for line in lines), sum(line.window for line in lines)
    late, outside, restated = (sum(found) for found in zip(*(line.arrived[1:4] for line in lines), strict=True))
    seconds = median(line.seconds for line in lines)
    verdict = f"{len(faults)} faults" if faults else "Every result is right, and each night read what had changed"
    return "\n".join([
        f"{len(lines)} nights, a window of {window} days, {rows:,} rows a day.",
        f"**{verdict}:** {read:,} rows were read; the windows have {whole:,} together.",
        f"Late rows: {late:,} of days in the window, {outside:,} of days that had left it.",
        f"Rows of days with a rewritten file: {restated:,}. Median of a night: {seconds:.1f} s.",
        *(f"- {fault}" for fault in faults),
        "",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load.many_nights", description=__doc__)
    parser.add_argument("--nights", type=int, default=30, help="how many nights (30)")
    parser.add_argument("--window", type=int, default=7, help="days that the result covers (7)")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a day (20000)")
    parser.add_argument("--table", type=Path, help="the page that gets the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="skewless-nights-") as name:
        folder = Path(name)
        given = {"SPARK_SUBMIT_OPTS": logging_options(folder / "logs")}
        with installation(folder, [], [JOB], given, **spec(options.window)) as place:
            lake = NightLake(place.root, options.window, options.rows, rewrite_every=10)
            lines = nights(place, lake, ScanLog(folder / "logs"), options.nights)
    text = figures(lines, options.window, options.rows)
    sys.stdout.write(text)
    if options.table:
        write(options.table, "A window, night after night", text, dt.datetime.now(tz=dt.UTC).date())
    return 1 if any(line.faults for line in lines) or len(lines) < options.nights else 0


if __name__ == "__main__":
    sys.exit(main())
