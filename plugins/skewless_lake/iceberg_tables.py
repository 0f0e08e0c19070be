"""The Iceberg table of an output: it is made, held to what a result needs, and published in."""

import io
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyarrow.fs import LocalFileSystem
from pyarrow.parquet import FileMetaData
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.io import OutputStream, load_file_io
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    PyArrowFile,
    PyArrowFileIO,
    StatisticsCollector,
    UnsupportedPyArrowTypeException,
    _ConvertToIcebergWithoutIDs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
    visit_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, NestedField, StringType, TimestampType, TimestamptzType

from skewless.errors import RunDirectoryError, SpecError
from skewless.run.folder import is_object, make_folder, sync_folder
from skewless_lake.catalogs import TableName, open_catalog
from skewless_lake.formats import reason, told, written
from skewless_lake.staged_files import OutputPart, StagedFile, StagedResult, TableRule
from skewless_lake.staging import (
    ResultFile,
    create_file,
    other_partitions,
    part_fields,
    require_columns,
    short_texts,
    write_all,
    write_rows,
)

_PROPERTIES = {"format-version": "2", "write.parquet.compression-codec": "zstd"}
#: Files of a table on an object store have some bits of a hash before their names: below one prefix, a store serves
#: only so many requests a second.
_SPREAD = {"write.object-storage.enabled": "true"}
#: That pyiceberg 0.12 writes.
_NEWEST_FORMAT = 2
#: A Hive metastore that loses the race for a database removes its folder again, and the winner's tables with it. Not
#: so if it has not made that folder: one that is there already is not its own.
_REMOVING = frozenset({"HiveCatalog"})
#: Catalogs of pyiceberg 0.12 that have no ``commit_table``.
_READ_ONLY = frozenset({"DynamoDbCatalog", "BigQueryMetastoreCatalog"})


def find_table(target: OutputPart) -> Table | None:
    """The table of an output, as it is now; None if it has not been made yet."""
    name, catalog = _catalog(target)
    try:
        return catalog.load_table(name.identifier)
    except NoSuchTableError:
        return None


def _catalog(target: OutputPart) -> tuple[TableName, Catalog]:
    name = TableName.parse(target.output.path)
    catalog = open_catalog(name.catalog, target.root)
    if (kind := type(catalog).__name__) in _READ_ONLY:
        raise SpecError.saying(
            f"output {name}", f"pyiceberg's {kind} makes tables and reads them, and commits nothing",
            "choose a catalog in SQL, or of the kinds REST, Glue or Hive",
        )  # fmt: skip
    return name, catalog


def _sort_fields(schema: Schema, target: OutputPart) -> list[SortField]:
    return [
        SortField(
            source_id=schema.find_field(name).field_id,
            transform=IdentityTransform(),
            direction=SortDirection.DESC if descending else SortDirection.ASC,
        )
        for name, descending in target.output.order
    ]


def make_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """Make a namespace, unless it is there: whoever else makes it at once, what is in its folder stays."""
    if catalog.namespace_exists(namespace):
        return
    properties = dict[str, str]()
    if type(catalog).__name__ in _REMOVING:
        place = f"{catalog.load_namespace_properties('default')['location'].rstrip('/')}/{namespace[0]}.db"
        with load_file_io(dict(catalog.properties), place).new_output(f"{place}/.skewless").create(overwrite=True):
            properties["location"] = place
    try:
        catalog.create_namespace_if_not_exists(namespace, properties)
    except Exception:  # another process has made it just now; each catalog says so in its own way
        if not catalog.namespace_exists(namespace):
            raise


def _schema(columns: pa.Schema, at: str) -> Schema:
    found = list[NestedField]()
    for column in columns:
        try:
            found += cast("Schema", visit_pyarrow(pa.schema([column]), _ConvertToIcebergWithoutIDs())).fields
        except (TypeError, ValueError, UnsupportedPyArrowTypeException):
            raise SpecError(
                f"{at}, column {column.name!r}", "a type that Iceberg has", str(column.type),
                "cast the result of the aggregate in map, or publish into a folder",
            ) from None  # fmt: skip
    return assign_fresh_schema_ids(Schema(*found))


def _wanted(target: OutputPart, columns: pa.Schema) -> Schema:
    return _schema(pa.schema([*part_fields(target), *columns]), _where(target))


def _where(target: OutputPart) -> str:
    return f"output {target.output.path}"


def make_table(target: OutputPart, columns: pa.Schema) -> Table:
    """Make it, unless another process is faster."""
    name, catalog = _catalog(target)
    schema = _wanted(target, columns)
    fields = [
        PartitionField(schema.find_field(part.name).field_id, 1000 + number, IdentityTransform(), part.name)
        for number, part in enumerate(part_fields(target))
    ]
    order = SortOrder(*_sort_fields(schema, target)) if target.output.sort else UNSORTED_SORT_ORDER
    make_namespace(catalog, name.identifier[:-1])
    properties = _PROPERTIES | (_SPREAD if is_object(str(catalog.properties.get("warehouse"))) else {})
    try:
        return catalog.create_table(
            name.identifier, schema, partition_spec=PartitionSpec(*fields), sort_order=order, properties=properties
        )
    except Exception:
        if not catalog.table_exists(name.identifier):
            raise
        return catalog.load_table(name.identifier)


def require_fitting(table: Table, target: OutputPart) -> None:
    """Refuse a table that pyiceberg does not write, or where a part is not just the files of one partition."""
    at = _where(target)
    if table.format_version > _NEWEST_FORMAT:
        raise SpecError(
            at, "a table of format 1 or 2", f"one of format {table.format_version}",
            "pyiceberg reads later formats, and does not write them yet: publish into a table of its own",
        )  # fmt: skip
    schema = table.schema()
    # Format 1 leaves removed fields there as void ones; pyiceberg does not write to such tables.
    partitions = [(schema.find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
    if partitions != [(part, "identity") for part in target.values]:
        raise other_partitions(at, target, [f"{column} ({transform})" for column, transform in partitions])


def with_columns(table: Table, target: OutputPart, columns: pa.Schema) -> Table:
    """The table with all columns of a result."""
    wanted, at = _wanted(target, columns), _where(target)
    have, want = ({field.name: re.sub(r"\b\d+: ", "", str(field.field_type)) for field in one.fields}
                  for one in (table.schema(), wanted))  # fmt: skip
    required = {field.name for field in table.schema().fields if field.required}
    odd = require_columns(at, target, have, required, want)
    if not odd:
        return table
    try:
        with table.update_schema() as update:
            update.union_by_name(wanted)
    except CommitFailedException:
        raise
    except Exception as err:  # noqa: BLE001  # pyiceberg raises several kinds for what cannot be evolved
        raise SpecError(
            at, f"a column {odd[0]!r} that can become {want[odd[0]]}", str(err).splitlines()[0][:200],
            "publish into a table of its own",
        ) from None  # fmt: skip
    return table


NUMBERED = "snapshot"
LOST = CHANGED = (CommitFailedException,)
UNANSWERED = (CommitStateUnknownException,)
#: Commits upon one and the same state of a table that may fail: others hold its lock, or pyiceberg passed over a file.
_UPON_ONE_STATE = 10


def where(table: Table) -> str:
    """A table, as sentences about it begin."""
    return f"table {'.'.join(table.name())}"


def column_names(table: Table) -> list[str]:
    """The names of a table's columns."""
    return [field.name for field in table.schema().fields]


def rules_of(table: Table) -> tuple[TableRule, ...]:
    """What each row of a table must be: those who write its files hold to it."""
    return tuple(TableRule(name=f"NOT NULL {field.name}") for field in table.schema().fields if field.required)


def require_race(table: Table, _target: OutputPart, failed: Counter[str], err: Exception) -> None:
    """See ``formats.TableFormat``; states of a table are told by their metadata."""
    failed[table.metadata_location] += 1
    if failed[table.metadata_location] > _UPON_ONE_STATE:
        raise SpecError.saying(
            where(table), f"its catalog does not commit to it ({reason(err)})",
            "see what the catalog says of it, or publish into a table of its own",
        ) from None  # fmt: skip


def earlier_files(table: Table, target: OutputPart, number: int | None = None) -> list[DataFile]:
    """The data files of a part in a snapshot, by default in the current one.

    Raises:
        SpecError: a file has rows of other parts too, as it is older than the table's partitions; or the part has
            equality deletes, which pyiceberg does not read.
    """
    snapshot = table.current_snapshot() if number is None else table.snapshot_by_id(number)
    if snapshot is None:
        return []
    condition: BooleanExpression = AlwaysTrue()
    for column, value in target.values.items():
        condition = And(condition, EqualTo(term=Reference(column), value=value))
    # A scan would also work out, file by file and for longer than all the rest, what of the condition is left to check.
    planner, found = ManifestGroupPlanner(table.metadata, table.io, condition), list[DataFile]()
    for file in (one.data_file for of in planner.plan_manifest_entries(snapshot.manifests(table.io)) for one in of):
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise SpecError(
                where(table), "rows that are deleted by position", "equality deletes",
                "rewrite its data files by compaction, which applies them",
            )  # fmt: skip
        if file.content == DataFileContent.DATA:
            found.append(file)
    specs = table.specs()
    for file in found:
        whole = (field for field in specs[file.spec_id].fields if isinstance(field.transform, IdentityTransform))
        names = {table.schema().find_column_name(field.source_id) for field in whole}
        if not set(target.values) <= names:
            raise SpecError(
                where(table), f"a partition of its own for each {' and '.join(target.values)}",
                f"{file.file_path}, which is older than the table's partitions and may have rows of several",
                "rewrite the table's data files, or publish into a table of its own",
            )  # fmt: skip
    return found


def commit_part(table: Table, target: OutputPart, files: Sequence[DataFile], about: Mapping[str, str]) -> int:
    """Commit a snapshot upon the current one in which a part has just these files, and all others are as they were.

    Raises:
        CommitFailedException: another snapshot has become the current one, or pyiceberg has passed over a file.
        RunDirectoryError: the part has other files than these by then.
    """
    base, before = table.current_snapshot(), earlier_files(table, target)
    kept = {file.file_path for file in files}
    # pyiceberg would apply the change to whatever is there by then: a part that was replaced in between would be there
    # twice. So nothing is tried again here.
    table.metadata = table.metadata.model_copy(
        update={"properties": {**table.metadata.properties, "commit.retry.num-retries": "0"}}
    )
    there = {file.file_path for file in before}
    try:
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=written(about)).overwrite() as change,
        ):
            for file in before:
                if file.file_path not in kept:
                    change.delete_data_file(file)
            for file in files:
                if file.file_path not in there:
                    change.append_data_file(file)
            made = change.snapshot_id
    except (ValueError, BadRequestError) as err:
        if "sequence number" not in str(err):
            raise
        # The next number is taken. Of most catalogs pyiceberg itself finds that, a REST catalog says it.
        raise CommitFailedException(str(err)) from None
    except ValidationException as err:
        # Threads of pyiceberg share what they prune manifests by, so one may pass over a manifest with files that are
        # to be replaced. It finds that they are missing then, and commits nothing.
        raise CommitFailedException(str(err)) from None
    after, expected_base = table.snapshot_by_id(made), base.snapshot_id if base else None
    if after is None or after.parent_snapshot_id != expected_base:
        raise RunDirectoryError(
            f"snapshot {made} of {where(table)}", f"one upon the snapshot {expected_base}",
            f"one upon {after and after.parent_snapshot_id}", "roll the table back, and begin a new run",
        )  # fmt: skip
    observed = {file.file_path for file in earlier_files(table, target, made)}
    if observed != kept:
        raise RunDirectoryError(
            f"snapshot {made} of {where(table)}", f"just the {len(kept):,} files of the part",
            f"{len(observed):,} files", "roll the table back to the snapshot before it, and begin a new run",
        )  # fmt: skip
    return made


def _partition(table: Table, parts: Mapping[str, Any]) -> PartitionKey:
    schema = table.schema()
    values = [
        PartitionFieldValue(field, parts[str(schema.find_column_name(field.source_id))])
        for field in table.spec().fields
        if str(field.transform) == "identity"
    ]
    return PartitionKey(values, table.spec(), schema)


#: Of some of whose values pyiceberg makes no bound: times that Python does not have, texts that are no UTF-8 or whose
#: bound is cut at U+D7FF (apache/iceberg-python#3880).
_UNBOUND = DateType | TimestampType | TimestamptzType | StringType


def _statistics_of(footer: FileMetaData, plan: dict[int, StatisticsCollector], numbers: dict[str, int]) -> str:
    try:
        about = data_file_statistics_from_parquet_metadata(footer, plan, numbers).to_serialized_dict()
    except (OverflowError, UnicodeError):
        counts = MetricsMode(MetricModeTypes.COUNTS)
        counted = {at: replace(one, mode=counts) for at, one in plan.items() if isinstance(one.iceberg_type, _UNBOUND)}
        about = data_file_statistics_from_parquet_metadata(footer, plan | counted, numbers).to_serialized_dict()
    return json.dumps(about, default=bytes.hex)


def stage(
    table: Table, target: OutputPart, files: Sequence[ResultFile], begin: Callable[[Sequence[str]], object]
) -> StagedResult:
    """Write a result into files of the output's table, which no snapshot names yet."""
    token = uuid.uuid4()
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
        statistics = _statistics_of(footer, plan, numbers)
        return StagedFile(path=path, rows=file.rows, size_bytes=size, statistics=statistics)

    written = write_all(paths, files, write)
    return StagedResult(table=target.path, location=table.location(), files=written, rules=rules_of(table))


def staged_files(table: Table, target: OutputPart, staged: StagedResult) -> list[DataFile]:
    """The files as they were staged; nobody removes them while the table is there."""
    key, own = _partition(table, target.values), table.sort_order()
    order = own.order_id if target.output.sort and own.fields == _sort_fields(table.schema(), target) else None
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


def publications(table: Table, _target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    """The published snapshots that runs of ours have made, newest first, with what their summaries say."""
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        about = told(snapshot.summary.additional_properties if snapshot.summary else {})
        if "part" in about:
            yield snapshot.snapshot_id, about


def latest_turn(table: Table, target: OutputPart) -> int:
    """The latest turn in which a part was published; 0 if no summary says one."""
    of_part = (about for _, about in publications(table, target) if about["part"] == target.part.name)
    return max((int(about.get("turn", 0)) for about in of_part), default=0)


def unnamed(table: Table, others: Collection[str], staged: Collection[str], _digest: str) -> list[str]:
    """Which files no snapshot names."""
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


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync_folder(Path(str(self.name)).parent)


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        make_folder(Path(self._path).parent)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's own files, with local ones synced."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write, by its URI or path."""
        plain = super().new_output(location)
        if not isinstance(plain._filesystem, LocalFileSystem):  # noqa: SLF001  # pyiceberg's own name for it
            return plain
        return _SyncedFile(location, plain._path, plain._filesystem)  # noqa: SLF001
