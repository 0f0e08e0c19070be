"""The points of the streaming histograms of many groups, in flat arrays, and putting values among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.float64, np.int64)

#: One histogram: points ``x`` ascending, each with the number ``y`` of values it stands for.
HISTOGRAM_TYPE = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.int64())]))


@dataclass(frozen=True)
class HistogramPoints:
    """The points of all groups, in order of group, then ``x``; no two of a group have the same ``x``.

    Attributes:
        starts: where the points of each group start, and where the last ones end, shape ``(groups + 1,)``.
        y: values that a point stands for, at least 1, shape ``(points,)``.
    """

    starts: Ints
    x: Floats
    y: Ints

    @classmethod
    def none(cls) -> HistogramPoints:
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


def with_groups(points: HistogramPoints, groups_total: int) -> HistogramPoints:
    """The same points, with groups without any added at the end."""
    more = groups_total + 1 - len(points.starts)
    return HistogramPoints(np.concatenate([points.starts, np.repeat(points.starts[-1:], more)]), points.x, points.y)


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
