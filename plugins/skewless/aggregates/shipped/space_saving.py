"""Heavy hitters: the most frequent values of a column, in space that does not grow with how many there are.

SpaceSaving is by A. Metwally, D. Agrawal and A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
Data Streams" (ICDT 2005). How its summaries merge is shown by P. K. Agarwal et al., "Mergeable Summaries" (PODS 2012,
section 3): SpaceSaving with m + 1 counters is Misra-Gries with m of them, whose counters are smaller by the smallest
one, and Misra-Gries merges by adding counters and taking the (m + 1)-th largest from all.

We keep that form, for all keys at once, because everything in it adds up. Of each key there is a ``floor``, which no
value that is not counted exceeds, and of each counted value

- ``low``: its count less the floor (the Misra-Gries counter), and
- ``certain``: rows of it that were surely seen, which is count less error.

Rows and other summaries are added to all three. Pruning takes the (capacity + 1)-th largest ``low`` from each, drops
what falls to 0 or below, and raises the floor by as much. Each time at least capacity + 1 counters lose that much, so
floor <= rows / (capacity + 1); and no value's error exceeds the floor. Values are counted late, and a key is pruned
when it has ``SLACK`` times its capacity, which makes the errors smaller and never larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field

from skewless.aggregates.accumulator import GroupsAccumulator
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.shipped.item_counts import ItemCounts, flattened, lists_of, without_nulls
from skewless.aggregates.spark_types import column_type, plain_required

Ints = npt.NDArray[np.int64]

#: A key with more than this many times ``capacity`` values is pruned while rows still come.
SLACK = 4


class SpaceSavingOptions(BaseModel, strict=True, extra="forbid", frozen=True):
    """Options of ``space_saving``.

    Attributes:
        capacity: values that are counted per key at most; counts are off by at most rows / capacity.
    """

    capacity: int = Field(default=100, ge=1, le=100_000)


class SpaceSavings(GroupsAccumulator):
    """The summaries of all keys of a task."""

    def __init__(self, options: SpaceSavingOptions) -> None:
        self._capacity = options.capacity
        self._counts: ItemCounts | None = None
        self._floor = np.zeros(0, np.int64)

    def update(self, values: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; nulls do not count."""
        values, groups = without_nulls(values, groups)
        ones = pa.array(np.ones(len(groups), np.int64))
        self._add(groups, values, ones, ones, groups_total)

    def merge(self, states: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``."""
        self._reach(groups_total)
        floors, items = states.flatten()
        floor = pc.fill_null(floors, 0).to_numpy(zero_copy_only=False)
        np.add.at(self._floor, groups, floor)
        place, counters = flattened(items, np.arange(len(states), dtype=np.int64))
        item, count, error = counters.flatten()
        low = pc.subtract(count, pa.array(floor[place]))
        self._add(groups[place], item, low, pc.subtract(count, error), groups_total)

    def state(self) -> pa.Array:
        """The floor, and at most ``capacity`` counters, the highest count first."""
        table, floor = self._summary()
        lists = self._lists(table, floor)
        return pa.StructArray.from_arrays([pa.array(floor), lists], fields=list(self.types.state))

    def evaluate(self) -> pa.Array:
        """The counters of the state."""
        return self._lists(*self._summary())

    @property
    def _items(self) -> ItemCounts:
        if self._counts is None:
            self._counts = ItemCounts(self.types.argument, ["low", "certain"])
        return self._counts

    def _reach(self, groups_total: int) -> None:
        if groups_total > len(self._floor):
            self._floor = np.append(self._floor, np.zeros(groups_total - len(self._floor), np.int64))

    def _add(self, groups: Ints, items: pa.Array, low: pa.Array, certain: pa.Array, groups_total: int) -> None:
        self._reach(groups_total)
        self._items.add(groups, items, [low, certain])
        if self._items.due:
            table, self._floor = pruned(self._items.counted(), self._floor, SLACK * self._capacity, self._capacity)
            self._items.replace(table)

    def _summary(self) -> tuple[pa.Table, Ints]:
        return pruned(self._items.counted(), self._floor, self._capacity, self._capacity)

    def _lists(self, table: pa.Table, floor: Ints) -> pa.Array:
        kind = self.types.result
        groups = table.column("group").to_numpy()
        count = table.column("low").to_numpy() + floor[groups]
        error = count - table.column("certain").to_numpy()
        told = pa.table([groups, table.column("item"), count, error], names=["group", "item", "count", "error"])
        by = [("group", "ascending"), ("count", "descending"), ("item", "ascending")]
        told = told.sort_by(by)
        columns = [told.column(name).combine_chunks() for name in ("item", "count", "error")]
        counters = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return lists_of(told.column("group").to_numpy(), counters, len(floor)).cast(kind)


def pruned(table: pa.Table, floor: Ints, limit: int, capacity: int) -> tuple[pa.Table, Ints]:
    """Take groups of more than ``limit`` counters of a table, each pair once, down to at most ``capacity``."""
    groups, low = table.column("group").to_numpy(), table.column("low").to_numpy()
    sizes = np.bincount(groups, minlength=len(floor))
    over = sizes > limit
    if not over.any():
        return table, floor
    order = np.lexsort((-low, groups))
    first_over = (np.cumsum(sizes) - sizes)[over] + capacity  # the (capacity + 1)-th largest of each group
    taken = np.zeros(len(floor), np.int64)
    taken[over] = low[order][first_over]
    rest = low - taken[groups]
    table = table.set_column(2, "low", pa.array(rest)).filter(pa.array(rest > 0)).combine_chunks()
    return table, floor + taken


def _result(options: Any, spark_type: str) -> pa.DataType:
    counter = [("item", column_type(options, spark_type)), ("count", pa.int64()), ("error", pa.int64())]
    return pa.list_(pa.struct(counter))


def _state(options: Any, spark_type: str) -> pa.DataType:
    return pa.struct([("floor", pa.int64()), ("counters", _result(options, spark_type))])


def _agree(one: Any, other: Any, options: Any, rows: int) -> bool:
    """Whether each value may have one count: from ``count - error`` to ``count``; to the floor if absent."""
    floor = rows // (options.capacity + 1)
    # By ``repr``, as NaN equals nothing.
    ours, theirs = (
        {repr(told["item"]): (told["count"] - told["error"], told["count"]) for told in result}
        for result in (one, other)
    )
    nothing = (0, floor)
    pairs = ((ours.get(item, nothing), theirs.get(item, nothing)) for item in {*ours, *theirs})
    return all(max(low, least) <= min(high, most) for (low, high), (least, most) in pairs)


SPACE_SAVING = PythonAggregate(
    name="space_saving",
    mergeable=True,
    options=SpaceSavingOptions,
    accepts=plain_required,
    argument_type=column_type,
    state_type=_state,
    result_type=_result,
    create=SpaceSavings,
    state_bytes=1024,
    agrees=_agree,
)
