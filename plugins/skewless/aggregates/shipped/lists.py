"""Values of all groups of a task, flat beside their groups, and as one list for each group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


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
