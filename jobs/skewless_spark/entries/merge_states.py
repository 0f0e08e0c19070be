"""spark-submit entry: merge the partial states of all stages and commit the result."""

from __future__ import annotations

import argparse

from skewless.run.directory import RunDirectory
from skewless_spark.entries.entry import entry_parser, run_entry, step_session
from skewless_spark.result.merge import merge_states
from skewless_spark.session.step_progress import StepProgress


def main() -> None:
    """Merge the states of a run whose stages are committed."""
    run_entry(entry_parser("Merge the partial states of all stages and commit the result."), _merge)


def _merge(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    with step_session(run, "merge") as spark, StepProgress(spark, "merge"):
        commit = merge_states(spark, run)
    return f"merged: {commit.counts['keys']:,} keys from {commit.counts['rows']:,} rows"


if __name__ == "__main__":
    main()
