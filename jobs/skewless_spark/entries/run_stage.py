"""spark-submit entry: run one stage and commit it."""

from __future__ import annotations

import argparse

from skewless.run.directory import RunDirectory
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.entry import entry_parser, run_entry, step_session
from skewless_spark.session.step_progress import StepProgress, queued_rows


def main() -> None:
    """Run the stage that ``--stage`` names."""
    run_entry(_parser(), _stage)


def _parser() -> argparse.ArgumentParser:
    parser = entry_parser("Run one stage and commit it.")
    parser.add_argument("--stage", required=True, type=int, help="the number of the stage, from 0")
    return parser


def _stage(run: RunDirectory, arguments: argparse.Namespace) -> str:
    step = f"stage {arguments.stage}"
    with step_session(run, step) as spark, StepProgress(spark, step, queued_rows(run, arguments.stage)):
        report = run_stage(spark, run, arguments.stage)
    return (
        f"stage {report.stage}: {report.admitted_rows:,} rows admitted, {report.backlog_in_rows:,} from the backlog "
        f"({report.forwarded_rows:,} forwarded), {report.processed_rows:,} processed, "
        f"{report.backlog_rows:,} left over; max/mean {report.balance_words}"
    )


if __name__ == "__main__":
    main()
