"""The pieces of a shared stage: one virtual task is reduced on its own; the stage is counted from all tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame

from skewless.documents.commit import STAGE_SHARES, CommittedFile, RoutedRows, SharedTask, StageShares, TaskShare
from skewless.documents.stage_report import StageReport, TaskLoad
from skewless.run.directory import Attempt, Fence, stage_step
from skewless_spark.branches.tasks import outcome_of_tasks
from skewless_spark.engines.stage import commit_stage
from skewless_spark.session.step_lease import leased_step
from skewless_spark.sharing.routed_rows import forget_routed_rows
from skewless_spark.stage.measured_stage import measure
from skewless_spark.stage.queue import Stage
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.committed_files import BACKLOG, NATIVE, PYTHON, read_files, write_files, written


class Piece(NamedTuple):
    """One virtual task that a cluster reduces.

    Attributes:
        folder: the folder in that attempt, used for this task under this lease only.
    """

    task: int
    rows: Sequence[CommittedFile]
    cluster: str
    attempt: Attempt
    folder: str


def prepare_task(stage: Stage, piece: Piece) -> DataFrame:
    """The states and the backlog of one virtual task, by the code that reduces all tasks of an unshared stage.

    Nothing is computed yet: this takes the driver a while and Spark nothing, so it is done while another task runs.
    """
    # All rows belong to this task: no exchange is needed to have them in one partition or to group them there.
    return outcome_of_tasks(read_files(stage.spark, stage.run, piece.rows).coalesce(1), stage)


def reduce_task(outcome: DataFrame, piece: Piece) -> float:
    """Compute what was prepared, and write it; returns the seconds that this took."""
    started = time.monotonic()
    write_files(outcome, piece.attempt, piece.folder, "kind")
    return round(time.monotonic() - started, 3)


def reduced_task(piece: Piece, seconds: float) -> SharedTask:
    """A task that was written, to be committed under its lease."""
    attempt, folder = piece.attempt, piece.folder
    files = [file for kind in (NATIVE, PYTHON, BACKLOG) for file in written(attempt, kind, f"{folder}/kind={kind}")]
    return SharedTask(task=piece.task, cluster=piece.cluster, seconds=seconds, files=tuple(files))


def finish_stage(
    stage: Stage, routed: RoutedRows, done: Sequence[SharedTask], seconds: Callable[[], float]
) -> StageReport:
    """Count the pieces of a stage, and commit the stage.

    Args:
        seconds: returns the wall time of the stage so far; called last.
    """
    run, step = stage.run, stage_step(routed.stage)
    with leased_step(run, step) as fence:
        # An earlier holder of the lease, thought dead, may have committed the stage in the meantime.
        report = run.report(routed.stage) if run.commit_of(step) else _counted(stage, routed, done, seconds, fence)
    forget_routed_rows(run, routed)
    return report


def _counted(
    stage: Stage, routed: RoutedRows, done: Sequence[SharedTask], seconds: Callable[[], float], fence: Fence | None
) -> StageReport:
    run, plan = stage.run, stage.plan
    stage.spark.conf.set("spark.sql.shuffle.partitions", len(plan.tasks))
    attempt = run.new_attempt(stage_step(routed.stage), fence)
    in_order = sorted(done, key=lambda one: one.task)
    files = [file for kind in (NATIVE, PYTHON, BACKLOG) for one in in_order for file in one.files if file.kind == kind]
    report = measure(stage, files, CountsRead(run, stage.columns))
    tallied = {"source_rows": routed.source_rows, "given_rows": routed.given_rows, "stage_seconds": round(seconds(), 3)}
    report = report.model_copy(update={"tasks": tuple(map(_levelled, report.tasks)), **tallied})
    tasks = {str(plan.tasks[one.task]): TaskShare(cluster=one.cluster, seconds=one.seconds) for one in in_order}
    attempt.write(STAGE_SHARES, StageShares(stage=routed.stage, routed_by=routed.cluster, tasks=tasks))
    return commit_stage(stage, attempt, report, files)


def _levelled(load: TaskLoad) -> TaskLoad:
    """A task's load as if all clusters were equally fast, since the plan does not decide which cluster gets a task."""
    if load.busy_seconds is None:
        return load
    busy = round(load.busy_seconds / (load.slowness or 1.0), 6)
    return load.model_copy(update={"busy_seconds": busy, "slowness": 1.0})
