"""A sample of the keys before stage 0: some thousand rows of some source partitions, read without a Spark job."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skewless.documents.job import Job, Unit
from skewless.planner.forecast.key_sample import KeySample, unit_spread
from skewless.routing.hashing import encode_columns
from skewless.routing.plan import GOLDEN_SECTION
from skewless.run.objects.location import open_location
from skewless_spark.sources.formats.column_types import arrow_type_of
from skewless_spark.sources.formats.input_files import in_threads
from skewless_spark.sources.formats.parquet import odd_columns, old_columns, open_parquet
from skewless_spark.sources.worker_files import as_declared, read_unit, readable
from skewless_spark.states.job_columns import NULL_KEY

#: At most this many source partitions are sampled, and at most this many rows in total. The sample stays small in
#: comparison with the smallest first wave, and takes some megabytes.
SAMPLED_UNITS = 64
SAMPLED_ROWS = 262_144
#: Bytes of a column that are read at a time, since only its first rows are needed.
BUFFER_BYTES = 1 << 18
#: Partitions are compared by this many of the heaviest keys; each must have at least one row per partition on average.
COMPARED_KEYS = 32
#: Key types whose texts are easy to compute without Spark; see ``skewless_spark.aggregates.keys``.
TOLD_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date")
_BATCH_ROWS = 1 << 16
#: Columns beside the key columns. No column of an input has such a name.
_UNIT, _ROWS, _KEY = "\0unit", "\0rows", "\0key"


def sample_keys(job: Job) -> KeySample | None:
    """Count the keys of a sample of the input; None if its keys cannot be read without a stage.

    The first rows of a source partition represent it, in proportion to its rows. The sampled partitions are spread
    over the listing, as waves are.
    """
    units = [unit for unit in job.units if unit.rows]
    inside = set(job.source.columns) - set(job.source.partition_columns)
    if job.source.format != "parquet" or not units or job.spec.map or set(job.spec.key) - inside:
        return None
    chosen, names = spread_over(units), list(job.spec.key)
    scale = SAMPLED_ROWS / max(SAMPLED_ROWS, sum(unit.rows or 0 for unit in chosen))
    plain = not any(unit.inner for unit in chosen)
    read = _read if plain else _read_as_in_a_stage
    found_in = list(in_threads(lambda unit: read(job, unit, names, math.ceil((unit.rows or 0) * scale)), chosen))
    tables = [one for one in found_in if one is not None]
    if len(tables) < len(chosen):
        return None
    found = pa.concat_tables(tables, promote_options="default")  # files may differ in what may be null
    keys = found.group_by(names, use_threads=False).aggregate([([], "count_all")]).rename_columns([*names, _ROWS])
    units_of_rows = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    spread = _spread(found, units_of_rows, keys, names, len(chosen) / len(units))
    return KeySample(keys[_ROWS].to_numpy().astype(np.int64), _texts(job, keys), spread)


def spread_over(units: Sequence[Unit]) -> list[Unit]:
    """At most ``SAMPLED_UNITS`` source partitions, spread over the listing."""
    if len(units) <= SAMPLED_UNITS:
        return list(units)
    places = {(number * GOLDEN_SECTION % (1 << 32)) * len(units) >> 32 for number in range(1, SAMPLED_UNITS + 1)}
    return [units[place] for place in sorted(places)]


def _spread(found: pa.Table, units: npt.NDArray[np.int64], keys: pa.Table, names: Sequence[str], part: float) -> float:
    rows = np.bincount(units)
    heavy = keys.take(pc.select_k_unstable(keys, min(COMPARED_KEYS, len(keys)), [(_ROWS, "descending")]))
    heavy = heavy.filter(pc.greater_equal(heavy[_ROWS], len(rows)))
    numbered = heavy.drop_columns([_ROWS]).append_column(_KEY, pa.array(np.arange(len(heavy))))
    cells = found.append_column(_UNIT, pa.array(units)).join(numbered, list(names), join_type="inner")
    counts = np.zeros((len(rows), len(heavy)), dtype=np.int64)
    np.add.at(counts, (cells[_UNIT].to_numpy(), cells[_KEY].to_numpy()), 1)
    return unit_spread(counts, rows, part)


def _texts(job: Job, keys: pa.Table) -> list[str | None] | None:
    """The key text of each row of a table with the key columns, as ``JobColumns.routing_key`` has it."""
    if any(job.key_types[name] not in TOLD_TYPES for name in job.spec.key):
        return None
    null = NULL_KEY if job.forwards_states else None
    try:
        columns = [keys[name].cast(pa.string()).to_pylist() for name in job.spec.key]
    except UnicodeDecodeError:
        return None  # bytes that are not UTF-8
    if len(columns) == 1:
        return [null if text is None else text for text in columns[0]]
    return [encode_columns(texts) for texts in zip(*columns, strict=True)]


def _read(job: Job, unit: Unit, names: list[str], rows: int) -> pa.Table | None:
    """The keys of the first rows of a source partition; deleted rows are taken to be like the others.

    None if only Spark reads them right.
    """
    fs, path = open_location(unit.path)
    groups = range(*unit.span) if unit.span else None
    parts, wanted = [], rows
    with readable(unit, job.source), fs.open(path, "rb") as opened:
        file = open_parquet(opened, buffer_size=BUFFER_BYTES)
        if not _only_for_spark(file).isdisjoint(names):
            return None
        for batch in file.iter_batches(min(rows, _BATCH_ROWS), row_groups=groups, columns=names, use_threads=False):
            parts.append(pa.Table.from_batches([as_declared(batch.slice(0, wanted), job.source, names)]))
            wanted -= len(parts[-1])
            if wanted <= 0:
                break
    return pa.concat_tables(parts) if parts else _empty(job, names)


def _only_for_spark(file: pq.ParquetFile) -> set[str]:
    return {*old_columns(file), *odd_columns(file)}


def _read_as_in_a_stage(job: Job, unit: Unit, names: list[str], rows: int) -> pa.Table | None:
    """As ``_read``, of files whose columns are not those of their table."""
    fs, path = open_location(unit.path)
    with readable(unit, job.source), fs.open(path, "rb") as opened:
        if not _only_for_spark(open_parquet(opened)).isdisjoint(unit.inner.get(name, name) for name in names):
            return None
    parts = [_empty(job, names)]
    for batch in read_unit(unit, job.source, names):
        parts.append(pa.Table.from_batches([batch.slice(0, rows)]).select(names))
        rows -= len(parts[-1])
        if rows <= 0:
            break
    return pa.concat_tables(parts, promote_options="default")


def _empty(job: Job, names: list[str]) -> pa.Table:
    return pa.schema([(name, arrow_type_of(job.source.columns[name])) for name in names]).empty_table()
