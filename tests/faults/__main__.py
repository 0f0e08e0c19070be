"""All faults, or some of them: the trials go to a file, their counts to the page.

    python -m tests.faults [--table docs/faults.md] [--results FILE] [--place DIR] [--minutes M]
    python -m tests.faults --seed N | --kind kill | --step merge ...        one trial again, or some
    python -m tests.faults --only tables --table docs/faults.md         those of tables, and their counts
    python -m tests.faults --list                            name the trials

The trials are lines of JSON in a new file in the temporary folder, or are added to the file that is given. What came
out right or stopped there is not tried again; so that a run of all may be made in parts. The page is written when no
trial is left.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults import airflow_kills
from tests.faults.airflow_nights import AirflowHarness
from tests.faults.catalogue import KINDS, all_trials
from tests.faults.harness import Harness
from tests.faults.lake.harness import LakeHarness
from tests.faults.lake.trials import all_trials as lake_trials
from tests.faults.nights import NightsHarness
from tests.faults.table import KINDS_OF_TABLES, Tried, counted
from tests.faults.trial import Trial

AIRFLOW = "airflow"
NIGHTS = "nights"
TABLES = "tables"
HALVES = ("no-spark", "spark", NIGHTS, AIRFLOW, TABLES)

AnyHarness = Harness | AirflowHarness | LakeHarness


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="the file of the trials")
    parser.add_argument("--table", type=Path, help="the page that gets the counts of all trials in that file")
    parser.add_argument("--kind", action="append", choices=[*KINDS, *KINDS_OF_TABLES])
    parser.add_argument("--step", help="those of a step, by its name")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--minutes", type=float, default=1e9, help="after so many no further trial is begun")
    parser.add_argument("--place", type=Path, help="where the run without faults is kept for the next time")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", choices=HALVES, help="some of them")
    given, now = parser.parse_args(), dt.datetime.now(tz=dt.UTC)
    with tempfile.TemporaryDirectory() as place:
        given.place = given.place or Path(place)
        given.results = given.results or Path(tempfile.gettempdir()) / f"skewless-faults-{now:%Y%m%dT%H%M%S}.jsonl"
        given.until = time.monotonic() + 60 * given.minutes
        halves = [name for name in HALVES if given.only in {None, name}]
        left, wrong = (sum(counts) for counts in zip(*(_half(given, name) for name in halves), strict=True))
        if given.table and not left:
            page = given.table.read_text(encoding="utf-8")
            given.table.write_text(counted(page, _read(given.results), now.date()), encoding="utf-8")
        sys.stdout.write(f"{wrong} wrong, {left} not tried; the trials: {given.results}\n")
    return int(wrong > 0)


def _half(given: argparse.Namespace, name: str) -> tuple[int, int]:
    harness = _harness(given.place / name, name)
    try:
        found = _trials(harness)
        chosen = [one for one in found if given.kind is None or one.kind in given.kind]
        chosen = [one for one in chosen if given.seed is None or one.seed == given.seed]
        chosen = [one for one in chosen if given.step in {None, one.step}]
        if given.list:
            sys.stdout.write("".join(f"{trial.name}\n" for trial in chosen))
            return 0, 0
        return _run(harness, chosen, given.results, given.until)
    finally:
        harness.close()


def _harness(place: Path, name: str) -> AnyHarness:
    if name == AIRFLOW:
        return AirflowHarness()
    if name == TABLES:
        return LakeHarness(place)
    return NightsHarness(place) if name == NIGHTS else Harness(place, spark=name == "spark")


def _trials(harness: AnyHarness) -> list[Trial]:
    if isinstance(harness, AirflowHarness):
        return airflow_kills.trials()
    return lake_trials(harness) if isinstance(harness, LakeHarness) else all_trials(harness)


def _run(harness: AnyHarness, trials: list[Trial], results: Path, until: float) -> tuple[int, int]:
    known = {tried.name for tried in _read(results) if tried.outcome != "wrong"}
    wrong, waiting = 0, [trial for trial in trials if trial.name not in known]
    for done, trial in enumerate(waiting):
        if time.monotonic() > until:
            return len(waiting) - done, wrong
        started = time.monotonic()
        try:
            outcome: str = trial.act(harness, trial.seed)
            why = ""
        except Exception:  # noqa: BLE001  # whatever it is, the trial failed, and the others go on
            outcome, why = "wrong", traceback.format_exc()
            wrong += 1
            sys.stdout.write(why)
        seconds = time.monotonic() - started
        sys.stdout.write(f"{outcome:8}{seconds:6.1f} s  {trial.name}\n")
        sys.stdout.flush()
        with results.open("a", encoding="utf-8") as out:
            out.write(f"{json.dumps(Tried(trial.kind, trial.step, trial.fault, trial.seed, outcome))}\n")
    return 0, wrong


def _read(results: Path) -> list[Tried]:
    if not results.exists():
        return []
    return [Tried(*json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
