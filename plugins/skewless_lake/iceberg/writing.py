"""Writes a result into files of an Iceberg table: with its field ids and its whole schema, in bounded memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table

from skewless_lake.columns import ResultFile, fitted

_THREADS = 8


def write_files(
    table: Table, files: Sequence[ResultFile], parts: Mapping[str, Any], begin: Callable[[Sequence[str]], object]
) -> list[DataFile]:
    """Write a result into new files of a table, which no snapshot names yet.

    Args:
        table: the table, with all columns of the result.
        files: of the result; those without rows are left out, as readers pass over them.
        parts: the values of the partition columns, the same for all rows.
        begin: called with the paths of the files before any of them is written.
    """
    filled = [file for file in files if file.rows]
    token = uuid.uuid4()
    kind, key, places = _arrow_schema(table), _partition(table, parts), table.location_provider()
    paths = [places.new_data_location(f"{number:05d}-{token}.parquet", key) for number in range(len(filled))]
    begin(paths)

    def one(path: str, file: ResultFile) -> DataFile:
        return _written(table, path, file, kind, key, parts)

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        return list(pool.map(one, paths, filled))


def _arrow_schema(table: Table) -> pa.Schema:
    """The columns of a table as Arrow has them, each with its field id."""
    return schema_to_pyarrow(table.schema(), include_field_ids=True)


def _partition(table: Table, parts: Mapping[str, Any]) -> PartitionKey:
    schema = table.schema()
    values = [
        PartitionFieldValue(field, parts[str(schema.find_column_name(field.source_id))])
        for field in table.spec().fields
        if str(field.transform) == "identity"
    ]
    return PartitionKey(values, table.spec(), schema)


def _written(
    table: Table, path: str, file: ResultFile, kind: pa.Schema, key: PartitionKey, parts: Mapping[str, Any]
) -> DataFile:
    output, footers = table.io.new_output(path), list[Any]()
    codec = table.properties.get("write.parquet.compression-codec", "zstd")
    rows = 0
    with (
        output.create() as stream,
        pq.ParquetWriter(
            stream, kind, compression={"uncompressed": "none"}.get(codec, codec), store_decimal_as_integer=True,
            metadata_collector=footers, write_page_checksum=True,
        ) as writer,
    ):  # fmt: skip
        for batch in file.batches():
            writer.write_table(fitted(batch, kind, parts))
            rows += len(batch)
    if rows != file.rows:
        raise AssertionError(f"{path}: {rows:,} rows written of {file.rows:,}")
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=writer.writer.metadata if not footers else footers[0],
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition,
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **found.to_serialized_dict(),
    )
