"""A cluster's part in shared stages: it does the work that it has leases for, until each stage is committed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from pyspark.sql import SparkSession

from skewless.documents.commit import RoutedRows, SharedTask
from skewless.documents.stage_report import StageReport
from skewless.errors import RunDirectoryError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory, stage_step
from skewless_leases import FencedOutError, Grant, StoreError, TimeSpans, Worker, check, commit, keep, read
from skewless_leases.stores.lease_tables import look_at
from skewless_spark.engines.stage import run_stage
from skewless_spark.session.step_lease import address_of_leases, has_leases
from skewless_spark.sharing.routed_rows import (
    Piece,
    finish_stage,
    prepare_task,
    reduce_task,
    reduced_task,
    route_stage,
    routed_rows,
)
from skewless_spark.stage.queue import Stage
from skewless_spark.states.job_columns import JobColumns

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

    Raises:
        LeaseError: the leases cannot be renewed.
        LedgerError: rows were lost or counted twice; nothing is committed.
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
    """The work of a lease's worker (``skewless_leases.balancing.member.Work``): grants wait here, by name.

    The thread of the leases hands them to the threads that work. A claim that has been begun is kept to its end. A
    claim that waits, or is prepared while another one is worked on, is given back as soon as another cluster asks.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Grant] = {}
        self._prepared: dict[str, Grant] = {}
        self._changed = threading.Condition()

    def granted(self, grant: Grant) -> None:
        """Let a grant wait until a thread is free."""
        with self._changed:
            self._waiting[grant.partition] = grant
            self._changed.notify()

    def asked_back(self, grant: Grant) -> bool:
        """Whether a grant was given back: it is if it has not been begun."""
        with self._changed:
            return any(claims.pop(grant.partition, None) is not None for claims in (self._waiting, self._prepared))

    def lost(self, grant: Grant) -> None:
        """Drop a grant whose lease is lost. If it has been begun, its fence will refuse the result."""
        with self._changed:
            for claims in (self._waiting, self._prepared):
                if claims.get(grant.partition) == grant:
                    del claims[grant.partition]

    def next(self, within: float) -> Grant | None:
        """The next grant to prepare; None if none comes within that many seconds."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(within)
            if not self._waiting:
                return None
            grant = self._waiting.pop(min(self._waiting))
            self._prepared[grant.partition] = grant
            return grant

    def begin(self, grant: Grant) -> bool:
        """Whether a grant that was prepared is still here; it counts as begun from now on."""
        with self._changed:
            if self._prepared.get(grant.partition) != grant:
                return False
            del self._prepared[grant.partition]
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
        slots = _slots(spark)
        # As many as it can work on at the same time, and a few more that are prepared meanwhile, so that no slot idles.
        self._room = slots + max(1, slots // 2)
        self._at_work = threading.BoundedSemaphore(slots)
        self._routed = lru_cache(maxsize=1)(lambda committed: routed_rows(run, committed))
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
                for one in working:
                    one.result()
            except BaseException as err:  # an interrupt, too: nothing more is begun
                self._failure = err
                raise

    def _open(self, committed: Mapping[str, str]) -> Collection[str]:
        """The names that can be leased now. It is asked at each look, with what has been committed under each name."""
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
        folder = f"tasks/{task}-{grant.fence}"
        piece = Piece(task, routed.tasks[task], self._cluster, self._attempt, folder)
        outcome = prepare_task(self._shared, piece)

        def reduced() -> Callable[[], str]:
            seconds = reduce_task(outcome, piece)
            return lambda: reduced_task(piece, seconds).sealed()

        return reduced

    def _route(self) -> str:
        if self._shared.plan.takes_all:
            # There are no tasks to share: one cluster runs the whole stage, and the others wait.
            return run_stage(self._spark, self._run, self._stage).digest()
        return route_stage(self._shared, self._cluster).sealed()

    def _count(self, grant: Grant, routed: RoutedRows) -> str:
        committed = look_at(self._leases.store, 0.0).committed()
        done = [SharedTask.from_sealed(committed[name].encode(), f"lease of {name}") for name in routed.partitions]
        check(self._leases.store, grant)
        return finish_stage(self._shared, routed, done, lambda: time.monotonic() - self._started).digest()

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
    return spark.sparkContext.defaultParallelism
