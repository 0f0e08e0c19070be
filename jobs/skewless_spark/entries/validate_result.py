"""spark-submit entry: validate the ledger and the result. The exit code is 3 if an expectation failed."""

from __future__ import annotations

import argparse

from skewless.run.directory import RunDirectory
from skewless.run.publication.publish import require_passed
from skewless_spark.entries.entry import entry_parser, run_entry, step_session
from skewless_spark.quality.expectations import import_soon
from skewless_spark.quality.validate import validate
from skewless_spark.session.step_progress import StepProgress


def main() -> None:
    """Validate the merged result of a run."""
    run_entry(entry_parser("Validate ledger and result; exits with 3 if an expectation failed."), _validate)


def _validate(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    import_soon()
    with step_session(run, "validate") as spark, StepProgress(spark, "validate"):
        report = validate(spark, run)
    require_passed(run, report)
    warnings = report.warnings(len(run.job().spec.quality.expectations))
    told = f"{sum(check.success for check in report.checks)} of {len(report.checks)} checks passed"
    return "; ".join([told, *warnings]) if warnings else f"all {len(report.checks)} checks passed"


if __name__ == "__main__":
    main()
