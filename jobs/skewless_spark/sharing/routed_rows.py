"""The routed rows of a shared stage, written as files: clusters read these in place of a shuffle."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import functions as F

from skewless.documents.commit import ROUTED_ROWS, CommittedFile, RoutedRows, StepCommit
from skewless.run.directory import Attempt, RunDirectory, stage_step
from skewless_spark.session.session import under_settings
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.unit_reading import Tally, placing_settings
from skewless_spark.stage.queue import Stage, routed_queue
from skewless_spark.stage.routes import TASK
from skewless_spark.states.committed_files import write_files, written

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
