"""What the next stage will find queued, predicted from the last report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from skewless.job import Job
from skewless.routing_plan import WHOLE_SHARE, RoutingPlan, Shares
from skewless.stage_report import StageReport

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """Rows queued in the next stage: the backlog, exactly, and the next wave, by the rows seen so far.

    Attributes:
        plan: the plan of the stage that was reported.
        report: its report.
        wave_rows: rows of the next wave; 0 when the input is used up.
    """

    plan: RoutingPlan
    report: StageReport
    wave_rows: int

    @classmethod
    def after(cls, job: Job, plan: RoutingPlan, report: StageReport) -> Forecast:
        """The forecast for the stage after ``report``."""
        return cls(plan=plan, report=report, wave_rows=job.wave_rows(report.stage + 1))

    @property
    def queued_rows(self) -> int:
        """Rows queued in all: known before the stage runs, not predicted."""
        return self.report.backlog_rows + self.wave_rows

    @property
    def scale(self) -> float:
        """Rows of the next wave for each row seen so far."""
        seen = self.report.histogram.seen_rows
        return self.wave_rows / seen if seen else 0.0

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The head keys, heaviest first, ties by key text: the order of all arrays over the head."""
        head = self.report.histogram.head
        return tuple(sorted(head, key=lambda key: (-(head[key][1] + self.scale * head[key][0]), key)))

    @cached_property
    def head_backlog(self) -> Rows:
        """Backlog rows of each head key, shape ``(len(keys),)``."""
        head = self.report.histogram.head
        return np.array([head[key][1] for key in self.keys], dtype=np.float64)

    @cached_property
    def head_rows(self) -> Rows:
        """Rows of each head key in the next stage, shape ``(len(keys),)``, descending."""
        head = self.report.histogram.head
        seen = np.array([head[key][0] for key in self.keys], dtype=np.float64)
        return self.head_backlog + self.scale * seen

    @cached_property
    def null_rows(self) -> float:
        """Rows without a key in the next stage."""
        histogram = self.report.histogram
        return histogram.backlog_null_rows + self.scale * histogram.seen_null_rows

    def tail_rows(self, plan: RoutingPlan) -> Rows:
        """Tail and null rows of each task under a plan's ring, shape ``(tasks,)``.

        A reducer's tail is taken to spread evenly over its key buckets.
        """
        histogram = self.report.histogram
        slots = np.array(histogram.backlog_tail, dtype=np.float64)
        slots += self.scale * np.array(histogram.seen_tail, dtype=np.float64)
        reducers = np.bincount(plan.slot_tasks, weights=slots, minlength=len(plan.tasks))
        first = np.array([index - task.bucket for index, task in enumerate(plan.tasks)])
        factors = np.array([task.factor for task in plan.tasks])
        rows: Rows = reducers[first] / factors + self.null_rows / len(plan.tasks)
        return rows

    def shares_under(self, plan: RoutingPlan) -> dict[str, Shares]:
        """Where each head key of this forecast goes under a plan, be it by its head or its ring."""
        return {
            key: plan.head[key] if key in plan.head else ((plan.tail_task(key), WHOLE_SHARE),) for key in self.keys
        }

    def loads(self, plan: RoutingPlan) -> Rows:
        """Predicted rows of each task under a plan, shape ``(tasks,)``."""
        loads = self.tail_rows(plan).copy()
        shares = self.shares_under(plan)
        for key, rows in zip(self.keys, self.head_rows, strict=True):
            for task, weight in shares[key]:
                loads[task] += rows * weight / WHOLE_SHARE
        # Head keys of the plan that are no head keys of the forecast are counted on the ring:
        # they are too light to have been reported one by one.
        return loads

    def loads_unchanged(self) -> Rows:
        """Predicted rows of each task if nothing moves: the backlog stays exactly where it is."""
        wave = Forecast(plan=self.plan, report=_without_backlog(self.report), wave_rows=self.wave_rows)
        backlog = np.array([load.backlog_rows for load in self.report.tasks], dtype=np.float64)
        loads: Rows = backlog + wave.loads(self.plan)
        return loads

    def forwarded_rows(self, shares: Mapping[str, Shares], old: Mapping[str, Shares]) -> float:
        """Backlog rows of head keys that a change of shares moves to another task, expected.

        A key whose shares change is drawn anew: a row stays with the probability that its old
        and its new draw name the same task.
        """
        moved = 0.0
        for key, rows in zip(self.keys, self.head_backlog, strict=True):
            before, after = dict(old[key]), dict(shares[key])
            stay = sum(before[task] * after.get(task, 0) for task in before) / WHOLE_SHARE**2
            moved += rows * (1.0 - stay)
        return moved


def _without_backlog(report: StageReport) -> StageReport:
    histogram = report.histogram
    emptied = histogram.model_copy(
        update={
            "head": {key: (seen, 0) for key, (seen, _) in histogram.head.items()},
            "backlog_tail": (0,) * len(histogram.backlog_tail),
            "backlog_null_rows": 0,
        }
    )
    return report.model_copy(update={"histogram": emptied})
