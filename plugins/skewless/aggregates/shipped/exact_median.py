"""The exact median of a number column, as Spark's ``median`` and ``percentile(x, 0.5)`` have it.

Its state is every different value with its count. Such states could be merged, but the state of a hot key may be as
large as its rows, and to split the key would be to send all of them twice: so it is declared not mergeable, and the
key stays in one task.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skewless.aggregates.accumulator import GroupsAccumulator
from skewless.aggregates.argument_types import number_required
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.shipped.item_counts import flattened, lists_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Rows wait unsorted until there are this many of them, or half as many as there are counted values.
PENDING_ROWS = 1 << 19

VALUES_TYPE = pa.list_(pa.struct([("value", pa.float64()), ("count", pa.int64())]))


class CountedValues(NamedTuple):
    """Values of all groups with how often they came, each of shape ``(values,)``; no nulls."""

    groups: Ints
    values: Floats
    counts: Ints

    @classmethod
    def together(cls, parts: list[CountedValues]) -> CountedValues:
        """All of them, by group and value, NaN last; each value of a group once."""
        groups, values, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((values, groups))
        groups, values, counts = groups[order], values[order], counts[order]
        same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
        firsts = np.flatnonzero(np.concatenate([[True], ~same | (groups[1:] != groups[:-1])])[: len(groups)])
        added = np.add.reduceat(counts, firsts) if len(firsts) else counts
        return cls(groups[firsts], values[firsts], added)


_NONE = CountedValues(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


class ExactMedians(GroupsAccumulator):
    """The medians of all keys of a task."""

    def __init__(self) -> None:
        self._counted = _NONE
        self._pending: list[CountedValues] = []
        self._pending_rows = 0
        self._groups_total = 0

    def update(self, values: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; nulls do not count, NaN is the greatest number."""
        there = pc.is_valid(values).to_numpy(zero_copy_only=False)
        x = values.drop_null().to_numpy() + 0.0  # negative zero is zero
        self._take(CountedValues(groups[there].astype(np.int64), x, np.ones(len(x), np.int64)), groups_total)

    def merge(self, states: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``."""
        of_value, pairs = flattened(states, groups)
        values, counts = pairs.flatten()
        self._take(CountedValues(of_value, values.to_numpy(), counts.to_numpy()), groups_total)

    def state(self) -> pa.Array:
        """The values of each group, ascending, with their counts."""
        counted = self._all()
        fields = list(VALUES_TYPE.value_type)
        pairs = pa.StructArray.from_arrays([pa.array(counted.values), pa.array(counted.counts)], fields=fields)
        return lists_of(counted.groups, pairs, self._groups_total).cast(VALUES_TYPE)

    def evaluate(self) -> pa.Array:
        """The value in the middle, or halfway between the two that are there; null without values."""
        counted = self._all()
        rows = np.bincount(counted.groups, weights=counted.counts, minlength=self._groups_total).astype(np.int64)
        filled = np.flatnonzero(rows)
        reached = np.cumsum(counted.counts)
        before = (np.cumsum(rows) - rows)[filled]
        low, high = (
            counted.values[np.searchsorted(reached, before + position, side="right")]
            for position in ((rows[filled] - 1) // 2, rows[filled] // 2)
        )
        medians = np.zeros(self._groups_total)
        with np.errstate(invalid="ignore", over="ignore"):  # halfway from -1e308 to 1e308 is infinity to Spark, too
            medians[filled] = np.where(low == high, low, low + (high - low) * 0.5)
        return pa.array(medians, pa.float64(), mask=rows == 0, from_pandas=False)

    def _take(self, rows: CountedValues, groups_total: int) -> None:
        self._groups_total = groups_total
        if len(rows.groups):
            self._pending.append(rows)
            self._pending_rows += len(rows.groups)
        if self._pending_rows >= max(PENDING_ROWS, len(self._counted.groups) // 2):
            self._all()

    def _all(self) -> CountedValues:
        if self._pending:
            self._counted = CountedValues.together([self._counted, *self._pending])
            self._pending, self._pending_rows = [], 0
        return self._counted


EXACT_MEDIAN = PythonAggregate(
    name="exact_median",
    mergeable=False,
    instead="approx_percentile",
    accepts=number_required,
    argument_type=pa.float64(),
    state_type=VALUES_TYPE,
    result_type=pa.float64(),
    create=lambda _: ExactMedians(),
    state_bytes=256,
)
