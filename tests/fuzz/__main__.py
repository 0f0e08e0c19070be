"""Random runs and random sequences of nights, each against an oracle in plain Python.

    python -m tests.fuzz --runs 1000 --seed 1 [--sequences 200] [--minutes 60] [--keep FOLDER]
    python -m tests.fuzz --seed 1 --only 17            one run again
    python -m tests.fuzz --seed 1 --only nights-4      one sequence again

Each trial depends on the seed and its number alone. One that fails prints both, the spec and the difference, and
keeps its folder.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from skewless_spark.session.session import build_session
from tests.fuzz.nights import run_nights
from tests.fuzz.trial import COMPARED, Outcome, run_trial, table_of
from tests.processes import JVM_OPTIONS
from tests.spark.scenario import know_own_mapper


def main() -> int:
    """The command; 1 if anything came out wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--only", help="one trial: the number of a run, or nights- and that of a sequence")
    parser.add_argument("--compared", type=int, default=COMPARED, help="one of so many runs is done in two ways")
    parser.add_argument("--minutes", type=float, default=1e9, help="after so many no further trial is begun")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "skewless-fuzz")
    given = parser.parse_args()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    spark = build_session("fuzz", "local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    know_own_mapper(spark)
    spark.sparkContext.setLogLevel("OFF")
    until = time.monotonic() + 60 * given.minutes
    outcomes: list[Outcome] = []
    numbers = range(given.first, given.first + max(given.runs, given.sequences))
    names = [
        name
        for at, number in enumerate(numbers)
        for name in ([str(number)] if at < given.runs else []) + ([f"nights-{number}"] if at < given.sequences else [])
    ]
    for name in [given.only] if given.only else names:
        if time.monotonic() > until:
            break
        folder = given.keep / f"{given.seed}-{name}"
        run = run_nights if name.startswith("nights-") else partial(run_trial, compared=given.compared)
        outcome = run(spark, given.seed, int(name.rpartition("-")[2]), folder)
        outcomes.append(outcome)
        if outcome.bad:
            print(f"{outcome}\n--- kept in {folder}\n", flush=True)
    counted = Counter(one.kind for one in outcomes)
    seconds = sum(one.seconds for one in outcomes)
    print(f"seed {given.seed}: {len(outcomes)} trials in {seconds:.0f} s: {dict(counted)}")
    print(table_of(outcomes))
    slowest = sorted(outcomes, key=lambda one: -one.seconds)[:5]
    print("slowest: " + ", ".join(f"{one.number} {one.seconds:.1f} s" for one in slowest))
    spark.stop()
    return int(any(one.bad for one in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
