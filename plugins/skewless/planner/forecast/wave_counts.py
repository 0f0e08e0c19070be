"""How many rows of which key each wave had: recovered from the reports, and weighted by age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport
from skewless.errors import PlanError
from skewless.planner.placement.placement import Indices, Rows
from skewless.routing.hashing import key_slots


@dataclass(frozen=True, eq=False)
class WaveCounts:
    """Rows of each item in each wave, as far as the reports tell.

    An item is a key that the last report names, or a slot of the ring (all other keys in it), or the rows without a
    key. These counts are exact: each item over the run; each slot with its named keys in each stage; each stage; and a
    key from the first report on after which every report names it. Its rows before that are estimated from the rows of
    its slot that belong to no key with an exact count, in proportion to the totals. If a stage admitted several waves,
    its rows are divided among them in proportion to their sizes.

    Attributes:
        keys: the named keys, in text order.
        slots: the slot of each of them, shape ``(keys,)``.
        by_item: rows, shape ``(waves, keys + slots of the ring + 1)``, in that order, the last those without a key.
    """

    keys: tuple[str, ...]
    slots: Indices
    by_item: Rows

    @classmethod
    def of_reports(cls, job: Job, reports: Sequence[StageReport], ring_slots: int | None = None) -> WaveCounts:
        """Recover the counts from the reports of all stages, on their own ring or (``Histogram.on_ring``) on another.

        Raises:
            PlanError: a wave has not been admitted yet, or the reports are not of one run.
        """
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
    """The weighted sum of the stages; each has ``weight`` times the weight of the one after it."""
    weights = weight ** np.arange(len(stages) - 1, -1, -1.0)
    rows: Rows = weights @ stages
    return rows


def _fitted(before: Rows, after: Rows, even: Rows) -> tuple[float, float]:
    """The least sum of squared errors, and the part of ``before`` to believe, from 0 to 1, that gives it."""
    predicted, came = before / max(1.0, float(before.sum())) - even, after / max(1.0, float(after.sum())) - even
    size = float(predicted @ predicted)
    believed = min(1.0, max(0.0, float(predicted @ came) / size)) if size else 0.0
    return float(((came - believed * predicted) ** 2).sum()), believed
