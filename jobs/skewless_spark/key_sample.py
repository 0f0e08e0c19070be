"""Taking a sample of the keys before any stage: some thousand rows of some source partitions, no Spark job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skewless.hashing import encode_columns
from skewless.job import Job, Unit
from skewless.key_sample import KeySample
from skewless.waves import GOLDEN_SECTION
from skewless_spark.columns import NULL_KEY

#: Source partitions that are sampled at most, and rows of each: the sample stays small beside the
#: smallest first wave, and within some megabytes.
SAMPLED_UNITS = 16
SAMPLED_ROWS = 16_384
#: Key types whose texts are easily told without Spark; see ``skewless_spark.key_text``.
TOLD_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date")


def sample_keys(job: Job) -> KeySample | None:
    """Count the keys of a sample of the input; None where its keys cannot be read without a stage.

    A source partition's first rows stand for it. Partitions are taken spread over the listing, as waves are.
    """
    units = [unit for unit in job.units if unit.rows]
    if not units or job.spec.map or job.source.format != "parquet" or set(job.spec.key) - _columns_of(units[0]):
        return None
    places = {(number * GOLDEN_SECTION % (1 << 32)) * len(units) >> 32 for number in range(1, SAMPLED_UNITS + 1)}
    with ThreadPoolExecutor(max_workers=SAMPLED_UNITS) as pool:
        tables = list(pool.map(lambda place: _first_rows(units[place], list(job.spec.key)), sorted(places)))
    keys = pa.concat_tables(tables)
    counts = keys.group_by(keys.column_names, use_threads=False).aggregate([([], "count_all")])
    return KeySample(counts["count_all"].to_numpy().astype(np.int64), _texts(job, counts))


def _texts(job: Job, keys: pa.Table) -> list[str | None] | None:
    """The key text of each row of a table with the key columns, as ``skewless_spark.columns`` routes by it."""
    if any(job.key_types[name] not in TOLD_TYPES for name in job.spec.key):
        return None
    null = NULL_KEY if job.forwards_states else None
    try:
        columns = [keys[name].cast(pa.string()).to_pylist() for name in job.spec.key]
    except UnicodeDecodeError:
        return None  # bytes that are no UTF-8
    if len(columns) == 1:
        return [null if text is None else text for text in columns[0]]
    return [encode_columns(texts) for texts in zip(*columns, strict=True)]


def _columns_of(unit: Unit) -> set[str]:
    fs, path = fsspec.core.url_to_fs(unit.path)
    with fs.open(path, "rb") as opened:
        return set(pq.read_schema(opened).names)


def _first_rows(unit: Unit, columns: list[str]) -> pa.Table:
    fs, path = fsspec.core.url_to_fs(unit.path)
    with fs.open(path, "rb") as opened:
        file = pq.ParquetFile(opened)
        groups = range(*unit.span) if unit.span else None
        batch = next(file.iter_batches(batch_size=SAMPLED_ROWS, row_groups=groups, columns=columns), None)
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
    return schema.empty_table() if batch is None else pa.Table.from_batches([batch]).select(columns)
