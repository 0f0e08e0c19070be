"""Folders of files by many writers with the same rows for every reader, which are a Delta table, too."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from skewless_spark.session.versions import to_arrow
from skewless_spark.sources.formats.column_types import arrow_type_of
from tests.differential.values import COMMON, KINDS, ROW, random_table
from tests.differential.writers import SPARK_MODES, WRITERS, by_spark

#: Types by their names in the log of a Delta table, where they are others.
_IN_LOG = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
#: Columns that a writer cannot write as they are: DuckDB takes nanoseconds with a zone for microseconds.
_CANNOT = {"duckdb": {"half", "near_instant"}}


class Batch(NamedTuple):
    """A folder.

    Attributes:
        of_spark: whether there may be files that only Spark reads.
    """

    path: Path
    names: list[str]
    rows: pa.Table
    of_spark: bool


def write_batch(spark: SparkSession, path: Path, seed: int, names: Sequence[str], files: int) -> Batch:
    """A folder of random files; a few are by Spark if it can write the columns."""
    rng = np.random.default_rng(seed)
    path.mkdir(parents=True)
    tables, first = [], 0
    kind, mode = SPARK_MODES[seed % len(SPARK_MODES)]
    of_spark = max(1, files // 10) if set(names) <= set(COMMON) else 0
    writers = [(name, write) for name, write in WRITERS.items() if not _CANNOT.get(name, set()) & set(names)]
    for number in range(files - of_spark):
        table = random_table(rng, names, int(rng.integers(1, 60)), first)
        name, write = writers[int(rng.integers(0, len(writers)))]
        write(table, path / f"{number:04d}-{name}.parquet", rng)
        tables.append(table)
        first += len(table)
    declared = ", ".join(f"{name} {kind}" for name, kind in types_in(names).items())
    if of_spark:
        table = random_table(rng, names, 20 * of_spark, first)
        by_spark(spark, table, declared, path / "_spark", kind, mode, of_spark)
        # It cuts microseconds off, and days that the old calendar does not have become others: what it wrote, it says.
        tables.append(to_arrow(spark.read.schema(declared).parquet(str(path / "_spark"))))
        for file in sorted((path / "_spark").glob("*.parquet")):
            file.rename(path / file.name)
    rows = pa.concat_tables([_as_declared(table, names) for table in tables])
    _write_log(path, names)
    old = mode == "LEGACY" and bool(of_spark) and not {"day", "instant"}.isdisjoint(names)
    packed = any(path.glob("*-duckdb.parquet")) and not {"whole", "day"}.isdisjoint(names)
    return Batch(path, [ROW, *names], rows, old or packed)


def types_in(names: Sequence[str]) -> dict[str, str]:
    return {ROW: "bigint", **{name: KINDS[name].spark for name in names}}


def _as_declared(table: pa.Table, names: Sequence[str]) -> pa.Table:
    return table.cast(pa.schema([(name, arrow_type_of(kind)) for name, kind in types_in(names).items()]))


def _write_log(path: Path, names: Sequence[str]) -> None:
    """The first version of a Delta table with the files of a folder, as the protocol has it."""
    fields = [
        {"name": name, "type": _log_type(kind), "nullable": True, "metadata": {}}
        for name, kind in types_in(names).items()
    ]
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    metadata = {
        "id": "7b0a9a5e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}, {"metaData": metadata},
    ]  # fmt: skip
    for file in sorted(path.glob("*.parquet")):
        size = file.stat().st_size
        actions.append(
            {"add": {"path": file.name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}}
        )
    log = path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def _log_type(kind: str) -> object:
    if kind.startswith("array<"):
        return {"type": "array", "elementType": _log_type(kind[len("array<") : -1]), "containsNull": True}
    return _IN_LOG.get(kind, kind)
