"""Prints which published results of a job are not up to date, as JSON, for Airflow. Spark is not started."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys

from skewless.errors import SkewlessError
from skewless.run.folder import runs_below
from skewless.spec.reading import load_spec
from skewless_spark.prepare.restating import find_stale, restating_spec


def main() -> None:
    """Print a list of objects with the fields ``run_name``, ``date``, ``hour`` and ``reasons``."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, words in {
        "spec": "the job spec",
        "root": "where relative paths start, and runs are",
        "first": "the first day of published results to look at",
        "last": "the last day, inclusive",
    }.items():
        parser.add_argument(f"--{name}", required=True, help=words)
    given = parser.parse_args()
    where = f"spec {given.spec}"
    try:
        spec = restating_spec(load_spec(given.spec), where)
        days = dt.date.fromisoformat(given.first), dt.date.fromisoformat(given.last)
        found = find_stale(spec, days, given.root, where, f"{runs_below(given.root)}/{spec.name}")
    except SkewlessError as err:
        sys.stderr.write(f"skewless: {err}\n")
        sys.exit(err.exit_code)
    stale = [
        {"run_name": one.run_name, "date": str(one.part.date), "hour": one.part.hour, "reasons": one.reasons}
        for one in found.stale
    ]
    sys.stdout.write(json.dumps(stale) + "\n")


if __name__ == "__main__":
    main()
