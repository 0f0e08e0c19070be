"""How often each value of a column comes, exactly: the counts of naive Bayes, for instance.

Counting words per class, or classes per word, is one of the three uses that M. A. U. Nasir et al., "The Power of
Both Choices" (ICDE 2015), names for splitting hot keys: the counts of a word add up wherever they were made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skewless.aggregates.accumulator import GroupsAccumulator
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.shipped.item_counts import ItemCounts, flattened, lists_of, without_nulls
from skewless.aggregates.spark_types import column_type, plain_required


class ValueCounts(GroupsAccumulator):
    """The value counts of all keys of a task: one row of a table per key and value."""

    def __init__(self) -> None:
        self._counts: ItemCounts | None = None
        self._groups_total = 0

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; nulls do not count."""
        values, groups = without_nulls(values, groups)
        self._add(groups, values, pa.array(np.ones(len(groups), np.int64)), groups_total)

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``."""
        of_pair, pairs = flattened(states, groups)
        values, counts = pairs.flatten()
        self._add(of_pair, values, counts, groups_total)

    def subtract(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.subtract``."""
        of_pair, pairs = flattened(states, groups)
        values, counts = pairs.flatten()
        self._add(of_pair, values, pc.negate(counts), groups_total)

    def state(self) -> pa.Array:
        """The most frequent value first; equally frequent ones in their own order."""
        kind = self.types.state
        by = [("group", "ascending"), ("count", "descending"), ("item", "ascending")]
        counted = self._items.counted()
        left = counted.filter(pc.not_equal(counted.column("count"), 0))  # all rows of the others were taken out
        table = left.sort_by(by).combine_chunks()
        columns = [table.column(name).combine_chunks() for name in ("item", "count")]
        pairs = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return lists_of(table.column("group").to_numpy(), pairs, self._groups_total).cast(kind)

    def evaluate(self) -> pa.Array:
        """The state is the result."""
        return self.state()

    @property
    def _items(self) -> ItemCounts:
        if self._counts is None:
            self._counts = ItemCounts(self.types.argument, ["count"])
        return self._counts

    def _add(self, groups: npt.NDArray[np.int64], values: pa.Array, counts: pa.Array, groups_total: int) -> None:
        self._groups_total = groups_total
        self._items.add(groups, values, [counts])
        if self._items.due:
            self._items.counted()


def _counts_type(options: Any, spark_type: str) -> pa.DataType:
    return pa.list_(pa.struct([("value", column_type(options, spark_type)), ("count", pa.int64())]))


VALUE_COUNTS = PythonAggregate(
    name="value_counts",
    mergeable=True,
    invertible=True,
    accepts=plain_required,
    argument_type=column_type,
    state_type=_counts_type,
    result_type=_counts_type,
    create=lambda _: ValueCounts(),
    state_bytes=256,
)
