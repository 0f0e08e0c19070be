"""``python -m tests.load``: 20 runs triggered at once, then 200 in a row, through the Airflow of `make up`.

After each run: the published day is what plain Python counts, the ledger balances, nothing is left over. Every tenth
run, with nothing under way: what the processes hold. Ends with 1 if any of it is not as it should be.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.load.days import days
from tests.load.footprint import Footprint, growth
from tests.load.installation import Installation, installation
from tests.load.page import Load, figures, write

JOBS = ("visits_a", "visits_b", "visits_c", "visits_d")
LOOK_EVERY = 10


def at_once(place: Installation, which: Sequence[str]) -> float:
    """Trigger a run for each of some days, spread over the jobs, before the first has ended; the seconds they took."""
    began = time.monotonic()
    runs = [(JOBS[number % len(JOBS)], day) for number, day in enumerate(which)]
    idents = [place.trigger(name, day, number) for number, (name, day) in enumerate(runs)]
    for (name, _), ident in zip(runs, idents, strict=True):
        place.await_end(name, ident)
    took = time.monotonic() - began
    for (name, day), ident in zip(runs, idents, strict=True):
        place.judge(name, day, ident)
    return took


def in_a_row(place: Installation, which: Sequence[str], runs: int, until: float) -> tuple[list[Footprint], list[float]]:
    """Run one after the other, days anew when all have been; what was held in between, and each run's seconds."""
    looks, took = [place.look()], []
    for number in range(runs):
        if time.monotonic() > until:
            break
        name, day = JOBS[number % len(JOBS)], which[number % len(which)]
        began = time.monotonic()
        ident = place.trigger(name, day, 1000 + number)
        place.await_end(name, ident)
        took.append(time.monotonic() - began)
        place.judge(name, day, ident)
        if (number + 1) % LOOK_EVERY == 0:
            looks.append(place.look())
            _tell(f"{number + 1} runs in a row; {looks[-1]}; faults: {place.faults}")
    return looks, took


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--at-once", type=int, default=20, help="runs that are triggered at once (20)")
    parser.add_argument("--runs", type=int, default=200, help="runs in a row (200)")
    parser.add_argument("--minutes", type=float, default=1e9, help="after so many no further run is begun")
    parser.add_argument("--table", type=Path, help="the page that gets the figures")
    options = parser.parse_args()
    which, until = days(options.at_once), time.monotonic() + 60 * options.minutes
    with (
        tempfile.TemporaryDirectory(prefix="skewless-load-") as folder,
        installation(Path(folder), which, JOBS) as place,
    ):
        seconds = at_once(place, which)
        _tell(f"{len(which)} runs at once: {seconds:.0f} s; faults: {place.faults}")
        looks, took = in_a_row(place, which, options.runs, until)
        load = Load(len(which), seconds, took, looks, tuple(place.faults), tuple(growth(looks)))
    text = figures(load)
    sys.stdout.write(text)
    if options.table:
        write(options.table, "Many small runs", text, dt.datetime.now(tz=dt.UTC).date())
    return 0 if load.holds else 1


def _tell(words: str) -> None:
    sys.stderr.write(f"{words}\n")


if __name__ == "__main__":
    sys.exit(main())
