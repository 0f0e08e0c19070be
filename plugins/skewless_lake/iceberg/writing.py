"""Writes a result into files of an Iceberg table: with its field ids and its whole schema, in bounded memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from skewless_lake.columns import ResultFile, short_texts
from skewless_lake.iceberg.tables import sort_order_of
from skewless_lake.new_files import created, write_all, write_rows
from skewless_lake.staged import OutputPart


def write_files(
    table: Table, files: Sequence[ResultFile], target: OutputPart, begin: Callable[[Sequence[str]], object]
) -> list[DataFile]:
    """Write a result into new files of a table, which no snapshot names yet.

    Args:
        table: the table, with all columns of the result.
        files: of the result; those without rows are left out, as readers pass over them.
        target: the part of the table.
        begin: called with the paths of the files before any of them is written.
    """
    filled = [file for file in files if file.rows]
    token = uuid.uuid4()
    how, places = _How.of(table, target), table.location_provider()
    paths = [places.new_data_location(f"{number:05d}-{token}.parquet", how.key) for number in range(len(filled))]
    begin(paths)
    return write_all(paths, filled, lambda path, file: _written(path, file, how))


class _How(NamedTuple):
    """What all files of a publication have in common.

    Attributes:
        kind: the columns of the table as Arrow has them, each with its field id.
        parts: the values of the partition columns.
        key: the same, as Iceberg has them.
        spec: the number of the table's partitioning.
        codec: of the pages.
        statistics: which bounds are kept of each column.
        columns: the number of each column, by its path in a file.
        sort_order: the number of the table's sort order, if the rows are in it.
    """

    kind: pa.Schema
    parts: Mapping[str, Any]
    key: PartitionKey
    spec: int
    codec: str
    statistics: Any
    columns: Any
    sort_order: int | None

    @classmethod
    def of(cls, table: Table, target: OutputPart) -> _How:
        codec = table.properties.get("write.parquet.compression-codec", "zstd")
        return cls(
            kind=pa.schema(map(short_texts, schema_to_pyarrow(table.schema(), include_field_ids=True))),
            parts=target.values,
            key=_partition(table, target.values),
            spec=table.spec().spec_id,
            codec={"uncompressed": "none"}.get(codec, codec),
            statistics=compute_statistics_plan(table.schema(), table.properties),
            columns=parquet_path_to_id_mapping(table.schema()),
            sort_order=sort_order_of(table, target),
        )


def _partition(table: Table, parts: Mapping[str, Any]) -> PartitionKey:
    schema = table.schema()
    values = [
        PartitionFieldValue(field, parts[str(schema.find_column_name(field.source_id))])
        for field in table.spec().fields
        if str(field.transform) == "identity"
    ]
    return PartitionKey(values, table.spec(), schema)


def _without_times(plan: Mapping[int, StatisticsCollector]) -> dict[int, StatisticsCollector]:
    """A plan of statistics, with no bounds of dates and times."""
    counted = MetricsMode(MetricModeTypes.COUNTS)
    times = DateType | TimestampType | TimestamptzType
    return {
        number: replace(one, mode=counted) if isinstance(one.iceberg_type, times) else one
        for number, one in plan.items()
    }


def _written(path: str, file: ResultFile, how: _How) -> DataFile:
    with created(path) as stream:
        footer = write_rows(stream, file, how.kind, how.parts, how.codec)
        size = stream.tell()
    try:
        found = data_file_statistics_from_parquet_metadata(footer, how.statistics, how.columns)
    except OverflowError:  # a date or a time that Python does not have, such as one of the year 20,000
        found = data_file_statistics_from_parquet_metadata(footer, _without_times(how.statistics), how.columns)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=how.key.partition,
        file_size_in_bytes=size,
        sort_order_id=how.sort_order,
        spec_id=how.spec,
        equality_ids=None,
        key_metadata=None,
        **found.to_serialized_dict(),
    )
