"""spark-submit entry: compare the result with another job's. The exit code is 3 if the spec forbids differences."""

from __future__ import annotations

import argparse

from skewless.run.directory import RunDirectory
from skewless_spark.comparison.shadow import compare_shadow
from skewless_spark.entries.entry import entry_parser, run_entry, step_session
from skewless_spark.session.step_progress import StepProgress


def main() -> None:
    """Compare the validated result of a run in the shadow of another job."""
    run_entry(entry_parser("Compare the result with that of another job; nothing is published."), _compare)


def _compare(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    with step_session(run, "compare") as spark, StepProgress(spark, "compare"):
        return compare_shadow(spark, run).verdict


if __name__ == "__main__":
    main()
