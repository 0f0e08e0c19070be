"""The value of the row that arrived last: the smallest fold that needs its rows in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from skewless.aggregates.accumulator import GroupsAccumulator, without_nulls
from skewless.aggregates.argument_types import column_type, plain_required
from skewless.aggregates.python_aggregate import PythonAggregate

#: Values that are no group's any more are let go of when there are this many of them.
STALE_VALUES = 1 << 17


class LatestOptions(BaseModel, strict=True, extra="forbid", frozen=True):
    """Options of ``latest``.

    Attributes:
        ignore_nulls: whether a null leaves the value before it.
    """

    ignore_nulls: bool = False


class Latest(GroupsAccumulator):
    """The latest values, each in a struct: a key whose latest value is null differs from one without a row."""

    def __init__(self, options: LatestOptions) -> None:
        self._ignore_nulls = options.ignore_nulls
        self._kept: list[pa.Array] = []
        self._kept_values = 0
        self._places = np.zeros(0, np.int64)  # of each group's value among all kept ones; -1 without one

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.update``."""
        self._reach(groups_total)
        if self._ignore_nulls:
            values, groups = without_nulls(values, groups)
        if not len(groups):
            return
        rows = np.full(groups_total, -1, np.int64)
        rows[groups] = np.arange(len(groups))  # numpy assigns in order: the last row of a group stays
        seen = np.flatnonzero(rows >= 0)
        self._kept.append(values.take(pa.array(rows[seen])))
        self._places[seen] = self._kept_values + np.arange(len(seen))
        self._kept_values += len(seen)
        if self._kept_values > len(self._places) + STALE_VALUES:
            self._kept, self._kept_values = [self.evaluate()], len(self._places)
            self._places = np.where(self._places < 0, -1, np.arange(len(self._places), dtype=np.int64))

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``: what is merged counts as arrived now, but a null state as nothing."""
        there = pc.is_valid(states)
        came = there.to_numpy(zero_copy_only=False)
        self.update(states.filter(there).flatten()[0], groups[came], groups_total)

    def state(self) -> pa.Array:
        """The latest value of each group; null for a group without one."""
        fields = list(self.types.state)
        return pa.StructArray.from_arrays([self.evaluate()], fields=fields, mask=pa.array(self._places < 0))

    def evaluate(self) -> pa.Array:
        """The latest value of each group."""
        values = pa.chunked_array(self._kept, self.types.result).combine_chunks()
        return values.take(pa.array(self._places, mask=self._places < 0))

    def _reach(self, groups_total: int) -> None:
        more = groups_total - len(self._places)
        self._places = np.append(self._places, np.full(more, -1, np.int64))


def _held(options: Any, spark_type: str) -> pa.DataType:
    return pa.struct([("value", column_type(options, spark_type))])


LATEST = PythonAggregate(
    name="latest",
    mergeable=False,
    ordered=True,
    concatenable=True,
    instead="last",
    options=LatestOptions,
    accepts=plain_required,
    argument_type=column_type,
    state_type=_held,
    result_type=column_type,
    create=Latest,
    state_bytes=16,
)
