"""spark-submit entry: take part in one stage, or in all of them, beside other clusters.

``skewless run --cluster`` starts it with ``python -m``, once for each cluster.
"""

from __future__ import annotations

import argparse

from skewless.run.directory import RunDirectory
from skewless_spark.entries.clusters import cluster_name, stay_with
from skewless_spark.entries.entry import entry_parser, run_entry, step_session
from skewless_spark.session.step_progress import StepProgress
from skewless_spark.sharing import share_stage, share_stages


def main() -> None:
    """Take part in the stage that ``--stage`` names, or without it in all stages to the last one's end."""
    parser = entry_parser("Take part in a stage, or in all of them, beside other clusters.")
    parser.add_argument("--stage", type=int, help="the number of the stage; by default all stages are shared")
    parser.add_argument("--cluster", required=True, help="a name for this cluster, for what is recorded")
    parser.add_argument("--master", help="the cluster's Spark master; by default the one that spark-submit sets")
    parser.add_argument("--stay-with", type=int, metavar="PID", help="end when the parent process is not PID any more")
    run_entry(parser, _share)


def _share(run: RunDirectory, arguments: argparse.Namespace) -> str:
    cluster, stage = cluster_name(arguments.cluster), arguments.stage
    if arguments.stay_with is not None:
        stay_with(arguments.stay_with)
    step = f"stage {stage}" if stage is not None else "stages"
    with step_session(run, f"{step} on {cluster}", arguments.master) as spark:
        if stage is None:
            share_stages(spark, run, cluster)
            return f"cluster {cluster}: all stages are committed"
        with StepProgress(spark, f"{step} on {cluster}"):
            report = share_stage(spark, run, stage, cluster)
    return f"cluster {cluster}: stage {stage} is committed, {report.processed_rows:,} rows processed by all clusters"


if __name__ == "__main__":
    main()
