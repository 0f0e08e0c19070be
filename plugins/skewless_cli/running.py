"""The commands that read input or compute: all that they need of Spark is imported here, and here only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.run.publication import record_of
from skewless.run.step_times import timed
from skewless.spec.input import States
from skewless.spec.part import Part
from skewless.spec.spec import JobSpec
from skewless_cli.progress import RunProgress
from skewless_spark.entries.clusters import Cluster, parse_clusters, run_shared_stages
from skewless_spark.entries.pipeline import Silent, finish_run, run_pipeline, run_stages
from skewless_spark.prepare.freezing import check_spec, freeze, needs_session
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from skewless_spark.result.publishing import publish_now
from skewless_spark.result.verification import Differences, differences, require_same_input
from skewless_spark.session.session import build_session
from skewless_spark.session.step_times import spark_step
from skewless_spark.sharing import share_stage, share_stages


def check_job(spec: JobSpec, where: str, part: Part, root: str) -> str:
    """Check a spec and its input; what a run of it would read, in words.

    Raises:
        SpecError: the spec cannot be run.
        InputError: the input is missing, or it is not what the spec says.
    """
    check_spec(spec, where)
    job = freeze(spec, part.date, root, where, hour=part.hour)
    waves = ", ".join(f"{job.wave_rows(stage):,}" for stage in range(len(job.waves))) or "none"
    return f"{job.extent}; waves of {waves} rows"


def clusters_named(given: Sequence[str], master: str | None) -> list[Cluster]:
    """The clusters that ``--cluster`` names, which ``--master`` must not name again."""
    if given and master:
        raise SpecError("option --master", "none beside --cluster", repr(master), "name it as one of the clusters")
    return parse_clusters(given)


def run_job(
    run: RunDirectory,
    spec: JobSpec,
    where: str,
    part: Part,
    root: str,
    master: str | None,
    clusters: Sequence[Cluster],
    console: Console,
) -> None:
    """Run a job to its end, from the last commit in its run directory on.

    Args:
        run: the run directory, new or of an earlier call.
        spec: the spec with its overrides applied.
        where: the spec's file, for messages.
        part: what to compute.
        root: where relative paths of the spec start.
        master: the Spark master, where no clusters are named.
        clusters: those that share the stages, if any.
        console: shows how far the run is.
    """
    name = f"skewless {spec.name}"
    with spark_step(run, "prepare"):
        if needs_session(spec):
            with timed("start or find the session"):
                session = build_session(name, clusters[0].master if clusters else master)
            try:
                prepare(run, spec, part.date, root, where, hour=part.hour)
            finally:
                if clusters:
                    session.stop()  # those that share the stages need its cores
        else:
            prepare(run, spec, part.date, root, where, hour=part.hour)
    if record_of(run):
        publish_now(run)  # an earlier call published it: this checks that all of it is there, and needs no Spark
        return
    with RunProgress(console) as progress:
        if clusters:
            master = run_shared_stages(run, clusters, progress).master
        spark = build_session(name, master)
        try:
            progress.follow(spark)
            (finish_run if clusters else run_pipeline)(spark, run, progress)
        finally:
            spark.stop()


def share_run(run: RunDirectory, stage: int | None, cluster: str) -> None:
    """Take part in one stage of a prepared run, or in all of them.

    Args:
        run: the run directory.
        stage: its number; None for all stages, to the end of the last one.
        cluster: ``NAME=MASTER`` of the cluster that takes part.
    """
    (here,) = parse_clusters([cluster])
    spark = build_session(f"skewless {run.job().spec.name} on {here.name}", here.master)
    try:
        if stage is None:
            share_stages(spark, run, here.name)
        else:
            share_stage(spark, run, stage, here.name)
    finally:
        spark.stop()


def verify_job(spec: JobSpec, where: str, part: Part, folder: str, root: str, master: str | None) -> Differences:
    """Compute a window twice, from kept states and from all rows, and compare. Nothing is published.

    Args:
        spec: the spec with its overrides applied.
        where: the spec's file, for messages.
        part: the run's own part.
        folder: where both runs are made.
        root: where relative paths of the spec start.
        master: the Spark master.

    Raises:
        SpecError: the job keeps no states.
        InputError: the input changed between the two runs.
    """
    if not spec.lengths:
        raise SpecError(where, "a job that keeps states", "one without", "add window: 7, for example, or states: {}")
    kept, whole = RunDirectory(f"{folder}/kept"), RunDirectory(f"{folder}/whole")
    # The states of the second run are in a store of its own, which is empty.
    alone = spec.model_copy(update={"states": States(path=f"{folder}/states")})
    spark = build_session(f"skewless verify {spec.name}", master)
    try:
        for run, of_run in ((kept, spec), (whole, alone)):
            prepare(run, of_run, part.date, root, where, hour=part.hour)
        require_same_input(kept.job(), whole.job())
        for run in (kept, whole):
            run_stages(spark, run, Silent())
            merge_states(spark, run)
        return differences(spark, kept, whole)
    finally:
        spark.stop()
