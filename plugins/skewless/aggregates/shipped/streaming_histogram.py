"""Mergeable histograms of a number column, of all keys at once.

The histogram is that of Y. Ben-Haim and E. Tom-Tov, "A Streaming Parallel Decision Tree Algorithm",
JMLR 11 (2010), section 2.1: at most ``bins`` points ``(x, y)``, where ``y`` values lie about ``x``. A
histogram with too many points merges its two closest neighbours into their weighted mean, again and
again (procedures 1, Update, and 2, Merge; ``examples/models/tree.py`` has 3, Sum, and 4, Uniform).
Spark's ``histogram_numeric`` is the same kind of sketch, but SQL does not give out its state.

Three things are ours:

- Points are compressed late: a key keeps up to ``SLACK * bins`` points and is then taken down to
  ``WORKING * bins``; only a state or a result has ``bins``. That is faster, and errs about as much as merging
  after every value: less on some data, more on other (the tests bound the difference, 2 bins' worth).
- Compression works in rounds over all keys, and does many merges of a key in one round. It still gives bit for bit what
  merging one closest pair (leftmost of equally close ones) at a time gives; see ``compressed``.
- Nulls and NaN are not counted: a NaN has no place on the axis, and pandas and Arrow do not keep the two
  apart. Infinities are counted, as outermost points that merge with others only when nothing else is
  left to merge (``bins=2``). ``-0.0`` counts as ``0.0``.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field

from skewless.aggregates.accumulator import GroupsAccumulator, number_required
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.errors import AggregateError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.float64, np.int64)

#: One histogram: points ``x`` ascending, each with the number ``y`` of values it stands for.
HISTOGRAM_TYPE = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.int64())]))


@dataclass(frozen=True)
class HistogramPoints:
    """The points of all groups, in order of group, then ``x``; no two of a group have the same ``x``."""

    starts: Ints
    """Where the points of each group start, and where the last ones end, shape ``(groups + 1,)``."""
    x: Floats
    y: Ints
    """Values that a point stands for, at least 1, shape ``(points,)``."""

    @classmethod
    def none(cls) -> "HistogramPoints":
        """No groups."""
        return cls(np.zeros(1, np.int64), np.empty(0), np.empty(0, np.int64))

    @property
    def sizes(self) -> Ints:
        """Points of each group, shape ``(groups,)``."""
        return np.diff(self.starts)

    def to_arrow(self) -> pa.Array:
        """One list of ``{x, y}`` per group."""
        fields = list(HISTOGRAM_TYPE.value_type)
        pairs = pa.StructArray.from_arrays([pa.array(self.x), pa.array(self.y)], fields=fields)
        return pa.ListArray.from_arrays(pa.array(self.starts, pa.int32()), pairs, type=HISTOGRAM_TYPE)


@dataclass(frozen=True)
class ValueRows:
    """Values as they came: not sorted, and the same ``x`` as often as it came.

    ``y`` is None where every row counts once, which then needs a sort only, and no permutation.
    """

    groups: Ints
    x: Floats
    y: Ints | None


def concatenated(chunks: list[ValueRows]) -> ValueRows:
    """All chunks as one, in order."""
    groups = np.concatenate([chunk.groups for chunk in chunks])
    x = np.concatenate([chunk.x for chunk in chunks])
    if all(chunk.y is None for chunk in chunks):
        return ValueRows(groups, x, None)
    return ValueRows(groups, x, np.concatenate([np.ones(len(c.x), np.int64) if c.y is None else c.y for c in chunks]))


def collapsed(rows: ValueRows, groups_total: int) -> HistogramPoints:
    """Sorted by group and ``x``, equal ones counted together.

    ``x`` is replaced by its rank among the distinct ones, so that group and rank fit one int64, which sorts
    many times as fast as two columns do (2**31 rows of 2**31 groups would still fit).
    """
    encoded = pa.array(rows.x).dictionary_encode()
    distinct, codes = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    ascending = np.argsort(distinct)
    rank = np.empty(len(distinct), np.int64)
    rank[ascending] = np.arange(len(distinct))
    bits = len(distinct).bit_length()
    keys = (rows.groups << bits) | rank[codes]
    order = None if rows.y is None else np.argsort(keys)
    keys = np.sort(keys) if order is None else keys[order]
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    y = np.diff(firsts, append=len(keys)) if rows.y is None else np.add.reduceat(rows.y[order], firsts)
    keys = keys[firsts]
    starts = np.searchsorted(keys, np.arange(groups_total + 1, dtype=np.int64) << bits)
    return HistogramPoints(starts, distinct[ascending][keys & ((1 << bits) - 1)], y)


def inserted(points: HistogramPoints, fresh: HistogramPoints) -> HistogramPoints:
    """All points of both, of the same groups; those of equal ``x`` are counted together."""
    if not len(points.x):
        return fresh
    groups = np.repeat(np.arange(len(fresh.starts) - 1), fresh.sizes)
    at = _lower_bound(points.x, fresh.x, points.starts[groups], points.starts[groups + 1])
    known = (at < points.starts[groups + 1]) & (points.x[np.minimum(at, len(points.x) - 1)] == fresh.x)
    y = points.y.copy()
    y[at[known]] += fresh.y[known]
    new = ~known
    places = at[new] + np.arange(np.count_nonzero(new))
    old = np.ones(len(points.x) + len(places), np.bool_)
    old[places] = False
    added = np.bincount(groups[new], minlength=len(points.starts) - 1)
    return HistogramPoints(
        points.starts + np.concatenate([[0], np.cumsum(added)]),
        interleaved(old, points.x, fresh.x[new]),
        interleaved(old, y, fresh.y[new]),
    )


def _lower_bound(x: Floats, wanted: Floats, low: Ints, high: Ints) -> Ints:
    """Binary search of each wanted value in its own slice ``x[low:high]``: the first place not below it."""
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        below = (low < high) & (x[np.minimum(middle, len(x) - 1)] < wanted)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def interleaved(first: Flags, ones: npt.NDArray[Number], others: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """``ones`` in order where ``first`` is set, ``others`` in order elsewhere."""
    together = np.empty(len(first), ones.dtype)
    together[first], together[~first] = ones, others
    return together


_LARGEST = sys.float_info.max
_LARGEST_BETWEEN_FINITE = math.nextafter(_LARGEST, 0.0)


def compressed(points: HistogramPoints, limit: int, bins: int) -> HistogramPoints:
    """Groups of more than ``limit`` points get exactly ``bins``; the others stay."""
    over = points.sizes > limit
    if not over.any():
        return points
    of_over = np.repeat(over, points.sizes)
    x, y = _merge_closest(points.x[of_over], points.y[of_over], points.sizes[over], bins)
    sizes = np.where(over, bins, points.sizes)
    merged = np.repeat(over, sizes)
    return HistogramPoints(
        np.concatenate([[0], np.cumsum(sizes)]),
        interleaved(merged, x.ravel(), points.x[~of_over]),
        interleaved(merged, y.ravel(), points.y[~of_over]),
    )


def _merge_closest(x: Floats, y: Ints, sizes: Ints, bins: int) -> tuple[Floats, Ints]:
    """Merge closest neighbours until every group has ``bins`` points; all have more. Shape ``(groups, bins)``."""
    x_done, y_done = np.empty((len(sizes), bins)), np.empty((len(sizes), bins), np.int64)
    rows = np.arange(len(sizes))
    while len(rows):
        merged, chosen = _chosen(x, y, sizes, bins)
        gone = np.concatenate([[False], chosen[:-1]])
        x, y_right = np.where(chosen, merged, x)[~gone], np.concatenate([y[1:], [0]])
        y = np.where(chosen, y + y_right, y)[~gone]
        sizes = sizes - np.add.reduceat(chosen, np.cumsum(sizes) - sizes, dtype=np.int64)
        done = sizes == bins
        if done.any():
            of_done = np.repeat(done, sizes)
            x_done[rows[done]], y_done[rows[done]] = x[of_done].reshape(-1, bins), y[of_done].reshape(-1, bins)
            x, y, sizes, rows = x[~of_done], y[~of_done], sizes[~done], rows[~done]
    return x_done, y_done


def _chosen(x: Floats, y: Ints, sizes: Ints, bins: int) -> tuple[Floats, Flags]:
    """The merges of one round: pair ``i`` is point ``i`` and the next one; their ``x``, and whether they are merged.

    Merging one closest pair at a time takes gaps in ascending order of (gap, place), for a merge only
    ever widens the gaps beside it. So a group that needs ``k`` merges will merge every pair that

    - is among its ``k`` closest pairs: a merge uses up one gap, and one that is wider now stays wider; and
    - is closer than both pairs beside it: nothing can happen to either of its points before; or comes to be
      so once the pair two places on is merged, which is such a pair itself (a chain; on integers, where
      all gaps are 1, it is what merges every other pair in one round instead of one pair per round).

    Those pairs do not touch each other, and the group's closest pair is always among them.
    """
    gaps = np.full(len(x), np.inf)  # of the last point of a group: a wall
    gaps[:-1] = _distance(x[:-1], x[1:])
    gaps[np.cumsum(sizes) - 1] = np.inf
    merged = _weighted_mean(x, y)
    close = _closest(gaps, sizes, bins)
    rises = np.zeros(len(x), np.bool_)  # the pair is closer than the next one
    rises[:-1] = gaps[:-1] <= gaps[1:]
    falls_before = np.ones(len(x), np.bool_)  # the pair is closer than the one before
    falls_before[1:] = ~rises[:-1]
    seeds = close & rises & falls_before
    to_right, to_left = np.zeros(len(x), np.bool_), np.zeros(len(x), np.bool_)
    to_right[2:] = rises[:-2] & rises[1:-1] & (_distance(merged[:-2], x[2:]) > gaps[2:])
    to_right &= close & rises
    to_left[:-2] = falls_before[1:-1] & falls_before[2:] & (_distance(x[1:-1], merged[2:]) >= gaps[:-2])
    to_left &= close & falls_before
    return merged, _chained(seeds, to_right) | _chained(seeds[::-1], to_left[::-1])[::-1]


def _chained(seeds: Flags, links: Flags) -> Flags:
    """Seeds, and what a chain of links leads to from a seed; ``links[i]`` leads from ``i - 2`` to ``i``."""
    reached = np.empty(len(seeds), np.bool_)
    for parity in (0, 1):
        places = np.arange(len(seeds[parity::2]), dtype=np.int32)
        last_seed = np.maximum.accumulate(np.where(seeds[parity::2], places, -1))
        last_break = np.maximum.accumulate(np.where(links[parity::2], -1, places))
        reached[parity::2] = last_seed >= np.maximum(last_break, 0)
    return reached


def _closest(gaps: Floats, sizes: Ints, bins: int) -> Flags:
    """Which gaps are among the ``size - bins`` smallest of their group, leftmost of equal ones first."""
    starts = np.cumsum(sizes) - sizes
    threshold = np.repeat(_thresholds(gaps, sizes, bins), sizes)
    below, level = gaps < threshold, gaps == threshold
    allowed = sizes - bins - np.add.reduceat(below, starts, dtype=np.int64)
    up_to_here = np.cumsum(level)
    before_group = up_to_here[starts] - level[starts]
    chosen: Flags = below | (level & (up_to_here <= np.repeat(before_group + allowed, sizes)))
    return chosen


def _thresholds(gaps: Floats, sizes: Ints, bins: int) -> Floats:
    """The ``bins``-th largest gap of each group, shape ``(groups,)``: ``size - bins`` gaps are at most that.

    Groups of about the same size are laid out as the rows of a matrix, for numpy selects in rows.
    """
    thresholds = np.empty(len(sizes))
    classes = np.ceil(4 * np.log2(sizes)).astype(np.int64)
    for size_class in np.unique(classes):
        members = classes == size_class
        of_members = np.repeat(members, sizes) & (gaps != np.inf)
        width = int(sizes[members].max())
        rows = np.full((np.count_nonzero(members), width), -1.0)
        rows[np.arange(width) < sizes[members, None] - 1] = gaps[of_members]
        thresholds[members] = np.partition(rows, width - bins, axis=1)[:, width - bins]
    return thresholds


def _weighted_mean(x: Floats, y: Ints) -> Floats:
    """Of each point and the next one, between the two also after rounding, and without overflow; shape of ``x``."""
    means = x.copy()
    count = (y[:-1] + y[1:]).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # pairs across two groups may be (inf, -inf)
        means[:-1] = np.clip(x[:-1] * (y[:-1] / count) + x[1:] * (y[1:] / count), x[:-1], x[1:])
    return means


def _distance(left: Floats, right: Floats) -> Floats:
    """``right - left``, finite always: infinite points are farther away than any finite one can be."""
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = right - left
        endless = np.flatnonzero(np.isinf(gaps))
        far = np.isinf(left[endless]) | np.isinf(right[endless])
        gaps[endless] = np.where(far, _LARGEST, _LARGEST_BETWEEN_FINITE)
    return gaps


#: A key with more than this many times ``bins`` points is compressed ...
SLACK = 4
#: ... to this many times ``bins`` points, so that the errors of repeated merging are made at twice the resolution.
WORKING = 2
#: Rows wait unsorted until there are this many of them, or half as many as there are points.
PENDING_ROWS = 1 << 19


class StreamingHistogramOptions(BaseModel, strict=True, extra="forbid", frozen=True):
    """Options of ``streaming_histogram``."""

    bins: int = Field(default=32, ge=2, le=1024)
    """Points a histogram has at most."""


class StreamingHistograms(GroupsAccumulator):
    """The streaming histograms of all keys of a task.

    Flat arrays only: 16 bytes per point and waiting row (24 if it came from a state), and 8 per key.
    """

    def __init__(self, options: StreamingHistogramOptions) -> None:
        self._bins = options.bins
        self._points = HistogramPoints.none()
        self._pending: list[ValueRows] = []
        self._pending_rows = 0
        self._groups_total = 0

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Procedure 1; see ``GroupsAccumulator.update``."""
        x = values.to_numpy(zero_copy_only=False)  # nulls become NaN
        counted = ~np.isnan(x)
        if not counted.all():
            x, groups = x[counted], groups[counted]
        self._take(ValueRows(groups.astype(np.int64), x + 0.0, None), groups_total)

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Procedure 2; an ``AggregateError`` where a state is none that ``state`` gives."""
        lengths = pc.fill_null(pc.list_value_length(states), 0).to_numpy()
        x_column, y_column = states.flatten().flatten()
        x, y = x_column.to_numpy(zero_copy_only=False), y_column.to_numpy(zero_copy_only=False)
        if y_column.null_count or np.isnan(x).any() or (y < 1).any():
            raise AggregateError(
                "streaming_histogram: merge",
                "states whose points have a number x and a count y of at least 1",
                "a null, a NaN or a count below 1",
                "the state column was written by something else",
            )
        self._take(ValueRows(np.repeat(groups, lengths), x + 0.0, y.astype(np.int64)), groups_total)

    def state(self) -> pa.Array:
        """At most ``bins`` points per group, ascending by ``x``."""
        return compressed(self._all_points(), self._bins, self._bins).to_arrow()

    def _take(self, rows: ValueRows, groups_total: int) -> None:
        if groups_total < self._groups_total:
            required, came = f"at least {self._groups_total}", str(groups_total)
            raise AggregateError("streaming_histogram: groups_total", required, came, "groups are never removed")
        self._groups_total = groups_total
        if len(rows.x):
            self._pending.append(rows)
            self._pending_rows += len(rows.x)
        if self._pending_rows >= max(PENDING_ROWS, len(self._points.x) // 2):
            self._points = compressed(self._all_points(), SLACK * self._bins, WORKING * self._bins)
            self._pending, self._pending_rows = [], 0

    def _all_points(self) -> HistogramPoints:
        starts, x, y = self._points.starts, self._points.x, self._points.y
        more = self._groups_total + 1 - len(starts)  # groups without any
        points = HistogramPoints(np.concatenate([starts, np.repeat(starts[-1:], more)]), x, y)
        if not self._pending:
            return points
        return inserted(points, collapsed(concatenated(self._pending), self._groups_total))


def _agree(one: Any, other: Any, options: Any, _rows: int) -> bool:
    """Whether both have as many values; and the same points if these are single values, which have no error."""
    if min(len(one), len(other)) < options.bins:
        return bool(one == other)
    return bool(sum(point["y"] for point in one) == sum(point["y"] for point in other))


STREAMING_HISTOGRAM = PythonAggregate(
    name="streaming_histogram",
    mergeable=True,
    ordered=False,
    options=StreamingHistogramOptions,
    accepts=number_required,
    argument_type=pa.float64(),
    state_type=HISTOGRAM_TYPE,
    result_type=HISTOGRAM_TYPE,
    create=StreamingHistograms,
    state_bytes=512,
    agrees=_agree,
)
