"""What no plan can beat, and how near one comes to it.

Placing keys on tasks is the makespan problem of parallel machines: keys are jobs, tasks are machines, and a key that
may be split is a job that may be preempted and run in parallel with itself. All bounds here are additive in their
unit: rows, or rows times a cost per row.

The weights given may be some of the keys only (the known, heavy ones) as long as ``total`` counts all rows: every
bound holds for what is known, and other rows only add to loads.

How close a run came to its bound has one definition for pages, command line and replay. An application runs ``slots``
tasks side by side (``Job.slots_at``), whatever the number of reducers. So the bound of a stage is its rows divided by
its slots, or the heaviest key where it may not be split. The makespan of a stage is that of its tasks started in
order, each where one ends first (``skewless.bounds``). Stages follow each other: these add up.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.documents.job import Job
from skewless.documents.stage_report import BoundName, Certificate, StageReport
from skewless.errors import PlanError

#: A gap of a fraction of a percent comes from integer remainders and from hashing, not from a straggler.
NEAR = 0.02
#: Relative error that sums of floating-point rows are allowed before they are called wrong.
ROUNDING = 1e-6
#: What is said where no task's load is known, and so nothing of balance.
NOT_MEASURED = "not measured: the rows of each task were not counted"

Floats = npt.NDArray[np.float64]


def makespan(loads: Floats, slots: int) -> float:
    """When the last task is done, if ``slots`` tasks run side by side and are started in their order.

    Spark starts the tasks of a stage by partition, each as soon as another task has ended (list scheduling, Graham
    1966). If no task waits it is the largest of the loads, which are rows or seconds.
    """
    if len(loads) <= slots:
        return float(loads.max(initial=0.0))
    ends = loads[:slots].tolist()
    heapq.heapify(ends)
    for load in loads[slots:].tolist():
        heapq.heapreplace(ends, ends[0] + load)
    return float(max(ends))


class Keys(NamedTuple):
    """The keys that are placed."""

    total: float
    heaviest: tuple[str, float] | None
    """Key text and rows of the heaviest key, if one is known."""
    splittable: bool
    weights: npt.ArrayLike | None = None
    """Rows of the known heavy keys, ``heaviest`` among them, in any order, shape ``(keys,)``."""

    def known(self) -> Floats:
        """The rows of the known keys, heaviest first; a ``PlanError`` if they contradict the total."""
        if self.weights is None:
            return np.array([self.heaviest[1]] if self.heaviest else [])
        return heaviest_first(self.weights, self.total)


def certify(keys: Keys, tasks: float, makespan: float | None, *, predicted: bool = False) -> Certificate:
    """Hold a largest load to the best of the bounds that hold and say what follows.

    Args:
        tasks: tasks that run side by side, at least 1, however many a plan has: a decision and a finished run are
            both held to all of them being busy all the time. Of stages with unlike slots it is their mean.
        makespan: the largest load of a task, in rows; None if it was not measured: then nothing is claimed.
        predicted: whether the makespan is a forecast's, which may be too low, and not a measured one.

    Raises:
        PlanError: the numbers cannot belong to one plan: weights above the total or below ``heaviest``, or a measured
            makespan below the bound, which no plan can have.
    """
    known, total = keys.known(), keys.total
    key, rows = keys.heaviest or (None, float(known[0]) if known.size else 0.0)
    bounds = known_bounds(known, total, tasks, keys.splittable)
    most = max(bound.rows for bound in bounds)
    # The first of those that only rounding tells apart.
    best = next(bound for bound in bounds if bound.rows >= most * (1.0 - 1e-12))
    return Certificate(
        total_rows=total,
        tasks=round(tasks),
        fair_rows=bounds[0].rows,
        heaviest_key=key,
        heaviest_rows=rows,
        splittable=keys.splittable,
        bound_rows=best.rows,
        makespan_rows=makespan,
        gap=_gap(makespan, best, predicted),
        conclusion=_conclusion(bounds, best, round(tasks), makespan, key, rows / total if total else 0.0),
        bound_name=best.name,
    )


class Bound(NamedTuple):
    """A bound, its name, and for several keys how many of the heaviest it is about."""

    rows: float
    name: BoundName
    keys: int = 0


def _gap(makespan: float | None, best: Bound, predicted: bool) -> float | None:
    """How far above the bound; nothing measured is below it, so such a figure is not to be made to look right."""
    if makespan is None:
        return None
    if predicted:
        return makespan / best.rows - 1.0 if best.rows else 0.0
    if makespan < best.rows * (1.0 - ROUNDING):
        raise PlanError(
            "certificate", f"a makespan of at least {best.rows:g}, the bound ({best.name})", f"{makespan:g}"
        )
    return max(makespan / best.rows, 1.0) - 1.0 if best.rows else 0.0


def _conclusion(
    bounds: list[Bound], best: Bound, tasks: int, makespan: float | None, heaviest: str | None, part: float
) -> str:
    fairest, alone = bounds[0].rows, next((one.rows for one in bounds if one.name == "heaviest key"), 0.0)
    if not fairest:
        return "nothing is queued"
    if makespan is None:
        return NOT_MEASURED
    if alone > fairest:
        who = "the heaviest key" if heaviest is None else f"key {heaviest[:80]!r}"
        # More tasks do separate heavy keys that meet in one, but never bring the load below the one key.
        floor = f" below {alone:,.0f} rows" if best.name == "several heavy keys" else ""
        whole = f"{who} alone is {part:.0%} of the rows and its aggregates may not be split"
        return f"more tasks will not help{floor}: {whole}"
    if makespan / fairest - 1.0 <= NEAR:
        return "balanced: the largest task is at the fair share"
    gap = makespan / best.rows - 1.0
    if gap <= NEAR:
        return (
            f"no plan is clearly better: the {best.keys} heaviest keys, which may not be split, "
            f"cannot be spread more thinly over {tasks} tasks"
        )
    return f"the largest task is {gap:.0%} above the best possible"


def known_bounds(ordered: Floats, total: float, tasks: float, splittable: bool) -> list[Bound]:
    """All bounds of the largest load that hold, the fair share first; in O(n log n) of n keys, heaviest first.

    With ``n(j)`` the j-th heaviest key and W tasks:

    - ``total / W``: some task has at least the mean (pigeonhole principle). It is attained if keys may be split at will
      (McNaughton 1959, Management Science 6, 1-12). All others are for whole keys.
    - ``n(1)``: some task has the heaviest key.
    - for each q >= 1, the sum of ``n(qW - q + 1) .. n(qW + 1)``. Proof: of the ``qW + 1`` heaviest keys some task takes
      at least ``q + 1``, and no ``q + 1`` of them weigh less than the lightest ``q + 1``. (With q = 1 it is the bound
      ``p(m) + p(m+1)`` of Dell'Amico and Martello 1995, ORSA J. Computing 7, 191-200.)

    Raises:
        PlanError: no task, or a total that is negative or not finite.
    """
    if tasks < 1 or not 0 <= total < np.inf:
        raise PlanError("bounds", "at least one task and a finite total of 0 or more", f"{tasks} and {total:g}")
    fair = Bound(total / tasks, "fair share")
    if splittable or not ordered.size:
        return [fair]
    return [fair, Bound(float(ordered[0]), "heaviest key"), _crowded(ordered, round(tasks))]


def _crowded(ordered: Floats, tasks: int) -> Bound:
    together = np.arange(1, (len(ordered) - 1) // tasks + 1)
    if not together.size:
        return Bound(0.0, "several heavy keys")
    heaviest = np.append(0.0, np.cumsum(ordered))
    last = together * tasks + 1
    sums = heaviest[last] - heaviest[last - together - 1]
    most = int(np.argmax(sums))
    return Bound(float(sums[most]), "several heavy keys", int(last[most]))


def heaviest_first(weights: npt.ArrayLike, total: float) -> Floats:
    """The weights in descending order; a ``PlanError`` if they are more than the total of all rows."""
    listed = np.asarray(weights, dtype=np.float64)
    if listed.ndim != 1 or not np.isfinite(listed).all() or (listed < 0).any():
        raise PlanError("bounds", "a list of finite weights, none below 0", repr(weights)[:120])
    if (known := float(listed.sum())) > total * (1.0 + ROUNDING):
        raise PlanError("bounds", f"a total of at least {known:g}, the sum of the weights", f"{total:g}")
    return np.sort(listed)[::-1]


def stage_makespan(job: Job, report: StageReport) -> float | None:
    """The makespan of a stage, in rows; None where the rows of its tasks were not counted."""
    return makespan(report.processed.astype(np.float64), job.slots_at(report)) if report.measured else None


def stage_certificate(job: Job, report: StageReport) -> Certificate:
    """The certificate of one stage by the fair share alone: the rows of the heaviest key are not counted by stage."""
    keys = Keys(float(report.processed_rows), None, splittable=True)
    return certify(keys, job.slots_at(report), stage_makespan(job, report))


@dataclass(frozen=True)
class StageFigures:
    """What the certificate of a run needs of one stage."""

    processed_rows: int
    slots: int
    makespan_rows: float | None
    heaviest: tuple[str, float] | None
    """Key text of the key with the most rows reduced by the end of the stage, and those rows."""


def stage_figures(job: Job, report: StageReport) -> StageFigures:
    """The figures of one stage."""
    reduced = ((key, float(seen - left)) for key, (seen, left) in report.histogram.head.items())
    heaviest = max(reduced, key=lambda one: one[1], default=None)
    return StageFigures(report.processed_rows, job.slots_at(report), stage_makespan(job, report), heaviest)


def run_certificate(job: Job, reports: Sequence[StageReport]) -> Certificate:
    """``certificate_of`` of the stages' reports, in order."""
    return certificate_of(job, [stage_figures(job, report) for report in reports])


def certificate_of(job: Job, stages: Sequence[StageFigures]) -> Certificate:
    """The certificate of all stages so far, by their figures, in order.

    The bound holds for the sum of the makespans: each stage takes at least its rows divided by its slots, and at least
    its rows of any one key that may not be split. Bounds about several keys together hold for one stage only, since the
    next stage may place them with other keys. Where stages had unlike slots, ``tasks`` is their mean by rows.
    """
    took = [stage.makespan_rows for stage in stages]
    rows = float(sum(stage.processed_rows for stage in stages))
    keys = Keys(rows, stages[-1].heaviest if stages else None, splittable=job.splittable)
    whole = None if None in took else sum(one for one in took if one is not None)
    fair = sum(stage.processed_rows / stage.slots for stage in stages)
    return certify(keys, rows / fair if fair else job.slots_at(), whole)
