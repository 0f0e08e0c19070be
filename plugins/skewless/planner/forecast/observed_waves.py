"""What the waves so far have shown: rows of each key, how wrong the last forecast was, and what stages and rows cost.

The error of a forecast is that of a sample: of N rows predicted from S rows seen, a task that gets n of them is off by
``sqrt(f n (1 + N/S))`` rows (the sum of two Poisson variances), where f >= 1 says how much more the waves differ than
rows drawn one by one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.bounds import makespan
from skewless.columns import numbers
from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport
from skewless.errors import PlanError
from skewless.planner.placement.placement import Indices, Rows
from skewless.routing.hashing import key_slots
from skewless.routing.plan import RoutingPlan


@dataclass(frozen=True, eq=False)
class WaveCounts:
    """Rows of each item in each wave, as far as the reports tell.

    An item is a key that the last report names, or a slot of the ring (all other keys in it), or the rows without a
    key. These counts are exact: each item over the run; each slot with its named keys in each stage; each stage; and a
    key from the first report on after which every report names it. Its rows before that are estimated from the rows of
    its slot that belong to no key with an exact count, in proportion to the totals. If a stage admitted several waves,
    its rows are divided among them in proportion to their sizes.
    """

    keys: tuple[str, ...]
    """The named keys, in text order."""
    slots: Indices
    """The slot of each of them, shape ``(keys,)``."""
    by_item: Rows
    """Rows, shape ``(waves, keys + slots of the ring + 1)``, in that order, the last those without a key."""

    @classmethod
    def of_reports(cls, job: Job, reports: Sequence[StageReport], ring_slots: int | None = None) -> "WaveCounts":
        """Recover the counts from the reports of all stages, on their own ring or (``Histogram.on_ring``) another."""
        _refuse_unfinished(job, reports)
        if ring_slots is not None:
            reports = [one.model_copy(update={"histogram": one.histogram.on_ring(ring_slots)}) for one in reports]
        keys = tuple(sorted(reports[-1].histogram.head))
        size = len(reports[-1].histogram.seen_tail)
        slots = key_slots(keys, size)
        by_stage = rows_by_stage(keys, reports)
        by_item = np.zeros((len(job.waves), len(keys) + size + 1))
        for report, rows in zip(reports, by_stage, strict=True):
            waves = np.array([job.wave_rows(wave) for wave in range(*report.waves)], dtype=np.float64)
            if waves.any():
                by_item[slice(*report.waves)] = np.outer(waves / waves.sum(), rows)
        return cls(keys, slots, by_item)

    @property
    def ring_slots(self) -> int:
        """Slots of the ring."""
        return int(self.by_item.shape[1]) - len(self.keys) - 1

    def rows_of(self, waves: tuple[int, int]) -> Rows:
        """Rows of each item in the waves ``first <= wave < end``."""
        rows: Rows = self.by_item[slice(*waves)].sum(axis=0)
        return rows


def rows_by_stage(keys: Sequence[str], reports: Sequence[StageReport]) -> Rows:
    """Rows of each item in each stage, shape ``(reports, items)``; a ``PlanError`` if a report counts fewer."""
    slots = key_slots(keys, len(reports[-1].histogram.seen_tail))
    rows: Rows = np.diff(_cumulated(keys, slots, reports), axis=0, prepend=0.0)
    if rows.min() < 0.0:
        stage = reports[int(np.argwhere(rows < 0.0)[0][0])].stage
        raise PlanError(
            f"report of stage {stage}", "at least as many rows seen of each key as in the stage before", "fewer",
            "restore the file from a copy, or begin a new run directory",
        )  # fmt: skip
    return rows


def _cumulated(keys: Sequence[str], slots: Indices, reports: Sequence[StageReport]) -> Rows:
    """Rows seen of each item up to each report, shape ``(reports, items)``, ascending along the reports.

    Backwards from the last report, which is exact. A key counts as exact only if every later report names it too:
    then the other rows of its slot can only grow along the reports, and no wave gets a negative count.
    """
    last = reports[-1].histogram
    found = [_items([last.head[key][0] for key in keys], last.seen_tail, last.seen_null_rows)]
    exact = np.ones(len(keys), dtype=bool)
    for report in reversed(reports[:-1]):
        head, size = report.histogram.head, len(last.seen_tail)
        exact &= np.array([key in head for key in keys], dtype=bool)
        seen = np.array([head.get(key, (0, 0))[0] for key in keys], dtype=np.float64)
        after, rest_after = found[-1][: len(keys)], found[-1][len(keys) : -1]
        hidden = slot_rows(report.histogram) - np.bincount(slots[exact], weights=seen[exact], minlength=size)
        hidden_after = np.bincount(slots[~exact], weights=after[~exact], minlength=size) + rest_after
        part = np.clip(hidden / np.maximum(hidden_after, 1e-9), 0.0, 1.0)
        counts = np.where(exact, seen, after * part[slots])
        found.append(_items(counts, rest_after * part, report.histogram.seen_null_rows))
    return np.array(found[::-1])


def _items(keys: npt.ArrayLike, slots: npt.ArrayLike, without: float) -> Rows:
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in (keys, slots, [without])])


def slot_rows(histogram: Histogram) -> Rows:
    """Rows seen in each slot, those of named keys included, shape ``(2**ring_bits,)``."""
    size = len(histogram.seen_tail)
    seen = np.array([rows for rows, _ in histogram.head.values()], dtype=np.float64)
    heads = np.bincount(key_slots(tuple(histogram.head), size), weights=seen, minlength=size)
    return np.array(histogram.seen_tail, dtype=np.float64) + heads


def _refuse_unfinished(job: Job, reports: Sequence[StageReport]) -> None:
    reached = reports[-1].waves[1] if reports else 0
    if not reports or reached < len(job.waves):
        raise PlanError(
            "replay", f"the reports of a run that admitted all {len(job.waves)} waves",
            f"those of {len(reports)} stages, which admitted {reached}", "let the run end first",
        )  # fmt: skip
    counted, admitted = reports[-1].histogram.seen_rows, sum(report.admitted_rows for report in reports)
    if counted != admitted:
        raise PlanError(
            "replay", f"reports that count the keys of all {admitted:,} rows", f"the keys of {counted:,}: not measured"
        )
    sizes = {len(report.histogram.seen_tail) for report in reports}
    if len(sizes) > 1:
        raise PlanError("replay", "reports with one number of ring slots", " and ".join(map(str, sorted(sizes))))


#: Weights of a stage relative to the one after it: from all alike (1) down to the last one alone (0).
WEIGHTS = (1.0, 0.5, 0.25, 0.0)


def weighted(job: Job, reports: Sequence[StageReport]) -> Histogram | None:
    """The last histogram with its seen rows weighted by age; None if all weigh alike, or no forecast was checked yet.

    Waves that are samples of the whole input are alike, and all rows seen have the same weight. In waves that come in
    order, keys begin and end. How fast they do is measured: which weights of the earlier stages would have predicted
    the last one best? Two numbers are fitted by least squares over the named keys, the slots of the ring and the rows
    without a key: the weight of a stage relative to the one after it, and the part of the forecast to believe. The rest
    of the rows is spread evenly over the ring, as rows of unseen keys.
    """
    last = reports[-1].histogram
    if not job.in_order or len(reports) < 2 or not last.head or not reports[-1].admitted_rows:
        return None
    if len({len(report.histogram.seen_tail) for report in reports}) > 1:
        return None
    keys = list(last.head)
    stages = rows_by_stage(keys, reports)
    even = np.zeros(stages.shape[1])
    even[len(keys) : -1] = 1.0 / len(last.seen_tail)
    fits = [(*_fitted(_aged(stages[:-1], weight), stages[-1], even), -weight) for weight in WEIGHTS]
    _, believed, weight = min(fits)
    rows = _aged(stages, -weight)
    rows = believed * rows + (1.0 - believed) * float(rows.sum()) * even
    # Round along the ring, not slot by slot: a quarter of a row in each slot must not become none in all of them.
    rows[len(keys) : -1] = np.diff(np.rint(np.cumsum(rows[len(keys) : -1])), prepend=0.0)
    whole = np.rint(rows).astype(np.int64).tolist()
    return last.model_copy(
        update={
            "seen_rows": sum(whole),
            "seen_null_rows": whole[-1],
            "head": {key: (whole[at], last.head[key][1]) for at, key in enumerate(keys)},
            "seen_tail": np.array(whole[len(keys) : -1], dtype=np.int64),
        }
    )


def _aged(stages: Rows, weight: float) -> Rows:
    weights = weight ** np.arange(len(stages) - 1, -1, -1.0)
    rows: Rows = weights @ stages
    return rows


def _fitted(before: Rows, after: Rows, even: Rows) -> tuple[float, float]:
    """The least sum of squared errors, and the part of ``before`` to believe, from 0 to 1, that gives it."""
    predicted, came = before / max(1.0, float(before.sum())) - even, after / max(1.0, float(after.sum())) - even
    size = float(predicted @ predicted)
    believed = min(1.0, max(0.0, float(predicted @ came) / size)) if size else 0.0
    return float(((came - believed * predicted) ** 2).sum()), believed


#: The dispersion of a forecast that is the first of its run: twice the error of a sample.
UNCHECKED = 4.0
#: The same where waves come in order: nothing says yet that the keys of one are those of the next.
UNCHECKED_IN_ORDER = 400.0


def dispersion(plan: RoutingPlan, report: StageReport, in_order: bool = False) -> float:
    """How much more a stage's queues differed from their forecast than a sample would, at least 1.

    The f of the formula above: source partitions are no random samples, and keys drift. Where no
    forecast has been held to what came, the next one is taken to be ``UNCHECKED``.
    """
    before = report.histogram.seen_rows - report.admitted_rows
    if not plan.expected_rows or not report.admitted_rows or before <= 0:
        return UNCHECKED_IN_ORDER if in_order else UNCHECKED
    queued = numbers(report.tasks, "queued_rows").astype(np.float64)
    expected = np.array(plan.expected_rows, dtype=np.float64)
    fresh = report.admitted_rows / max(1, report.admitted_rows + report.backlog_in_rows)
    variance = np.maximum(1.0, expected * fresh * (1.0 + report.admitted_rows / before))
    return max(1.0, float(np.mean((queued - expected) ** 2 / variance)))


def misses(plan: RoutingPlan, report: StageReport, first: StageReport) -> Rows:
    """By how much queues differed from their forecast, as multiples of a fair share of the rows admitted.

    Of the last stage, and of the first one, for which an even spread was predicted: keys that nobody has seen yet
    will spread as keys did then. They add up to about 0; nothing where nothing was admitted.
    """
    return np.concatenate([_missed(report, plan.expected_rows), _missed(first, ())])


def _missed(report: StageReport, expected: Sequence[int]) -> Rows:
    queued = numbers(report.tasks, "queued_rows").astype(np.float64)
    if not report.admitted_rows:
        return np.zeros(0)
    told = np.array(expected, dtype=np.float64) if expected else queued.mean()
    return np.asarray((queued - told) * len(queued) / report.admitted_rows)


# How far the keys of two runs, or of a run and its forecast, differ: the total variation distance of their shares,
# sum |p - q| / 2, the part of the rows that would have to be of another key. Both are samples, and even of the same
# source they differ: with n and m rows a share r has a difference of standard deviation sqrt(r (1 - r) (1/n + 1/m)),
# whose absolute value is sqrt(2 / pi) of that in the mean (half-normal distribution). Half the sum of these means is
# taken off: what is left is, in the mean, at most the true distance, and 0 where nothing but chance differs.


def drift(first: Histogram, second: Histogram) -> float:
    """The distance, from 0 to 1, of the keys that were seen, sampling noise taken off; 0 if one of them is empty.

    Keys that both name are compared one by one, all others added up per slot of the ring, and rows
    without a key for themselves. Adding up can only bring shares nearer (data processing inequality):
    the keys differ by at least so much. Of rings of different sizes the smaller one's slots are taken.
    """
    common = sorted(set(first.head) & set(second.head))
    slots = min(len(first.seen_tail), len(second.seen_tail))
    return distance(_cells(first, common, slots), _cells(second, common, slots))


def distance(first: Rows, second: Rows) -> float:
    """The total variation distance of two samples over the same cells, sampling noise taken off; 0 if one is empty."""
    rows, others = float(first.sum()), float(second.sum())
    if not rows or not others:
        return 0.0
    apart = float(np.abs(first / rows - second / others).sum()) / 2.0
    pooled = (first + second) / (rows + others)
    deviations = np.sqrt(pooled * (1.0 - pooled) * (1.0 / rows + 1.0 / others))
    return max(0.0, apart - math.sqrt(2.0 / math.pi) * float(deviations.sum()) / 2.0)


def drifted_sentence(plan: RoutingPlan, report: StageReport) -> str:
    """After stage 0, how far the keys differ from what the first plan says that it was made from, in words.

    The first plan keeps what it expected of each task, not of each key; so the tasks' queues are compared, and
    the keys differ by at least as much. Nothing is said where it was not made from a forecast, or after another stage.
    """
    if plan.epoch or not plan.expected_rows or not report.admitted_rows:
        return ""
    source = "its forecast" if plan.source is None else plan.source.words
    queued = numbers(report.tasks, "queued_rows").astype(np.float64)
    apart = distance(np.array(plan.expected_rows, dtype=np.float64), queued)
    if apart < 0.005:
        return f"the keys are spread as in {source}, from which the first plan was made"
    return f"the keys differ by at least {apart:.0%} from {source}, from which the first plan was made"


def _cells(histogram: Histogram, common: list[str], slots: int) -> Rows:
    tail = np.array(histogram.seen_tail, dtype=np.float64).reshape(slots, -1).sum(axis=1)
    shared = set(common)
    others = [key for key in histogram.head if key not in shared]
    rows = np.array([histogram.head[key][0] for key in others], dtype=np.float64)
    tail += np.bincount(key_slots(others, slots), weights=rows, minlength=slots)
    named = [histogram.head[key][0] for key in common]
    return np.concatenate([np.array(named, dtype=np.float64), tail, [float(histogram.seen_null_rows)]])


#: Seconds of a stage that are assumed not to depend on its rows, until stages of different sizes were measured: a stage
#: of a handful of rows takes so long in a warm session, and at most about so long in a cold one on two cores.
USUAL_OVERHEAD_SECONDS, MOST_OVERHEAD_SECONDS = 1.5, 20.0
#: What one more task costs, in rows reduced: it is started, and writes files of its own.
TASK_COST_ROWS = 100.0
#: Seconds that one core takes to send a raw row through the exchange, and back from it in order. Only
#: the ratio of the three matters; measured with pyspark 4.3 over Parquet (benchmarks B1 and B3).
ROW_SECONDS = 6e-7
#: The same for a row of key and arguments alone, in no order. Measured in seconds of all processes, on two cores:
#:
#: - count and sum, 20 million rows, 37,000 keys: plain Spark 2.8 with partial aggregation, 9.3 without: 0.32 us;
#:   beside other work ``combine`` 3.5 and ``bypass`` 13.0: 0.47 us,
#: - HLL, 5 million rows, 37,000 keys: ``combine`` 2.4 and ``bypass`` 4.2: 0.36 us,
#: - HLL, 5 million rows, 843,000 keys: ``combine`` 11.2 and ``bypass`` 10.8.
SENT_ROW_SECONDS = 3.3e-7


class StageCost(NamedTuple):
    """A stage takes ``overhead_seconds + seconds_per_row * makespan_rows``."""

    overhead_seconds: float
    seconds_per_row: float

    @property
    def overhead_rows(self) -> float:
        """The overhead in rows of the largest task: a stage pays if it shortens that by more."""
        if not self.overhead_seconds:
            return 0.0
        return self.overhead_seconds / self.seconds_per_row if self.seconds_per_row > 0 else float("inf")


def stage_cost(job: Job, reports: Sequence[StageReport]) -> StageCost:
    """The cost of the next stage, from the spec or from what was measured in the stages that were routed, at least one.

    If the tasks' own times were measured, the rest of the stage's time is overhead, and nothing is fitted. Otherwise
    one stage cannot tell the two apart. A row costs at most what the last stage leaves for it beside the usual
    overhead. It costs at least what the stage leaves beside the overhead of a cold session, what any row costs in
    Spark, and what the line fitted through the stages says, which a cold first stage makes too flat. The mean of all
    costs between is taken, each order of magnitude being as likely: ``(most - least) / ln(most / least)``.
    """
    rows = np.array([makespan(report.processed.astype(np.float64), job.slots_at(report)) for report in reports])
    seconds = np.array([report.stage_seconds for report in reports])
    given = job.spec.routing.stage_overhead
    if given is not None:
        work = float(np.maximum(seconds - given, 0.0).sum())
        return StageCost(given, work / float(rows.sum()) if rows.any() else 0.0)
    last_rows, last_seconds = float(rows[-1]), float(seconds[-1])
    if not last_rows:
        return StageCost(0.0, 0.0)  # nothing was measured
    if (busy := reports[-1].busy_seconds) is not None:
        work = makespan(busy, job.slots_at(reports[-1]))
        return StageCost(max(0.0, last_seconds - work), work / last_rows)
    most, left = (max(0.0, last_seconds - one) / last_rows for one in (USUAL_OVERHEAD_SECONDS, MOST_OVERHEAD_SECONDS))
    varied = len(reports) > 1 and np.ptp(rows) > 0
    slope = float(np.cov(rows, seconds, bias=True)[0, 1] / rows.var()) if varied else 0.0
    least = max(ROW_SECONDS, left, slope)
    per_row = (most - least) / math.log(most / least) if most > least else max(most, slope)
    return StageCost(max(0.0, last_seconds - per_row * last_rows), per_row)


def overhead_rows_before(job: Job, last: Histogram | None = None) -> float:
    """What a stage costs before any was run, in rows of the largest task; all rows if no cost of a row is known."""
    given = job.spec.routing.stage_overhead
    overhead, row_seconds = USUAL_OVERHEAD_SECONDS if given is None else given, row_seconds_before(job, last)
    if row_seconds is None:
        return float(job.rows) if overhead else 0.0
    return overhead / row_seconds


def row_seconds_before(job: Job, last: Histogram | None = None) -> float | None:
    """What a row costs: as the last run measured it, or as the aggregates declare it; None where neither is known."""
    if last is not None and last.tail_seconds is not None and last.seen_rows:
        measured = math.fsum(last.head_seconds.values()) + last.tail_seconds
        return max(ROW_SECONDS, measured / last.seen_rows)
    declared = [one.row_seconds for one in job.algebra.values() if one.row_seconds is not None]
    return ROW_SECONDS + math.fsum(declared) if len(declared) == len(job.algebra) else None
