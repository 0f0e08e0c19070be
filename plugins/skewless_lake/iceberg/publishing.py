"""What is done with the table of an output: files with its field ids, a staged snapshot, and one that readers see.

A staged snapshot is named by no branch; it is there to be audited.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

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
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from skewless.errors import RunDirectoryError
from skewless.publication.publish import Commit
from skewless.publication.records import Identity, Overtaken
from skewless.run.objects.location import plain_path
from skewless_lake.formats import attempts, identity_in
from skewless_lake.iceberg.snapshots import files_of_part, ours, replace_part, require_race, rules_of, summary_of
from skewless_lake.iceberg.tables import find_table, fitting_table, ready_table, sort_order_of
from skewless_lake.staged import OutputPart, StagedFile, StagedResult
from skewless_lake.staging import ResultFile, create_file, short_texts, write_all, write_rows

#: What each format has, see ``formats.TableFormat``.
__all__ = [
    "EARLIER", "LOST", "NUMBERED", "UNANSWERED", "commit_part", "earlier_files", "find_table", "fitting_table",
    "forget_staged", "latest_turn", "publications", "remove", "require_race", "stage", "staged_files", "staged_paths",
    "standing", "unnamed",
]  # fmt: skip
NUMBERED = "snapshot"
EARLIER = (
    "two publications of it in the table's history",
    "run the job again, or have a look at older snapshots with pyiceberg",
)
LOST, UNANSWERED = (CommitFailedException,), (CommitStateUnknownException,)
#: What the summary of a staged snapshot says of its quality.
NOT_AUDITED = "not audited yet"
#: A staged snapshot that failed its audit, or whose run was given up, can be looked at for so long.
KEPT = dt.timedelta(days=7)


class _How(NamedTuple):
    """What all files of a publication have in common.

    Attributes:
        kind: the columns of the table as Arrow has them, each with its field id.
        parts: the values of the partition columns.
        key: the same, as Iceberg has them.
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


def _write(path: str, file: ResultFile, how: _How) -> DataFile:
    with create_file(path) as stream:
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


def stage(
    target: OutputPart, columns: pa.Schema, files: Sequence[ResultFile], about: Mapping[str, str],
    begin: Callable[[Sequence[str]], object],
) -> StagedResult:  # fmt: skip
    """Write a result into files of the output's table and stage a snapshot in which they replace the part."""
    table, token = ready_table(target, columns), uuid.uuid4()
    how, places = _How.of(table, target), table.location_provider()
    paths = [places.new_data_location(f"{number:05d}-{token}.parquet", how.key) for number in range(len(files))]
    begin(paths)
    written = write_all(paths, files, lambda path, file: _write(path, file, how))
    failed = Counter[str]()
    for attempt in attempts(target.path):
        if attempt:
            table.refresh()
        try:
            found = replace_part(table, target.values, written, {**about, "quality": NOT_AUDITED}, branch=None)
        except CommitFailedException as err:
            require_race(table, target, failed, err)
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
    files = staged_files(find_table(target), target, staged)
    return {plain_path(file.file_path): file.file_size_in_bytes for file in files}


def staged_files(table: Table | None, target: OutputPart, staged: StagedResult) -> list[DataFile]:
    """The files of the part as the staged snapshot has them; it may have been expired, or hold others than staged."""
    snapshot = None
    if table is not None and staged.snapshot is not None:
        snapshot = table.snapshot_by_id(staged.snapshot)
    if table is None or snapshot is None:
        raise RunDirectoryError.saying(
            f"staged snapshot {staged.snapshot} of {target.path}", "it has been expired or dropped", "begin a new run"
        )
    found = files_of_part(table, target.values, snapshot.snapshot_id)
    came = {one.file_path: (one.record_count, one.file_size_in_bytes) for one in found}
    if came != {one.path: (one.rows, one.size_bytes) for one in staged.files}:
        raise RunDirectoryError(
            f"staged snapshot {staged.snapshot} of {target.path}", f"the {len(staged.files)} files of the result",
            f"{len(found)} files, others", "begin a new run",
        )  # fmt: skip
    return found


def earlier_files(table: Table, target: OutputPart, number: int) -> list[DataFile]:
    """The files of the part as a snapshot has them."""
    return files_of_part(table, target.values, number)


def commit_part(table: Table, target: OutputPart, files: Sequence[DataFile], about: Mapping[str, str]) -> int:
    """Commit a snapshot to the branch that readers see."""
    return replace_part(table, target.values, files, about, branch="main").snapshot_id


def forget_staged(table: Table, staged: StagedResult, at: str) -> None:
    """Expire a staged snapshot whose files are published, and those that nobody has published for some days.

    If somebody else commits just now, the snapshots go another time.
    """
    table.refresh()
    before = (dt.datetime.fromisoformat(at) - KEPT).timestamp() * 1000
    not_audited = [one for one in table.snapshots() if summary_of(one).get("quality") == NOT_AUDITED]
    gone = [one.snapshot_id for one in not_audited if one.snapshot_id == staged.snapshot or one.timestamp_ms < before]
    with suppress(CommitFailedException):
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()


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
    """Which files no snapshot names, but for those that a run has staged."""
    left = {*others, *staged}
    given_up = {one.snapshot_id for one in _staged_by(table, digest)}
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in table.snapshots()
        if snapshot.snapshot_id not in given_up
        for manifest in snapshot.manifests(table.io)
    }
    for manifest in manifests.values():
        left -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return sorted(left)


def remove(target: OutputPart, paths: Collection[str], digest: str) -> None:
    """Expire what a run has staged, and remove files."""
    for _ in attempts(target.path):
        table = find_table(target)
        if table is None:
            return
        staged = [one.snapshot_id for one in _staged_by(table, digest)]
        try:
            if staged:
                table.maintenance.expire_snapshots().by_ids(staged).commit()
        except CommitFailedException:
            continue
        for path in paths:
            if table.io.new_input(path).exists():
                table.io.delete(path)
        return


def _staged_by(table: Table, digest: str) -> list[Snapshot]:
    """The snapshots that a run has staged, which no branch and no tag names."""
    named = {one.snapshot_id for one in table.refs().values()}
    abouts = [(one, summary_of(one)) for one in table.snapshots() if one.snapshot_id not in named]
    return [one for one, about in abouts if about.get("run-digest") == digest and about.get("quality") == NOT_AUDITED]
