"""Several Spark clusters share the virtual tasks of a stage: ``docs/several_clusters.md``.

One cluster routes the rows of the stage and writes those of each task as files. Then all clusters take tasks under
leases, reduce them as an unshared stage does, and commit each task through its fence. At the end one cluster counts
the tasks and commits the stage.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from queue import Empty, PriorityQueue

from pyspark.sql import SparkSession
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
from skewless.errors import RunDirectoryError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import Attempt, Fence, RunDirectory, stage_step
from skewless_leases import FencedOutError, Grant, StoreError, TimeSpans, Worker, check, commit, keep, read
from skewless_leases.lease_tables import look_at
from skewless_spark.branches import outcome_of_tasks
from skewless_spark.engines.stage import commit_stage, run_stage
from skewless_spark.session.session import under_settings
from skewless_spark.session.step_lease import address_of_leases, has_leases, once
from skewless_spark.session.step_measures import JobsSeen
from skewless_spark.session.versions import place
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.unit_reading import Tally, placing_settings
from skewless_spark.stage.measured_stage import measure
from skewless_spark.stage.routes import TASK, Stage, routed_queue
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.committed_files import BACKLOG, NATIVE, PYTHON, read_files, write_files, written
from skewless_spark.states.job_columns import JobColumns


def _counted(
    stage: Stage, routed: RoutedRows, done: Sequence[SharedTask], seconds: Callable[[], float], fence: Fence | None
) -> StageReport:
    run, plan = stage.run, stage.plan
    stage.spark.conf.set("spark.sql.shuffle.partitions", len(plan.tasks))
    attempt = run.new_attempt(stage_step(routed.stage), fence)
    in_order = sorted(done, key=lambda task: task.task)
    kinds = (NATIVE, PYTHON, BACKLOG)
    files = [file for kind in kinds for task in in_order for file in task.files if file.kind == kind]
    report = measure(stage, files, CountsRead(run, stage.columns))
    tallied = {"source_rows": routed.source_rows, "given_rows": routed.given_rows, "stage_seconds": round(seconds(), 3)}
    slots = sum({one.cluster: one.slots for one in done}.values()) or None
    report = report.model_copy(update={**tallied, "slots": slots})
    tasks = {str(plan.tasks[done.task]): TaskShare(cluster=done.cluster, seconds=done.seconds) for done in in_order}
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
    """
    job, plan = stage.columns.job, stage.plan
    admitted = job.admitted_units(plan.waves)
    require_unchanged(job, admitted)
    attempt = stage.run.new_attempt(stage_step(plan.epoch))
    stage = replace(stage, tally=None if job.counted else Tally())
    queue = routed_queue(stage)
    # The rows of a virtual task are in one partition, and so in one file; a partition has those of several tasks.
    partitions = min(len(plan.tasks), PARTITIONS_PER_SLOT * stage.spark.sparkContext.defaultParallelism)
    in_tasks = place(queue, partitions, F.col(TASK) % partitions).withColumn(_FOLDER, F.col(TASK))
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


log = logging.getLogger(__name__)

#: The work that is done once per stage, before and after its tasks. Tasks have the names of ``RoutedRows.partitions``.
ROUTING, COUNTING = "routing", "counting"
#: Seconds between two checks whether the stage has ended, while nothing is granted.
_POLL_SECONDS = 0.2
#: How often a store that does not answer is tried before the result of a task is given up; one look lies between tries.
_TRIES = 20


def share_stages(spark: SparkSession, run: RunDirectory, cluster: str) -> None:
    """Take part in all stages of a prepared run, and decide after each, until no further stage is needed."""
    stage = 0
    while True:
        share_stage(spark, run, stage, cluster)
        if run.decide(stage + 1, plan_next_stage).next_plan is None:
            return
        stage += 1


def share_stage(spark: SparkSession, run: RunDirectory, stage: int, cluster: str) -> StageReport:
    """Take part in a stage until one of the clusters has committed it.

    Args:
        cluster: the name of this cluster in what is recorded. Two clusters may have the same name.
    """
    if not run.commit_of(stage_step(stage)):
        _Participation(spark, run, stage, cluster).take_part()
    return run.report(stage)


def lease_address(run: RunDirectory, stage: int) -> str:
    """The address of the leases of a stage.

    Raises:
        RunDirectoryError: the file system of the run directory has none.
    """
    if not has_leases(run):
        raise RunDirectoryError(
            f"run directory {run}", "a path of a shared file system or an object store, for the leases", run.path("")
        )
    return address_of_leases(run, f"{stage_step(stage)}/leases")


class Claims:
    """The work of a lease's worker (``skewless_leases.worker.Work``): grants wait here, by name.

    The thread of the leases hands them to the threads that work. A claim that has been begun is kept to its end. A
    claim that waits, or is prepared while another one is worked on, is given back as soon as another cluster asks.
    """

    def __init__(self) -> None:
        self._waiting: PriorityQueue[tuple[str, int]] = PriorityQueue()
        self._unbegun: dict[str, Grant] = {}
        self._lock = threading.Lock()

    def granted(self, grant: Grant) -> None:
        """Let a grant wait until a thread is free."""
        with self._lock:
            self._unbegun[grant.partition] = grant
        self._waiting.put((grant.partition, grant.fence))

    def asked_back(self, grant: Grant) -> bool:
        """Whether a grant was given back: it is if it has not been begun."""
        with self._lock:
            return self._unbegun.pop(grant.partition, None) is not None

    def lost(self, grant: Grant) -> None:
        """Drop a grant whose lease is lost. If it has been begun, its fence will refuse the result."""
        self.begin(grant)

    def next(self, within: float) -> Grant | None:
        """The next grant to prepare; None if none comes within that many seconds, or if it was given back or lost."""
        try:
            partition, fence = self._waiting.get(timeout=within)
        except Empty:
            return None
        grant = self._unbegun.get(partition)
        return grant if grant and grant.fence == fence else None

    def begin(self, grant: Grant) -> bool:
        """Whether a grant that was prepared is still here; it counts as begun from now on."""
        with self._lock:
            if self._unbegun.get(grant.partition) != grant:
                return False
            del self._unbegun[grant.partition]
            return True


class _Participation:
    def __init__(self, spark: SparkSession, run: RunDirectory, stage: int, cluster: str) -> None:
        self._spark, self._run, self._stage, self._cluster = spark, run, stage, cluster
        self._started = time.monotonic()
        self._attempt = run.new_attempt(stage_step(stage))
        # Read once: reading a plan of many tasks and keys takes as long as reducing a small task.
        job = run.job()
        self._shared = Stage(spark, run, JobColumns.of(job), run.plan(stage), in_pieces=True)
        self._claims = Claims()
        self._slots = slots = _slots(spark)
        # As many as it can work on at the same time, and a few more that are prepared meanwhile, so that no slot idles.
        self._room = slots + max(1, slots // 2)
        self._at_work = threading.BoundedSemaphore(slots)
        self._routed = lru_cache(maxsize=1)(
            lambda sealed: run.committed_document(
                StepCommit.from_sealed(sealed.encode(), "lease of routing"), ROUTED_ROWS, RoutedRows
            )
        )
        self._leases = Worker(
            lease_address(run, stage),
            cluster,
            room=self._room,
            partitions=self._open,
            spans=TimeSpans.around(job.spec.sharing.lease_seconds),
            work=self._claims,
        )
        self._failure: BaseException | None = None

    def take_part(self) -> None:
        with self._leases, ThreadPoolExecutor(self._room) as pool:
            working = [pool.submit(self._work) for _ in range(self._room)]
            try:
                for work in working:
                    work.result()
            except BaseException as err:  # an interrupt, too: nothing more is begun
                self._failure = err
                raise

    def _open(self, committed: Mapping[str, str]) -> Collection[str]:
        if self._ended():
            return ()
        if ROUTING not in committed:
            return (ROUTING,)
        routed = self._routed(committed[ROUTING])
        rows = routed.rows
        return {name: rows[task] for name, task in routed.partitions.items() if name not in committed} or (COUNTING,)

    def _work(self) -> None:
        """Do what is granted, one after the other, until the stage has ended or a thread of this cluster has failed."""
        try:
            while self._failure is None and not self._ended():
                self._leases.grants()  # raises if the thread of the leases has failed
                if grant := self._claims.next(_POLL_SECONDS):
                    self._do(grant)
        except Exception as err:
            self._failure = err
            raise

    def _do(self, grant: Grant) -> None:
        """Prepare the work of a grant, do it once a slot is free, and commit it while the next one is done."""
        try:
            work = self._prepared(grant)
            with self._at_work:
                if self._failure is not None or not self._claims.begin(grant):
                    return
                self._persistently(lambda: keep(self._leases.store, grant))
                outcome = work()
            value = outcome()
            self._persistently(lambda: commit(self._leases.store, grant, value))
            self._leases.look_soon()
        except FencedOutError as err:
            log.warning("%s: %s", self._cluster, err)
        except Exception:
            # After the commit of the stage its routed rows are deleted: a late task fails for that alone.
            if not self._ended():
                raise

    def _prepared(self, grant: Grant) -> Callable[[], Callable[[], str]]:
        """The work of a grant: called, it works, and returns what gives the value to commit under the lease."""
        if grant.partition == ROUTING:
            return lambda: partial(str, self._route())
        routed = self._routed(self._committed(ROUTING))
        if grant.partition == COUNTING:
            return lambda: partial(str, self._count(grant, routed))
        task = routed.partitions[grant.partition]
        folder = f"tasks/{task}-{grant.fence}"  # for this task under this lease only
        # The code that reduces all tasks of an unshared stage; all rows belong to this task, and need no exchange. This
        # takes the driver a while and Spark nothing, so it is done while another task runs.
        rows = read_files(self._spark, self._run, routed.tasks[task])
        outcome = outcome_of_tasks(rows.coalesce(1), self._shared)

        def reduced() -> Callable[[], str]:
            started = time.monotonic()
            write_files(outcome, self._attempt, folder, "kind")
            return partial(self._reduced, task, folder, round(time.monotonic() - started, 3))

        return reduced

    def _reduced(self, task: int, folder: str, seconds: float) -> str:
        kinds = (NATIVE, PYTHON, BACKLOG)
        files = [file for kind in kinds for file in written(self._attempt, kind, f"{folder}/kind={kind}")]
        return SharedTask(
            task=task, cluster=self._cluster, slots=self._slots, seconds=seconds, files=tuple(files)
        ).sealed()

    def _route(self) -> str:
        if self._shared.plan.takes_all:
            # There are no tasks to share: one cluster runs the whole stage, and the others wait.
            return run_stage(self._spark, self._run, self._stage).digest()
        return route_stage(self._shared, self._cluster).sealed()

    def _count(self, grant: Grant, routed: RoutedRows) -> str:
        committed = look_at(self._leases.store, 0.0).committed()
        done = [SharedTask.from_sealed(committed[name].encode(), f"lease of {name}") for name in routed.partitions]
        check(self._leases.store, grant)
        run, step, seconds = self._run, stage_step(self._stage), lambda: time.monotonic() - self._started
        report = once(
            run, step, lambda: run.report(self._stage) if run.commit_of(step) else None,
            partial(_counted, self._shared, routed, done, seconds),
        )  # fmt: skip
        forget_routed_rows(run, routed)
        return report.digest()

    def _committed(self, name: str) -> str:
        value = read(self._leases.store, name).value
        if value is None:
            raise RunDirectoryError(f"leases of {self._run}", f"what {name} committed", "nothing")
        return value

    def _persistently(self, write: Callable[[], None]) -> None:
        """Write under a lease, and try again if the store does not answer. Writing twice does no harm."""
        for _ in range(_TRIES - 1):
            try:
                return write()
            except StoreError as err:
                log.warning("%s tries again: %s", self._cluster, err)
                time.sleep(self._leases.spans.look_every)
        return write()

    def _ended(self) -> bool:
        return self._run.exists(f"{stage_step(self._stage)}/COMMIT.json")


def _slots(spark: SparkSession) -> int:
    """How many tasks this cluster runs at once. A standalone cluster knows it only once its executors have started."""
    if not (spark.sparkContext.master or "").startswith("local"):
        spark.range(1).count()
    return JobsSeen(spark).slots or spark.sparkContext.defaultParallelism
