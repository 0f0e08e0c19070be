"""A sample of the keys before any stage: some thousand rows of some source partitions, and only their counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skewless.engine_choice import KeyCounts
from skewless.job import Job, Unit
from skewless.waves import GOLDEN_SECTION

#: Source partitions that are sampled at most, and rows of each: the sample stays small beside the
#: smallest first wave, and within some megabytes.
SAMPLED_UNITS = 16
SAMPLED_ROWS = 16_384


def sample_keys(job: Job) -> KeyCounts | None:
    """Count the keys of a sample of the input; None where its keys cannot be read without a stage.

    A file's first rows stand for the file. Partitions are taken spread over the listing, as waves are.
    """
    units = [unit for unit in job.units if unit.rows]
    if not units or job.spec.map or job.source.format != "parquet" or set(job.spec.key) - _columns_of(units[0]):
        return None
    places = {(number * GOLDEN_SECTION % (1 << 32)) * len(units) >> 32 for number in range(1, SAMPLED_UNITS + 1)}
    with ThreadPoolExecutor(max_workers=SAMPLED_UNITS) as pool:
        tables = list(pool.map(lambda place: _first_rows(units[place], list(job.spec.key)), sorted(places)))
    keys = pa.concat_tables(tables)
    counts = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    return KeyCounts(counts["count_all"].to_numpy().astype(np.float64))


def _columns_of(unit: Unit) -> set[str]:
    fs, path = fsspec.core.url_to_fs(unit.path)
    with fs.open(path, "rb") as opened:
        return set(pq.read_schema(opened).names)


def _first_rows(unit: Unit, columns: list[str]) -> pa.Table:
    fs, path = fsspec.core.url_to_fs(unit.path)
    with fs.open(path, "rb") as opened:
        file = pq.ParquetFile(opened)
        batch = next(file.iter_batches(batch_size=SAMPLED_ROWS, columns=columns), None)
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
    return schema.empty_table() if batch is None else pa.Table.from_batches([batch]).select(columns)
