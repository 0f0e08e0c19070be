"""Stages a result: files with the field ids of the table, and a snapshot that no branch names, to be audited."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
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
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from skewless.errors import RunDirectoryError
from skewless.run.objects.location import plain_path
from skewless_lake.commits import attempts
from skewless_lake.iceberg.snapshots import files_of_part, replace_part, require_race, rules_of, summary_of
from skewless_lake.iceberg.tables import find_table, ready_table, sort_order_of
from skewless_lake.new_files import ResultFile, created, short_texts, write_all, write_rows
from skewless_lake.staged import OutputPart, StagedFile, StagedResult


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


#: What the summary of a staged snapshot says of its quality.
NOT_AUDITED = "not audited yet"
#: A staged snapshot that failed its audit, or whose run was given up, can be looked at for so long.
KEPT = dt.timedelta(days=7)


def stage(
    target: OutputPart,
    columns: pa.Schema,
    files: Sequence[ResultFile],
    about: Mapping[str, str],
    begin: Callable[[Sequence[str]], object],
) -> StagedResult:
    """Write a result into files of the output's table and stage a snapshot in which they replace the part."""
    table = ready_table(target, columns)
    written = write_files(table, files, target, begin)
    failed = Counter[str]()
    for attempt in attempts(target.path):
        if attempt:
            table.refresh()
        try:
            found = replace_part(table, target.values, written, {**about, "quality": NOT_AUDITED}, branch=None)
        except CommitFailedException as err:
            require_race(failed, table, err)
            continue
        return StagedResult(
            table=target.path,
            location=table.location(),
            files=tuple(
                StagedFile(path=one.file_path, rows=one.record_count, size_bytes=one.file_size_in_bytes)
                for one in written
            ),
            snapshot=found.snapshot_id,
            rules=rules_of(table),
        )
    raise AssertionError


def staged_paths(target: OutputPart, staged: StagedResult) -> dict[str, int]:
    """Where the staged files can be read, as the table has them now, with the bytes of each."""
    _, files = staged_files(target, staged, find_table(target))
    return {plain_path(file.file_path): file.file_size_in_bytes for file in files}


def staged_files(target: OutputPart, staged: StagedResult, table: Table | None) -> tuple[Table, list[DataFile]]:
    """The files of the part as the staged snapshot has them.

    Args:
        target: the part.
        staged: the record of what is staged.
        table: as it was loaded; None if it is gone.

    Returns:
        The table, and the files.

    Raises:
        RunDirectoryError: the snapshot has been expired, or holds other files than were staged.
    """
    snapshot = _snapshot(table, staged)
    if table is None or snapshot is None:
        raise RunDirectoryError.saying(
            f"staged snapshot {staged.snapshot} of {target.path}", "it has been expired or dropped",
            "begin a new run",
        )  # fmt: skip
    found = files_of_part(table, target.values, snapshot.snapshot_id)
    came = {one.file_path: (one.record_count, one.file_size_in_bytes) for one in found}
    if came != {one.path: (one.rows, one.size_bytes) for one in staged.files}:
        raise RunDirectoryError(
            f"staged snapshot {staged.snapshot} of {target.path}", f"the {len(staged.files)} files of the result",
            f"{len(found)} files, others", "begin a new run",
        )  # fmt: skip
    return table, found


def _snapshot(table: Table | None, staged: StagedResult) -> Snapshot | None:
    return table.snapshot_by_id(staged.snapshot) if table is not None and staged.snapshot is not None else None


def forget_staged(table: Table, staged: StagedResult, now: dt.datetime) -> None:
    """Expire a staged snapshot whose files are published, and those that nobody has published for some days.

    Files are left alone. If somebody else commits just now, the snapshots go another time.
    """
    table.refresh()
    before = (now - KEPT).timestamp() * 1000
    not_audited = [one for one in table.snapshots() if summary_of(one).get("quality") == NOT_AUDITED]
    gone = [one.snapshot_id for one in not_audited if one.snapshot_id == staged.snapshot or one.timestamp_ms < before]
    with suppress(CommitFailedException):
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()
