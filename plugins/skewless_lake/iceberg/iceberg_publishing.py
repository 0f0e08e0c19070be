"""What is done with the table of an output: files with its field ids, and the snapshot that names them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
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

from skewless.errors import RunDirectoryError
from skewless.publication.publish import Commit
from skewless.publication.records import Identity, Overtaken
from skewless_lake.formats import identity_in
from skewless_lake.iceberg.iceberg_tables import find_table, fitting_table, ready_table, sort_order_of
from skewless_lake.iceberg.snapshots import column_names, commit_part, earlier_files, ours, require_race, rules_of
from skewless_lake.staged_files import OutputPart, StagedFile, StagedResult
from skewless_lake.staging import ResultFile, create_file, short_texts, write_all, write_rows

#: What each format has, see ``formats.TableFormat``.
__all__ = [
    "EARLIER", "LOST", "NUMBERED", "UNANSWERED", "column_names", "commit_part", "earlier_files", "find_table",
    "fitting_table", "latest_turn", "publications", "remove", "require_race", "rules_of", "stage", "staged_files",
    "standing", "unnamed",
]  # fmt: skip
NUMBERED = "snapshot"
EARLIER = (
    "two publications of it in the table's history",
    "run the job again, or have a look at older snapshots with pyiceberg",
)
LOST, UNANSWERED = (CommitFailedException,), (CommitStateUnknownException,)


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


def stage(
    target: OutputPart, columns: pa.Schema, files: Sequence[ResultFile], begin: Callable[[Sequence[str]], object]
) -> StagedResult:
    """Write a result into files of the output's table, which no snapshot names yet."""
    table, token = ready_table(target, columns), uuid.uuid4()
    earlier_files(table, target)  # it is refused, if that is not just the files of one partition
    key, places = _partition(table, target.values), table.location_provider()
    paths = [places.new_data_location(f"{number:05d}-{token}.parquet", key) for number in range(len(files))]
    begin(paths)
    kind = pa.schema(map(short_texts, schema_to_pyarrow(table.schema(), include_field_ids=True)))
    codec = table.properties.get("write.parquet.compression-codec", "zstd").replace("uncompressed", "none")
    plan = compute_statistics_plan(table.schema(), table.properties)
    numbers = parquet_path_to_id_mapping(table.schema())

    def write(path: str, file: ResultFile) -> StagedFile:
        with create_file(path) as stream:
            footer = write_rows(stream, file, kind, target.values, codec)
            size = stream.tell()
        try:
            about = data_file_statistics_from_parquet_metadata(footer, plan, numbers)
        except OverflowError:  # a date or a time that Python does not have, such as one of the year 20,000
            about = data_file_statistics_from_parquet_metadata(footer, _without_times(plan), numbers)
        statistics = json.dumps(about.to_serialized_dict(), default=bytes.hex)
        return StagedFile(path=path, rows=file.rows, size_bytes=size, statistics=statistics)

    written = write_all(paths, files, write)
    return StagedResult(table=target.path, location=table.location(), files=tuple(written), rules=rules_of(table))


def staged_files(table: Table | None, target: OutputPart, staged: StagedResult) -> list[DataFile]:
    """The files as they were staged; nobody removes them while the table is there."""
    if table is None:
        raise RunDirectoryError.saying(f"table {target.path}", "it has been dropped", "begin a new run")
    key, order = _partition(table, target.values), sort_order_of(table, target)
    return [
        DataFile.from_args(
            content=DataFileContent.DATA, file_path=file.path, file_format=FileFormat.PARQUET,
            partition=key.partition, file_size_in_bytes=file.size_bytes, sort_order_id=order,
            spec_id=table.spec().spec_id, equality_ids=None, key_metadata=None, **_statistics(file.statistics),
        )
        for file in staged.files
    ]  # fmt: skip


def _statistics(text: str) -> dict[str, Any]:
    """What ``to_serialized_dict`` gave: JSON has texts for the numbers of columns, and for bytes."""
    about = json.loads(text)
    by_column = {name: values for name, values in about.items() if isinstance(values, dict)}
    return about | {
        name: {
            int(column): bytes.fromhex(value) if name.endswith("_bounds") else value for column, value in values.items()
        }
        for name, values in by_column.items()
    }


def publications(table: Table, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    """The published snapshots that runs of ours have made, newest first, with what their summaries say."""
    del target
    return ((snapshot.snapshot_id, about) for snapshot, about in ours(table))


def latest_turn(table: Table, target: OutputPart) -> int:
    """The latest turn in which a part was published; 0 if no summary says one."""
    return max((int(about.get("turn", 0)) for _, about in ours(table) if about["part"] == target.part.name), default=0)


def standing(table: Table, target: OutputPart, turn: int, me: Identity) -> Commit | None:
    """What the history of a table says of a run: published, superseded, or None if neither."""
    newest = next((about for _, about in ours(table) if about["part"] == target.part.name), None)
    if newest is None:
        return None
    mine = next((one.snapshot_id for one, about in ours(table) if about.get("run-digest") == me.job), None)
    if mine is not None:
        return Commit(mine)
    latest = int(newest.get("turn", 0))
    return Commit(None, Overtaken(by=identity_in(newest), turn=latest)) if latest > turn else None


def unnamed(table: Table, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """Which files no snapshot names."""
    del digest
    left = {*others, *staged}
    manifests = {
        manifest.manifest_path: manifest for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)
    }
    for manifest in manifests.values():
        left -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return sorted(left)


def remove(target: OutputPart, paths: Collection[str]) -> None:
    """Remove files; those that are gone are no error."""
    if (table := find_table(target)) is not None:
        for path in paths:
            if table.io.new_input(path).exists():
                table.io.delete(path)
