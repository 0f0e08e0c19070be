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
  merging one closest pair (leftmost of equally close ones) at a time gives; see ``histogram_compression``.
- Nulls and NaN are not counted: a NaN has no place on the axis, and pandas and Arrow do not keep the two
  apart. Infinities are counted, as outermost points that merge with others only when nothing else is
  left to merge (``bins=2``). ``-0.0`` counts as ``0.0``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field

from skewless.aggregates.accumulator import GroupsAccumulator
from skewless.aggregates.argument_types import number_required
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.shipped.histogram_points import (
    HISTOGRAM_TYPE,
    HistogramPoints,
    ValueRows,
    collapsed,
    compressed,
    concatenated,
    inserted,
    with_groups,
)
from skewless.errors import AggregateError

#: A key with more than this many times ``bins`` points is compressed ...
SLACK = 4
#: ... to this many times ``bins`` points, so that the errors of repeated merging are made at twice the resolution.
WORKING = 2
#: Rows wait unsorted until there are this many of them, or half as many as there are points.
PENDING_ROWS = 1 << 19


class StreamingHistogramOptions(BaseModel, strict=True, extra="forbid", frozen=True):
    """Options of ``streaming_histogram``.

    Attributes:
        bins: points a histogram has at most.
    """

    bins: int = Field(default=32, ge=2, le=1024)


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

    def evaluate(self) -> pa.Array:
        """The state is the result; a group without values has an empty list."""
        return self.state()

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
        points = with_groups(self._points, self._groups_total)
        if not self._pending:
            return points
        return inserted(points, collapsed(concatenated(self._pending), self._groups_total))


def _agree(one: Any, other: Any, options: Any, rows: int) -> bool:
    """Whether both have as many values; and the same points if these are single values, which have no error."""
    del rows
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
