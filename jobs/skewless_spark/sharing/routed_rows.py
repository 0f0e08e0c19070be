"""The pieces of a shared stage: one virtual task is reduced on its own; the stage is counted from all tasks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.documents.commit import (
    ROUTED_ROWS,
    STAGE_SHARES,
    CommittedFile,
    RoutedRows,
    SharedTask,
    StageShares,
    StepCommit,
    TaskShare,
)
from skewless.documents.stage_report import StageReport
from skewless.run.directory import Attempt, Fence, RunDirectory, stage_step
from skewless_spark.branches.tasks import outcome_of_tasks
from skewless_spark.engines.stage import commit_stage
from skewless_spark.session.session import under_settings
from skewless_spark.session.step_lease import leased_step
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.unit_reading import Tally, placing_settings
from skewless_spark.stage.measured_stage import measure
from skewless_spark.stage.queue import Stage, routed_queue
from skewless_spark.stage.routes import TASK
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
    report = report.model_copy(update=tallied)
    tasks = {str(plan.tasks[one.task]): TaskShare(cluster=one.cluster, seconds=one.seconds) for one in in_order}
    attempt.write(STAGE_SHARES, StageShares(stage=routed.stage, routed_by=routed.cluster, tasks=tasks))
    return commit_stage(stage, attempt, report, files)


#: Kind and folder of the files.
_ROUTED = "routed"
#: The folders are named by this copy of the task's column; the rows keep the column itself, as in an unshared stage.
_FOLDER = "routed_to"
#: Partitions that rows are written from: so many that slots end together, and few enough to cost little themselves.
PARTITIONS_PER_SLOT = 4


def route_stage(stage: Stage, cluster: str) -> StepCommit:
    """Write the rows of a stage as files, task by task.

    Returns:
        A manifest of one document, ``RoutedRows``. It counts once it is committed under a lease.

    Raises:
        InputError: the input has changed since the run was prepared.
    """
    job, plan = stage.columns.job, stage.plan
    admitted = job.admitted_units(plan.waves)
    require_unchanged(job, admitted)
    attempt = stage.run.new_attempt(stage_step(plan.epoch))
    stage = replace(stage, tally=None if job.counted else Tally())
    queue = routed_queue(stage)
    # The rows of a virtual task are in one partition, and so in one file; a partition has those of several tasks.
    partitions = min(len(plan.tasks), PARTITIONS_PER_SLOT * stage.spark.sparkContext.defaultParallelism)
    in_tasks = queue.repartitionById(partitions, F.col(TASK) % partitions).withColumn(_FOLDER, F.col(TASK))
    with under_settings(stage.spark, placing_settings(job, admitted)):
        write_files(in_tasks, attempt, _ROUTED, _FOLDER)
    # Once more after the rows were read, as in every stage.
    require_unchanged(job, admitted)
    counts = stage.tally.counts if stage.tally else {}
    routed = RoutedRows(
        stage=plan.epoch, cluster=cluster, tasks=_by_task(attempt), source_rows=counts.get("source_rows"),
        given_rows=counts.get("given_rows"),
    )  # fmt: skip
    attempt.write(ROUTED_ROWS, routed)
    return attempt.manifest((), {})


def routed_rows(run: RunDirectory, committed: str) -> RoutedRows:
    """The routed rows that were committed under the lease of routing.

    Raises:
        RunDirectoryError: the document is not the one that was committed.
    """
    return run.committed_document(
        StepCommit.from_sealed(committed.encode(), "lease of routing"), ROUTED_ROWS, RoutedRows
    )


def forget_routed_rows(run: RunDirectory, routed: RoutedRows) -> None:
    """Remove the routed rows, which are as large as the wave, after the commit of their stage."""
    for folder in {file.path[: file.path.rindex(f"/{_FOLDER}=")] for files in routed.tasks.values() for file in files}:
        # Two clusters may have counted the stage, and may be here at the same time.
        with suppress(FileNotFoundError):
            run.fs.rm(f"{run.root}/{folder}", recursive=True)


def _by_task(attempt: Attempt) -> dict[int, tuple[CommittedFile, ...]]:
    found: dict[int, list[CommittedFile]] = {}
    for file in written(attempt, _ROUTED, _ROUTED):
        task = re.search(rf"/{_FOLDER}=(\d+)/", file.path)
        if task is None:
            raise ValueError(f"a routed file without a task: {file.path}")
        found.setdefault(int(task[1]), []).append(file)
    return {task: tuple(found[task]) for task in sorted(found)}
