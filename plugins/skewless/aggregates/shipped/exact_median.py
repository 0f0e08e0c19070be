"""The exact median of a number column, as Spark's ``median`` and ``percentile(x, 0.5)`` have it.

Its state is every different value with its count. Such states could be merged, but the state of a hot key may be as
large as its rows, and to split the key would be to send all of them twice: so it is declared not mergeable, and the
key stays in one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from skewless.aggregates.argument_types import number_required
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.shipped.value_counts import ValueCounts


class ExactMedians(ValueCounts):
    """The medians of all keys of a task; nulls do not count, NaN is the greatest number."""

    def evaluate(self) -> pa.Array:
        """The value in the middle, or halfway between the two that are there; null without values."""
        groups, values, counts = (column.to_numpy() for column in self.counted(("value", "ascending")).columns)
        rows = np.bincount(groups, weights=counts, minlength=self._groups_total).astype(np.int64)
        filled = np.flatnonzero(rows)
        reached = np.cumsum(counts)
        before = (np.cumsum(rows) - rows)[filled]
        low, high = (
            values[np.searchsorted(reached, before + position, side="right")]
            for position in ((rows[filled] - 1) // 2, rows[filled] // 2)
        )
        medians = np.zeros(self._groups_total)
        with np.errstate(invalid="ignore", over="ignore"):  # halfway from -1e308 to 1e308 is infinity to Spark, too
            medians[filled] = np.where(low == high, low, low + (high - low) * 0.5)
        return pa.array(medians, pa.float64(), mask=rows == 0, from_pandas=False)


EXACT_MEDIAN = PythonAggregate(
    name="exact_median",
    mergeable=False,
    instead="approx_percentile",
    accepts=number_required,
    argument_type=pa.float64(),
    state_type=pa.list_(pa.struct([("value", pa.float64()), ("count", pa.int64())])),
    result_type=pa.float64(),
    create=lambda _: ExactMedians(),
    state_bytes=256,
)
