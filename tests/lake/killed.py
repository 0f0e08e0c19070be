"""Runs a job to its publication in a process that is to be killed: ``python -m tests.lake.killed RUN``."""

from __future__ import annotations

import datetime as dt
import sys

from skewless.run.directory import RunDirectory
from skewless_lake.publication import publish_run
from tests.lake.outputs import judge, staged

if __name__ == "__main__":
    run = RunDirectory(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    staged(run)
    judge(run)
    publish_run(run, dt.datetime.now(tz=dt.UTC))
    sys.stdout.write("done\n")
