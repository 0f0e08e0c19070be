"""What a row costs, and how fast a task is, as the last report measured them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skewless.columns import column
from skewless.documents.stage_report import StageReport
from skewless.planner.placement.placement import Rows

#: Speeds that differ by less than this are noise, and all tasks are taken to be alike.
ALIKE = 0.15
#: Keys whose rows cost unlike the average matter if they have more than this part of the rows.
FEW_UNLIKE = 0.02


@dataclass(frozen=True)
class RowCosts:
    """Costs of rows, in rows of average cost, and speeds of tasks, by the report of the last stage."""

    report: StageReport

    @cached_property
    def mean_seconds(self) -> float | None:
        """Seconds for a row of average cost; None if rows were not measured, or cost about the same."""
        histogram = self.report.histogram
        if not histogram.head_seconds or histogram.tail_seconds is None:
            return None
        done = self.report.histogram.seen_rows - self.report.backlog_rows
        seconds = math.fsum(histogram.head_seconds.values()) + histogram.tail_seconds
        mean = seconds / done if done > 0 and seconds > 0 else None
        return mean if mean and self._unlike_part(mean, done) > FEW_UNLIKE else None

    def _unlike_part(self, mean: float, done: int) -> float:
        """The part of the reduced rows whose keys cost clearly more or less than the average row."""
        unlike = 0.0
        for key, seconds in self.report.histogram.head_seconds.items():
            seen, left = self.report.histogram.head.get(key, (0, 0))
            rows = seen - left
            if rows > 0 and abs(seconds / rows / mean - 1.0) > ALIKE:
                unlike += rows
        return unlike / done

    def of_keys(self, keys: Sequence[str]) -> Rows:
        """Cost of a row of each of these keys, which the report names; others cost as the tail does."""
        costs = np.full(len(keys), self.tail_cost)
        mean = self.mean_seconds
        if mean is None:
            return costs
        histogram = self.report.histogram
        for at, key in enumerate(keys):
            seen, left = histogram.head[key]
            if seen > left and key in histogram.head_seconds:
                costs[at] = histogram.head_seconds[key] / (seen - left) / mean
        return costs

    @cached_property
    def tail_cost(self) -> float:
        """Cost of a row of any other key, in rows of average cost."""
        mean, histogram = self.mean_seconds, self.report.histogram
        if mean is None or histogram.tail_seconds is None:
            return 1.0
        measured = set(histogram.head_seconds)
        seen = sum(rows for key, (rows, _) in histogram.head.items() if key in measured)
        left = sum(rows for key, (_, rows) in histogram.head.items() if key in measured)
        done = (histogram.seen_rows - seen) - (self.report.backlog_rows - left)
        if done <= 0:
            return 1.0
        return histogram.tail_seconds / done / mean

    @cached_property
    def speeds(self) -> Rows:
        """Speed of each task relative to the median, shape ``(tasks,)``; 1 if it was not measured.

        Measured on the rows of light keys if those were timed separately, else as rows per busy second. If only keys
        were timed, a difference between tasks is attributed to their keys.
        """
        loads = self.report.tasks
        slowness = [one for one in column(loads, "slowness") if one is not None]
        if len(slowness) == len(loads):
            apart = 1.0 / np.array(slowness)
            return np.ones(len(loads)) if apart.max() - apart.min() < ALIKE else apart
        timed = list(zip(column(loads, "processed_rows"), column(loads, "busy_seconds"), strict=True))
        even = np.ones(len(loads))
        if self.mean_seconds is not None or not all(rows and seconds for rows, seconds in timed):
            return even
        rates = np.array([rows / seconds for rows, seconds in timed if seconds])
        speeds = rates / np.median(rates)
        return even if speeds.max() - speeds.min() < ALIKE else speeds
