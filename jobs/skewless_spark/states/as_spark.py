"""Parquet that Arrow writes as Spark has written it, so that files are of one kind whichever way they were made."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from skewless.documents.commit import CommittedFile
from skewless.run.storage import Storage
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.sources.worker_files import SCHEMA_NOTE
from skewless_spark.states.committed_files import noted_schema, readable

#: Files of at most this many bytes are copied by the driver.
COPIED_BYTES = 64 << 20


class AsSpark(NamedTuple):
    """What Arrow writes as Spark has written it: columns, compression, and the note of Spark's types."""

    kind: pa.Schema
    codec: str
    noted: StructType | None

    @classmethod
    def of(cls, run: Storage, files: Sequence[CommittedFile], own: Mapping[str, str]) -> AsSpark | None:
        """How some columns of small files are copied, each under its own name.

        All copies have the schema of one file: results of a stage and merged ones may differ in what may be null.

        Returns:
            None if the files are large, or Arrow writes a column otherwise.

        Raises:
            RunDirectoryError: a file is not the one that was committed, or is damaged.
        """
        if sum(file.size_bytes for file in files) > COPIED_BYTES:
            return None
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(run.verify, files))
        with readable(run, files[0]), run.fs.open(f"{run.root}/{files[0].path}", "rb") as opened:
            parquet, probe = open_parquet(opened), io.BytesIO()
            # All may be null, as those that Spark reads from files.
            columns = [parquet.schema_arrow.field(name).with_name(own[name]).with_nullable(True) for name in own]
            codec = parquet.metadata.row_group(0).column(0).compression if parquet.num_row_groups else "SNAPPY"
            found = cls(pa.schema(columns), codec, _noted(noted_schema(run, files[0]), own))
            found.writer(probe).close()
            same = _leaves(pq.ParquetFile(probe), {name: name for name in own.values()}) == _leaves(parquet, own)
            return found if same else None

    def writer(self, target: Any) -> pq.ParquetWriter:
        """As Spark writes: its compression, checksums of pages, its note, and small decimals as integers."""
        writer = pq.ParquetWriter(
            target, self.kind, compression=self.codec, write_page_checksum=True, store_schema=False,
            store_decimal_as_integer=True, version="1.0",
        )  # fmt: skip
        if self.noted is not None:
            writer.add_key_value_metadata({SCHEMA_NOTE: self.noted.json().encode()})
        return writer


def _leaves(parquet: pq.ParquetFile, own: Mapping[str, str]) -> set[tuple[object, ...]]:
    found = set[tuple[object, ...]]()
    for number in range(len(parquet.schema)):
        leaf = parquet.schema.column(number)
        # A dot may be part of the name of a key column, or come before the parts of a nested column.
        name = next((name for name in own if f"{leaf.path}.".startswith(f"{name}.")), None)
        if name is not None:
            path, nullable = own[name] + leaf.path[len(name) :], parquet.schema_arrow.field(name).nullable
            levels = (leaf.max_definition_level - nullable, leaf.max_repetition_level)
            found.add((path, leaf.physical_type, leaf.length, str(leaf.logical_type), *levels))
    return found


def _noted(noted: StructType | None, own: Mapping[str, str]) -> StructType | None:
    if noted is None:
        return None
    fields = {field.name: field for field in noted}
    return StructType([
        StructField(name, fields[number].dataType, nullable=True, metadata=fields[number].metadata)
        for number, name in own.items()
    ])  # fmt: skip
