"""spark-submit entry: freeze a run. It needs Spark only for some inputs, but runs where the data can be read."""

from __future__ import annotations

import argparse
import datetime as dt

from skewless.documents.job import SentSpec
from skewless.run.directory import SPEC_DOCUMENT, RunDirectory
from skewless.spec.options import parse_options, refuse_more_waves, with_options
from skewless.spec.part import part_named
from skewless.spec.reading import load_spec
from skewless_spark.entries.entry import entry_parser, run_entry
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.step_times import spark_step


def main() -> None:
    """Freeze the spec, list the input, cut the waves, and write plan 0."""
    parser = entry_parser("Freeze a run: spec, date, listed input, waves, plan 0.")
    parser.add_argument("--spec", help="the job spec, a YAML file; by default the document that the run begins with")
    parser.add_argument("--options", default="{}", help="this run's values for the spec's options, a JSON object")
    parser.add_argument("--most-waves", type=int, help="the largest number of waves that the caller has stages for")
    parser.add_argument("--date", required=True, type=dt.date.fromisoformat, help="the day to compute, YYYY-MM-DD")
    parser.add_argument("--hour", help="the hour of that day, for an hourly job: 00 to 23, or 02b")
    parser.add_argument("--root", required=True, help="where relative paths of the spec start")
    run_entry(parser, _prepare)


def _prepare(run: RunDirectory, arguments: argparse.Namespace) -> str:
    if run.exists("job.json") and run.exists("plans/0000.json"):
        # The run is frozen. Its spec may have been edited since; the edit counts for the next run.
        job = run.job()
    else:
        where = f"spec {arguments.spec or run.path(SPEC_DOCUMENT)}"
        reviewed = load_spec(arguments.spec) if arguments.spec else run.read(SPEC_DOCUMENT, SentSpec).spec
        # The sender has checked the options, but only the reviewed spec decides what a job may do: check again.
        spec = with_options(reviewed, parse_options(arguments.options, "option --options"), f"options of {where}")
        refuse_more_waves(spec, arguments.most_waves, where)
        part = part_named(
            arguments.date.isoformat(), arguments.hour, spec.schedule.timezone, spec.schedule.unit, "option --"
        )
        with spark_step(run, "prepare"):
            job = prepare(run, spec, part.date, arguments.root, where, hour=part.hour)
    told = (f"{job.extent}, {len(job.waves)} waves", job.skipped_words)
    return "; ".join(filter(None, told))


if __name__ == "__main__":
    main()
