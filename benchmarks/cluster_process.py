"""A cluster of its own for a measurement: warm, then at work when it is told; ``python -m benchmarks.cluster_process``.

It says ``ready`` on its standard output, waits for a line on its standard input, and runs stage 0 of a run.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.spark.setting import session
from skewless.run.directory import RunDirectory
from skewless_spark.engines.stage import run_stage
from skewless_spark.sharing import share_stage


def main() -> None:
    """Warm up, wait, work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--warm-up", required=True, help="the run directory of a small run of the same job")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--unshared", action="store_true", help="run the stage as a run does that nobody shares")
    given = parser.parse_args()
    run = RunDirectory(given.run_dir)
    with session(slots=1) as spark:
        for one in (RunDirectory(given.warm_up), run):
            if one is run:
                print("ready", flush=True)
                sys.stdin.readline()
            if given.unshared:
                run_stage(spark, one, 0)
            else:
                share_stage(spark, one, 0, given.cluster)


if __name__ == "__main__":
    main()
