"""Iceberg tables, by pyiceberg: one snapshot, with the files that its manifests name."""

import datetime as dt
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from pyiceberg import expressions as terms
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from pyiceberg.types import BinaryType, FixedType

from skewless.documents.job import PinnedTable
from skewless.errors import InputError, first_line
from skewless.run.folder import plain_path
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_lake.catalogs import TableName, open_catalog
from skewless_spark.sources.formats.parquet import ids_within
from skewless_spark.sources.lake.snapshot import Commit, Snapshot, TableColumn, TableFile, kinds_of, text_of
from skewless_spark.sources.lake.table_inputs import Condition, Conditions

_MILLISECONDS = 1000
_EPOCH = dt.date(1970, 1, 1)
#: The beginning of 1971, as conditions have it.
_LEAST = {"date": 365, "timestamp": 365 * 86_400_000_000, "timestamp_ntz": 365 * 86_400_000_000}


def snapshot_of(given: Input, part: Part, root: str, _location: str, conditions: Conditions = lambda _: ()) -> Snapshot:
    """The snapshot that a spec names, with its files, see ``TableReader``."""
    name = given.path
    at = f"input {name}"
    table = _loaded(name, root, at)
    number = _number(table.metadata, given, part, at)
    schema = table.schema()
    if given.at != "latest":  # that with which the snapshot was committed, as all readers of older snapshots have it
        schema = table.scan(snapshot_id=number).projection()
    mapping = table.name_mapping()
    snapshot = Snapshot(
        table=PinnedTable(kind="iceberg", name=name, snapshot="" if number is None else str(number)),
        location=plain_path(table.location()),
        columns=_columns(schema),
        outside=(),
        parted=_parted(table, schema),
        files=(),
        ids={name: one.field_id for one in mapping or () for name in one.names if one.field_id is not None},
    )
    if number is None:
        return snapshot
    whole, tasks = _left_in(table, number, snapshot, conditions(snapshot.kinds))
    pinned = snapshot.table.model_copy(update={"left_out": whole - len(tasks)})
    return replace(snapshot, table=pinned, files=_as_files(table, schema, tasks, snapshot))


def _left_in(
    table: Table, number: int, snapshot: Snapshot, conditions: Sequence[Condition]
) -> tuple[int, list[FileScanTask]]:
    """How many files a snapshot has, and those that may hold rows that pass, as pyiceberg finds by its metadata."""
    terms = [term for one in conditions if (term := _predicate(table.schema(), snapshot, one)) is not None]
    if terms:
        with suppress(ValueError, OverflowError, TypeError, struct.error):  # bounds that nobody understands
            tasks = list(table.scan(And(*terms) if terms[1:] else terms[0], snapshot_id=number).plan_files())
            found = table.snapshot_by_id(number)
            total = found.summary["total-data-files"] if found is not None and found.summary is not None else None
            return int(total) if total else len(_planned(table, number, snapshot)), tasks
    tasks = _planned(table, number, snapshot)
    return len(tasks), tasks


def _predicate(schema: Schema, snapshot: Snapshot, condition: Condition) -> BooleanExpression | None:
    """A condition as pyiceberg has it, by the column's name now; None if it has none.

    None of times before 1971: older writers put a time before 1970 into the partition after its own.
    """
    number = next(column.field_id for column in snapshot.columns if column.name == condition.column)
    name = schema.find_column_name(number) if number else None
    least = _LEAST.get(condition.kind)
    if name is None or (least is not None and any(cast("int", value) < least for value in condition.values)):
        return None
    kinds: dict[str, type[LiteralPredicate]] = {
        "=": terms.EqualTo, "<": terms.LessThan, "<=": terms.LessThanOrEqual,
        ">": terms.GreaterThan, ">=": terms.GreaterThanOrEqual,
    }  # fmt: skip
    any_of = [kinds[condition.comparison](terms.Reference(name), cast("Any", value)) for value in condition.values]
    return terms.Or(*any_of) if any_of[1:] else any_of[0]


def rewrites_of(snapshot: Snapshot, root: str) -> Iterator[Commit]:
    """The compactions that a snapshot comes from, the newest first, as far as older snapshots are kept."""
    table = _loaded(snapshot.table.name, root, snapshot.at)
    known = {one.snapshot_id: one for one in table.snapshots()}
    one = known.get(int(snapshot.table.snapshot))
    while one is not None:
        before = known.get(one.parent_snapshot_id or -1)
        if before is not None and one.summary is not None and one.summary.operation == Operation.REPLACE:
            try:
                yield (
                    _files(table, table.schema(), before.snapshot_id, snapshot),
                    _files(table, table.schema(), one.snapshot_id, snapshot),
                )
            except InputError:
                return  # its manifests are gone, or it had equality deletes
        one = before


def vectors_of(_table: PinnedTable) -> dict[str, bytes]:
    """None: they are in files of their own."""
    return {}


def _files(table: Table, schema: Schema, number: int, snapshot: Snapshot) -> tuple[TableFile, ...]:
    return _as_files(table, schema, _planned(table, number, snapshot), snapshot)


def _as_files(table: Table, schema: Schema, tasks: Sequence[FileScanTask], snapshot: Snapshot) -> tuple[TableFile, ...]:
    found = (_file(table, schema, task, snapshot) for task in tasks)
    return tuple(sorted(found, key=lambda file: file.path))


def _loaded(name: str, root: str, at: str) -> Table:
    asked = TableName.parse(name)
    catalog = open_catalog(asked.catalog, root)
    try:
        return catalog.load_table(asked.identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise InputError(at, "a table of its catalog", "none of this name", "check the name") from None
    except Exception as err:  # noqa: BLE001  # each catalog and each store has errors of its own
        raise InputError(at, "a table that can be loaded", _first_line(err), "check the catalog") from None


def _number(metadata: TableMetadata, given: Input, part: Part, at: str) -> int | None:
    """The id of the snapshot that a spec names; None for the latest one of a table without any."""
    wanted = given.at
    if wanted == "{date}":
        return _at_the_end_of(metadata, part.date, at)
    if isinstance(wanted, int):
        if metadata.snapshot_by_id(wanted) is None:
            known = ", ".join(str(one.snapshot_id) for one in metadata.snapshots[-3:]) or "none"
            raise InputError(
                at, f"the snapshot {wanted}", "a table that has it no more, or never had it", f"its newest are {known}"
            )
        return wanted
    return metadata.current_snapshot_id


def _at_the_end_of(metadata: TableMetadata, day: dt.date, at: str) -> int:
    end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), dt.UTC).timestamp() * _MILLISECONDS
    log = metadata.snapshot_log
    before = [number for number, entry in enumerate(log) if entry.timestamp_ms < end]
    required = f"a snapshot that was committed before the end of {day} in UTC"
    if not before:
        raise InputError(at, required, "none, or one that has expired", "choose a later day, or a snapshot by its id")
    chosen = log[before[-1]].snapshot_id
    if before[-1] + 1 < len(log):
        # Who expires snapshots takes them out of the log, too. Then the one before them is not what the day ended with.
        follower = metadata.snapshot_by_id(log[before[-1] + 1].snapshot_id)
        parent = follower.parent_snapshot_id if follower else None
        if parent is None or metadata.snapshot_by_id(parent) is None:
            raise InputError(at, required, "one that has expired", "choose a later day, or keep snapshots longer")
    return chosen


def _columns(schema: Schema) -> tuple[TableColumn, ...]:
    fields = schema_to_pyarrow(schema)
    kinds = kinds_of(fields)
    return tuple(
        TableColumn(
            one.name,
            kinds[one.name],
            field_id=one.field_id,
            ids=ids_within(fields.field(one.name).type),
            required=one.required or one.initial_default is not None,
            # Of rows that are older than the column; no text has bytes.
            default=None if isinstance(one.initial_default, bytes | UUID) else text_of(one.initial_default),
        )
        for one in schema.fields
    )


def _parted(table: Table, schema: Schema) -> tuple[str, ...]:
    named = [
        schema.find_column_name(one.source_id)
        for one in table.spec().fields
        if isinstance(one.transform, IdentityTransform | DayTransform | HourTransform)
    ]
    return tuple(name for name in named if name)


def _planned(table: Table, number: int, snapshot: Snapshot) -> list[FileScanTask]:
    try:
        return list(table.scan(snapshot_id=number).plan_files())
    except FileNotFoundError as err:
        raise InputError(
            snapshot.at, "the manifests of the snapshot", f"one that is gone ({_first_line(err)})",
            "it has expired, or its files were removed: choose a later snapshot",
        ) from None  # fmt: skip
    except ValueError as err:
        if "equality delete" in str(err):
            raise InputError(
                snapshot.at, "a table whose rows are deleted by position",
                "equality deletes, which are not applied yet",
                "rewrite its data files by compaction, which applies them",
            ) from None  # fmt: skip
        raise InputError(snapshot.at, "manifests that can be read", _first_line(err)) from None


def _file(table: Table, schema: Schema, task: FileScanTask, snapshot: Snapshot) -> TableFile:
    deletes = (one for one in task.delete_files
               if one.content != DataFileContent.POSITION_DELETES or one.file_format != FileFormat.PUFFIN)  # fmt: skip
    odd = next((one for one in (task.file, *deletes) if one.file_format != FileFormat.PARQUET), None)
    if odd is not None:
        raise InputError(
            snapshot.at, "Parquet files, and deletes in Parquet or Puffin",
            f"{odd.file_path} in {odd.file_format}", "rewrite it as Parquet",
        )  # fmt: skip
    return TableFile(
        path=plain_path(task.file.file_path),
        size_bytes=task.file.file_size_in_bytes,
        values=_values(table, schema, task.file),
        deletes=tuple(sorted(plain_path(one.file_path) for one in task.delete_files)),
        days=_days(table, schema, task.file),
        rows=task.file.record_count,
    )


def _values(table: Table, schema: Schema, file: DataFile) -> dict[str, str | None]:
    """The values of the columns that partition a file as they are; a transformed value is no value of a column."""
    values: dict[str, str | None] = {}
    for position, one in enumerate(table.specs()[file.spec_id].fields):
        name = schema.find_column_name(one.source_id)
        kind = schema.find_type(one.source_id) if name else None
        if name is None or kind is None or isinstance(kind, BinaryType | FixedType):
            continue
        if isinstance(one.transform, IdentityTransform):
            value = file.partition[position]
            values[name] = None if value is None else one.transform.to_human_string(kind, value)
    return values


def _days(table: Table, schema: Schema, file: DataFile) -> dict[str, str | None]:
    """By the name of a column: the day that all rows of a file are of, as its hidden partition says."""
    found: dict[str, str | None] = {}
    for position, one in enumerate(table.specs()[file.spec_id].fields):
        name, value = schema.find_column_name(one.source_id), file.partition[position]
        if name is not None and isinstance(one.transform, DayTransform | HourTransform):
            days = value // 24 if value is not None and isinstance(one.transform, HourTransform) else value
            try:
                found[name] = None if days is None else str(_EPOCH + dt.timedelta(days=days))
            except OverflowError:  # a day that Python does not have, such as one of the year 20,000
                found[name] = None
    return found


def _first_line(err: Exception) -> str:
    return f"{type(err).__name__}: {first_line(err)}"
