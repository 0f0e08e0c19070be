"""spark-submit entry: run one stage and commit it.

A driver that has committed a stage builds the query of the next one while Airflow has that decided: a decision is a
pure function of documents, so it can tell what will be decided. Nothing runs, and nothing is written. The stage uses
the query if it was built from the documents that then lie in the run directory, and builds its own otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless_spark.engines.stage import StageQuery, build_query, run_stage
from skewless_spark.entries.entry import entry_parser, run_entry, step_session
from skewless_spark.session.session import build_session
from skewless_spark.session.step_progress import StepProgress, queued_rows

#: Bytes of job and plan. To decide by larger ones would keep the driver from the next step for longer than it waits.
MOST_BYTES = 1 << 20
#: The query that was built last, by its run directory.
_AHEAD: dict[str, StageQuery] = {}


def main() -> None:
    """Run the stage that ``--stage`` names."""
    run_entry(_parser(), _stage)


def look_ahead(arguments: Sequence[str]) -> None:
    """Build the query of the stage after one that has committed, if it will be needed."""
    _AHEAD.clear()
    given = _parser().parse_args(arguments)
    run, stage = RunDirectory(given.run_dir), given.stage
    read = [f"{run.root}/{name}" for name in ("job.json", f"plans/{stage:04d}.json")]
    if sum(map(run.fs.size, read)) > MOST_BYTES:
        return
    *earlier, last = [run.report(before) for before in range(stage + 1)]
    plan = plan_next_stage(run.job(), run.plan(stage), last, earlier).next_plan
    if plan is not None:
        _AHEAD[str(run)] = build_query(build_session("skewless"), run, plan)


def _parser() -> argparse.ArgumentParser:
    parser = entry_parser("Run one stage and commit it.")
    parser.add_argument("--stage", required=True, type=int, help="the number of the stage, from 0")
    return parser


def _stage(run: RunDirectory, arguments: argparse.Namespace) -> str:
    step = f"stage {arguments.stage}"
    with step_session(run, step) as spark, StepProgress(spark, step, queued_rows(run, arguments.stage)):
        report = run_stage(spark, run, arguments.stage, _AHEAD.pop(str(run), None))
    return (
        f"stage {report.stage}: {report.admitted_rows:,} rows admitted, {report.backlog_in_rows:,} from the backlog "
        f"({report.forwarded_rows:,} forwarded), {report.processed_rows:,} processed, "
        f"{report.backlog_rows:,} left over; max/mean {report.balance_words}"
    )


if __name__ == "__main__":
    main()
