"""What a step takes of the cluster: core-seconds held, used and lost to skew, by Spark's own record. No job is run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from skewless.documents.steps import StepBill
from skewless_spark.session.spark_jobs import SILENT, JobsSeen, Told

log = logging.getLogger(__name__)


class _Busy(NamedTuple):
    """A time in which Spark stages ran without a break.

    Attributes:
        ends: when the tasks ended that ended last, of each of the stages.
        reads: whether one of them reads what was shuffled.
    """

    began: float
    ended: float
    ends: list[float]
    reads: bool


class _Executor(NamedTuple):
    cores: int
    added: float
    removed: float

    def held(self, began: float, ended: float) -> float:
        """Core-seconds between two times."""
        return self.cores * max(0.0, min(self.removed, ended) - max(self.added, began))


def bill_of(seen: JobsSeen, jobs: Sequence[Told], began: float, ended: float) -> StepBill | None:
    """The bill of a step whose Spark jobs are these; None if Spark does not tell, or if what it tells does not add up.

    Args:
        began: when the step did, seconds since 1970, as ``ended``.
    """
    try:
        return None if not jobs and seen.silent else _bill(seen, jobs, began, ended)
    except SILENT as err:
        log.info("what the step has cost is not known: %s", err)
        return None


def _bill(seen: JobsSeen, jobs: Sequence[Told], began: float, ended: float) -> StepBill:
    each = seen.task_cores
    executors = [
        _Executor(int(one["totalCores"]), one["addTime"] / 1000.0, (one["removeTime"] or ended * 1000.0) / 1000.0)
        for one in seen.executors()
    ]
    all_tries = seen.tries(jobs)
    if len(all_tries) < sum(int(job["numCompletedStages"]) + int(job["numFailedStages"]) for job in jobs):
        raise ValueError("Spark has dropped stages of the step")
    tries = [one for one in all_tries if _tasks(one)]
    skew = {True: 0.0, False: 0.0}
    for busy in _without_break(seen, tries, sum(one.cores for one in executors) // each):
        there = sum(one.cores for one in executors if one.added < busy.ended <= one.removed)
        skew[busy.reads] += each * _waited(busy, there // each)
    used = {reads: each * sum(_seconds(one) for one in tries if _reads(one) == reads) for reads in (True, False)}
    return StepBill(
        attempts=(),
        cores=sum(one.cores for one in executors if one.removed >= ended),
        tasks=sum(map(_tasks, tries)),
        held_seconds=round(sum(one.held(began, ended) for one in executors), 3),
        used_seconds=round(sum(used.values()), 3),
        skew_seconds=round(sum(skew.values()), 3),
        reduce_used_seconds=round(used[True], 3),
        reduce_skew_seconds=round(skew[True], 3),
        shuffle_bytes=sum(int(one["shuffleWriteBytes"]) for one in tries),
        spilled_bytes=sum(int(one["diskBytesSpilled"]) for one in tries),
    )


def _without_break(seen: JobsSeen, tries: Sequence[Told], slots: int) -> list[_Busy]:
    """The times in which stages ran: those that overlap are one, as a core that one leaves is taken by another."""
    found: list[_Busy] = []
    for one in sorted(tries, key=lambda one: int(one["firstTaskLaunchedTime"])):
        first = one["firstTaskLaunchedTime"] / 1000.0
        ends = seen.last_ends(one, slots)
        busy = _Busy(first, max(ends), ends, _reads(one))
        if found and first < found[-1].ended:
            before = found.pop()
            busy = _Busy(before.began, max(before.ended, busy.ended), before.ends + ends, before.reads or busy.reads)
        found.append(busy)
    return found


def _waited(busy: _Busy, slots: int) -> float:
    """For how long slots had no task left: the tasks that ended last ran side by side, one on each of them."""
    return sum(busy.ended - end for end in sorted(busy.ends)[-slots:]) if slots else 0.0


def _seconds(stage: Told) -> float:
    return float(stage["executorRunTime"] + stage["executorDeserializeTime"]) / 1000.0


def _tasks(stage: Told) -> int:
    return int(stage["numCompleteTasks"]) + int(stage["numFailedTasks"]) + int(stage["numKilledTasks"])


def _reads(stage: Told) -> bool:
    return int(stage["shuffleReadBytes"]) > 0
