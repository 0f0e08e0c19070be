"""A ``GroupsAccumulator`` made of one ``Accumulator`` per key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skewless.aggregates.accumulator import Accumulator, GroupsAccumulator


class PerKey(GroupsAccumulator):
    """One Python object per key, which ``factory`` makes. A batch costs one sort, and one call per key that it holds.

    Attributes:
        current_group: the group whose accumulator is at work, for whoever catches what it raises; None between
            the calls.
    """

    def __init__(self, factory: Callable[[], Accumulator]) -> None:
        self._factory = factory
        self._accumulators: list[Accumulator] = []
        self.current_group: int | None = None

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; the rows of a key stay in order, for the sort is stable."""
        self._reach(groups_total)
        if not len(groups):
            return
        order = np.argsort(groups, kind="stable")
        in_order = groups[order]
        if len(groups) > 1 and in_order[0] != in_order[-1]:
            values = values.take(pa.array(order))
        starts = np.flatnonzero(np.diff(in_order, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(groups)], strict=True):
            self.current_group = int(in_order[start])
            self._accumulators[self.current_group].update(values.slice(start, end - start))
        self.current_group = None

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``."""
        self._reach(groups_total)
        for one, state in self._at_work(states, groups):
            one.merge(state)

    def state(self) -> pa.Array:
        """See ``GroupsAccumulator.state``."""
        return pa.array([one.state() for one in self._each()], self.types.state)

    def evaluate(self) -> pa.Array:
        """See ``GroupsAccumulator.evaluate``."""
        return pa.array([one.evaluate() for one in self._each()], self.types.result)

    def open_keys(self, keys: pa.StringArray, first_group: int) -> None:
        """Make the accumulators of new keys and open them."""
        self._reach(first_group)
        for group, key in enumerate(keys.to_pylist(), start=first_group):
            self.current_group = group
            accumulator = self._factory()
            accumulator.open_key(key)
            self._accumulators.append(accumulator)
        self.current_group = None

    def close_keys(self) -> None:
        """Close every key."""
        for one in self._each():
            one.close_key()

    def _reach(self, groups_total: int) -> None:
        """Groups that nobody opened."""
        while len(self._accumulators) < groups_total:
            self._accumulators.append(self._factory())

    def _at_work(self, states: pa.Array, groups: npt.NDArray[np.int64]) -> Iterator[tuple[Accumulator, Any]]:
        for state, group in zip(states.to_pylist(), groups.tolist(), strict=True):
            if state is not None:
                self.current_group = group
                yield self._accumulators[group], state
        self.current_group = None

    def _each(self) -> Iterator[Accumulator]:
        for group, one in enumerate(self._accumulators):
            self.current_group = group
            yield one
        self.current_group = None
