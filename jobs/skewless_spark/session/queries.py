"""How Spark plans the queries of a step, and what it takes from Python at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:  # workers load this module, too
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: A batch of rows has at most so many rows, and so many bytes unless a single row has more: Arrow's texts end at 2 GiB
#: in a batch, and a JVM that is given some such batches has no memory left.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 64 << 20
#: Batches to batches, as ``mapInArrow`` takes it.
ToBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def planned_once(spark: SparkSession) -> Iterator[None]:
    """Without adaptive execution, for queries whose partitions are known: it runs a job for each exchange and cache."""
    before = str(spark.conf.get(_ADAPTIVE))
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)


@contextmanager
def under_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Spark with some settings, and then with what it had before."""
    # One by one: all settings together are a call to the JVM for each.
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, given in before.items():
            if given is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, given)


def map_in_batches(rows: DataFrame, function: ToBatches, schema: StructType | str) -> DataFrame:
    """``mapInArrow``, with what the function puts out in batches that Spark has memory for.

    All that comes from Python goes this way. What goes to Python is bounded by settings (``session.ALWAYS``).
    """
    return rows.mapInArrow(bounded(function), schema)


def bounded(function: ToBatches) -> ToBatches:
    """The function, with what it puts out cut by ``cut_batch``."""
    return lambda batches: chain.from_iterable(map(cut_batch, function(batches)))


def cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch within ``BATCH_ROWS`` and ``BATCH_BYTES``: as halves of halves, since rows are unlike."""
    if batch.num_rows > 1 and (batch.num_rows > BATCH_ROWS or _bytes(batch) > BATCH_BYTES):
        half = batch.num_rows // 2
        yield from cut_batch(batch.slice(0, half))
        yield from cut_batch(batch.slice(half))
    else:
        yield batch


def _bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a batch, with the values of dictionaries in their places."""
    return sum(_decoded_bytes(column) for column in batch.columns)


def _decoded_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    try:
        lengths = pc.binary_length(column.dictionary)
    except pa.ArrowNotImplementedError:
        return int(column.indices.nbytes + column.dictionary.nbytes)  # of numbers, which are all as short
    return int(column.indices.nbytes + (pc.sum(lengths.take(column.indices)).as_py() or 0))
