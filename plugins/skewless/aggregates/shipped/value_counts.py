"""How often each value of a column comes, exactly: the counts of naive Bayes, for instance.

Counting words per class, or classes per word, is one of the three uses that M. A. U. Nasir et al., "The Power of
Both Choices" (ICDE 2015), names for splitting hot keys: the counts of a word add up wherever they were made.
"""

from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skewless.aggregates.accumulator import (
    GroupsAccumulator,
    Ints,
    column_type,
    flattened,
    lists_of,
    number_required,
    plain_required,
    without_nulls,
)
from skewless.aggregates.python_aggregate import NoOptions, PythonAggregate
from skewless.document import unmet

#: Rows wait uncounted until there are this many of them, or half as many as there are counted values.
PENDING_ROWS = 1 << 18


class ValueCounts(GroupsAccumulator):
    """The value counts of all keys of a task: one row of a table per key and value, once they are counted."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._pending_rows = 0
        self._groups_total = 0

    def update(self, values: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; nulls do not count."""
        values, groups = without_nulls(values, groups)
        self._add(groups, values, pa.array(np.ones(len(groups), np.int64)), groups_total)

    def merge(self, states: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``."""
        of_pair, pairs = flattened(states, groups)
        values, counts = pairs.flatten()
        self._add(of_pair, values, counts, groups_total)

    def state(self) -> pa.Array:
        """The most frequent value first; equally frequent ones in their own order."""
        kind = self.types.state
        table = self.counted(("count", "descending"), ("value", "ascending"))
        columns = [table.column(name).combine_chunks() for name in ("value", "count")]
        pairs = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return lists_of(table.column("group").to_numpy(), pairs, self._groups_total).cast(kind)

    def counted(self, *order: tuple[str, str]) -> pa.Table:
        """Columns group, value and count, by group and then as they are to be ordered."""
        return self._count().sort_by([("group", "ascending"), *order]).combine_chunks()

    def _add(self, groups: Ints, values: pa.Array, counts: pa.Array, groups_total: int) -> None:
        self._groups_total = groups_total
        columns = [pa.array(groups, pa.int64()), _normalized(values), counts]
        self._tables.append(pa.table(columns, names=["group", "value", "count"]))
        self._pending_rows += len(groups)
        if self._pending_rows >= max(PENDING_ROWS, self._tables[0].num_rows // 2):
            self._count()

    def _count(self) -> pa.Table:
        kinds = [("group", pa.int64()), ("value", self.types.argument), ("count", pa.int64())]
        rows = pa.concat_tables([pa.schema(kinds).empty_table(), *self._tables])
        table = rows.group_by(["group", "value"], use_threads=False).aggregate([("count", "sum")])
        table = table.rename_columns({"count_sum": "count"}).combine_chunks()
        self._tables, self._pending_rows = [table], 0
        return table


def _normalized(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(np.nan, pa.float64()).cast(values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, pa.scalar(0.0, pa.float64()).cast(values.type)))


def _counts_type(options: Any, spark_type: str) -> pa.DataType:
    return pa.list_(pa.struct([("value", column_type(options, spark_type)), ("count", pa.int64())]))


VALUE_COUNTS = PythonAggregate(
    name="value_counts",
    mergeable=True,
    accepts=plain_required,
    argument_type=column_type,
    state_type=_counts_type,
    result_type=_counts_type,
    create=lambda _: ValueCounts(),
    state_bytes=256,
)


class Modes(ValueCounts):
    """The most frequent values; of several that are as frequent, the least."""

    def evaluate(self) -> pa.Array:
        """One value per group; null without values."""
        table = self.counted(("count", "descending"), ("value", "ascending"))
        groups = table.column("group").to_numpy()
        places = np.searchsorted(groups, np.arange(self._groups_total))
        there = np.isin(np.arange(self._groups_total), groups)
        return table.column("value").combine_chunks().take(pa.array(places, mask=~there))


MODE = replace(VALUE_COUNTS, name="mode", result_type=column_type, create=lambda _: Modes())

Share = Annotated[float, Field(ge=0, le=1)]


class Percentages(BaseModel):
    """Of which shares of the values quantiles are asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    percentage: Share | None = Field(default=None)
    """One share of the rows: the result is a value."""
    percentages: list[Share] | None = Field(default=None, min_length=1, max_length=100)
    """Several of them: the result is an array."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.percentage is None) == (self.percentages is None):
            came = "neither" if self.percentage is None else "both"
            raise unmet("percentage (one share) or percentages (a list of them)", came)
        return self

    @property
    def shares(self) -> list[float]:
        """The requested fractions, one or several."""
        return [self.percentage] if self.percentage is not None else list(self.percentages or ())


class Percentiles(ValueCounts):
    """The exact quantiles of all keys of a task, as Spark's ``percentile`` has them.

    Nulls do not count, NaN is the greatest number.
    """

    def __init__(self, options: Percentages) -> None:
        super().__init__()
        self._options = options

    def evaluate(self) -> pa.Array:
        """The value at that share of the places, or between the two that are beside it; null without values."""
        groups, values, counts = (column.to_numpy() for column in self.counted(("value", "ascending")).columns)
        rows = np.bincount(groups, weights=counts, minlength=self._groups_total).astype(np.int64)
        filled = np.flatnonzero(rows)
        reached, before = np.cumsum(counts), (np.cumsum(rows) - rows)[filled]
        quantiles = np.zeros((self._groups_total, len(self._options.shares)))
        for number, share in enumerate(self._options.shares):
            place = (rows[filled] - 1) * share
            low, high = (
                values[np.searchsorted(reached, before + end(place).astype(np.int64), side="right")]
                for end in (np.floor, np.ceil)
            )
            with np.errstate(invalid="ignore", over="ignore"):  # halfway from -1e308 to 1e308 is infinity to Spark, too
                quantiles[filled, number] = np.where(low == high, low, low + (high - low) * (place - np.floor(place)))
        flat = pa.array(quantiles.ravel(), pa.float64(), from_pandas=False)
        if self._options.percentage is not None:
            return pc.if_else(pa.array(rows > 0), flat, None)
        lists = pa.FixedSizeListArray.from_arrays(flat, quantiles.shape[1]).cast(pa.list_(pa.float64()))
        return pc.if_else(pa.array(rows > 0), lists, None)


PERCENTILE = replace(
    VALUE_COUNTS, name="percentile", options=Percentages, accepts=number_required, argument_type=pa.float64(),
    state_type=pa.list_(pa.struct([("value", pa.float64()), ("count", pa.int64())])), create=Percentiles,
    result_type=lambda options, _: pa.float64() if options.percentage is not None else pa.list_(pa.float64()),
)  # fmt: skip
# Such states could be merged, but that of a hot key may be as large as its rows, and to split the key would be to send
# all of them twice.
EXACT_MEDIAN = replace(
    PERCENTILE, name="exact_median", mergeable=False, instead="approx_percentile", options=NoOptions,
    result_type=pa.float64(), create=lambda _: Percentiles(Percentages(percentage=0.5)),
)  # fmt: skip
