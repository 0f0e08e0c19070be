"""Items of all groups of a task: in one list per group, and counted per group and item in one Arrow table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

#: Rows wait uncounted until there are this many of them, or half as many as there are counted pairs.
PENDING_ROWS = 1 << 18


def lists_of(groups: Ints, values: pa.Array, groups_total: int) -> pa.Array:
    """So many lists from flat values, whose groups ascend; a list without values is empty."""
    offsets = np.searchsorted(groups, np.arange(groups_total + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def without_nulls(values: pa.Array, groups: Ints) -> tuple[pa.Array, Ints]:
    """The values that are not null, each with its group."""
    if not values.null_count:
        return values, groups
    there = pc.is_valid(values)
    return values.filter(there), groups[there.to_numpy(zero_copy_only=False)]


def flattened(lists: pa.Array, groups: Ints) -> tuple[Ints, pa.Array]:
    """The values of all lists, each with the group of its list; null lists have none."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.repeat(groups, lengths), lists.flatten()


def one_item_each(items: pa.Array) -> pa.Array:
    """Negative zero is zero, and NaN is NaN whatever its bits; other types stay as they are."""
    if not pa.types.is_floating(items.type):
        return items
    nan = pa.scalar(np.nan, pa.float64()).cast(items.type)
    return pc.if_else(pc.is_nan(items), nan, pc.add(items, pa.scalar(0.0, pa.float64()).cast(items.type)))


class ItemCounts:
    """Numbers that add up, each by its name, per pair of a group and an item of any plain type."""

    def __init__(self, item_type: pa.DataType, numbers: Sequence[str]) -> None:
        self._numbers = tuple(numbers)
        fields = [("group", pa.int64()), ("item", item_type), *((name, pa.int64()) for name in numbers)]
        self._schema = pa.schema(fields)
        self._counted = self._schema.empty_table()
        self._pending: list[pa.Table] = []
        self._pending_rows = 0

    def add(self, groups: Ints, items: pa.Array, numbers: Sequence[pa.Array]) -> None:
        """Add rows, without nulls, to their pairs: one array per number."""
        if len(groups):
            columns = [pa.array(groups, pa.int64()), one_item_each(items), *numbers]
            self._pending.append(pa.table(columns, schema=self._schema))
            self._pending_rows += len(groups)

    @property
    def due(self) -> bool:
        """Whether so many rows wait that they should be counted."""
        return bool(self._pending_rows >= max(PENDING_ROWS, self._counted.num_rows // 2))

    def counted(self) -> pa.Table:
        """All pairs, each once, in no order that means anything; changes nothing that can be seen."""
        if self._pending:
            rows = pa.concat_tables([self._counted, *self._pending])
            sums = [(name, "sum") for name in self._numbers]
            table = rows.group_by(["group", "item"], use_threads=False).aggregate(sums)
            table = table.select(["group", "item", *(f"{name}_sum" for name in self._numbers)])
            table = table.rename_columns(self._schema.names)
            self.replace(table.combine_chunks())
        return self._counted

    def replace(self, table: pa.Table) -> None:
        """Put another table of counted pairs in the place of all that there is."""
        self._counted, self._pending, self._pending_rows = table, [], 0
