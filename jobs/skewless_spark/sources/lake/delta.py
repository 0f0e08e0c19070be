"""Delta tables, by deltalake: one version, with the files that its log names."""

from __future__ import annotations

import datetime as dt
import hashlib
import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from skewless.documents.job import PinnedTable
from skewless.errors import InputError, SpecError
from skewless.run.objects.location import plain_path
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_lake.delta.log import Actions, commits, known_values, millisecond_up, said_in
from skewless_lake.formats import first_line
from skewless_spark.mapping.conditions import Bounds, Condition, Value, possible
from skewless_spark.sources.formats.column_types import UNSUPPORTED
from skewless_spark.sources.lake.snapshot import (
    VECTOR,
    Commit,
    Snapshot,
    TableColumn,
    TableFile,
    kinds_of,
    packed,
    text_of,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: What a reader must be able to do for tables that ask for it. All others are refused.
_FEATURES = frozenset(
    {"deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
     "vacuumProtocolCheck", "variantType", "variantType-preview"}
)  # fmt: skip
_MILLISECONDS = 1000
_MODE, _PHYSICAL = "delta.columnMapping.mode", "delta.columnMapping.physicalName"
#: What Spark's Delta put behind a text that it had cut off, until 2023. Characters beyond 16 bits are greater.
_CUT_OFF, _GREATEST = "\ufffd", "\U0010ffff"


def delta_snapshot(
    given: Input, part: Part, location: str, conditions: Sequence[Condition] = ()
) -> tuple[Snapshot, dict[str, bytes]]:
    """The version that a spec names, with its files.

    Args:
        conditions: files whose bounds hold no row that passes them are left out.

    Returns:
        The snapshot, and its deletion vectors, packed.

    Raises:
        InputError: there is no such table or version, or it needs what cannot be done here.
        SpecError: deltalake is not installed.
    """
    at = f"input {location}"
    if given.at == "{date}":
        table = _opened(location, _at_the_end_of(_opened(location, None, at), location, part.date, at), at)
    else:
        table = _opened(location, given.at if isinstance(given.at, int) else None, at)
    odd = sorted(set(table.protocol().reader_features or ()) - _FEATURES)
    if odd:
        raise InputError(at, "a table without further reader features", f"the features {odd}"[:160], "drop them")
    if table.metadata().configuration.get(_MODE) == "id":
        raise InputError(at, "columns that are mapped by name, or not at all", f"{_MODE} = id", "write the table anew")
    vectors = _vectors(table, at)
    outside = tuple(table.metadata().partition_columns)
    columns = _columns(table)
    kinds = {one.name: one.kind for one in columns}
    actions = pa.table(table.get_add_actions())
    files = _files(table, actions, outside, vectors)
    chosen = [
        file
        for file, bounds in zip(files, _bounds(actions, columns, conditions), strict=True)
        if possible(conditions, kinds, bounds)
    ]
    snapshot = Snapshot(
        table=PinnedTable(
            kind="delta", name=location, snapshot=str(table.version()), left_out=len(files) - len(chosen)
        ),
        location=location,
        columns=columns,
        outside=outside,
        parted=outside,
        files=tuple(sorted(chosen, key=lambda file: file.path)),
    )
    return snapshot, vectors


def _columns(table: DeltaTable) -> tuple[TableColumn, ...]:
    """The columns, as the table maps them now: not at all, or by the names in its files."""
    schema, mode = table.schema(), table.metadata().configuration.get(_MODE, "none")
    kinds = kinds_of(pa.schema(schema.to_arrow()))
    return tuple(
        TableColumn(
            one.name,
            _kind(str(one.type), kinds[one.name], mapped=mode != "none"),
            inner="" if mode == "none" else str(one.metadata[_PHYSICAL]),
            required=not one.nullable,
        )
        for one in schema.fields
    )


def _kind(declared: str, kind: str, *, mapped: bool) -> str:
    if "VariantType()" in declared:  # of which Arrow makes a structure of bytes
        return f"{UNSUPPORTED}variant"
    return f"{UNSUPPORTED}{kind}, whose fields the table maps" if mapped and "struct<" in kind else kind


def _bounds(
    actions: pa.Table, columns: Sequence[TableColumn], conditions: Sequence[Condition]
) -> Iterator[dict[str, Bounds]]:
    """For each file, in the order of the actions, the bounds of the columns that conditions are about.

    Values of partitions have the names of the table, bounds those of the files: a column may have another one's name.
    """
    asked = {one.column.lower() for one in conditions}

    def told(what: str, name: str) -> list[Any]:
        if what not in actions.column_names or (place := actions[what].type.get_field_index(name)) < 0:
            return [None] * len(actions)
        return known_values(pc.struct_field(actions[what], [place]))

    found = {}
    for one in (one for one in columns if one.name.lower() in asked):
        values = told("partition", one.name)
        lows, highs = told("min", one.inner or one.name), told("max", one.inner or one.name)
        found[one.name] = [
            (_plain(value), _plain(value)) if value is not None else (_plain(low), _plain(high, up=True))
            for value, low, high in zip(values, lows, highs, strict=True)
        ]
    for number in range(len(actions)):
        yield {name: bounds[number] for name, bounds in found.items()}


def _plain(value: Any, *, up: bool = False) -> Value | None:
    """A bound as conditions have it. The log cuts times off to milliseconds, so an upper bound may be greater."""
    if isinstance(value, dt.datetime):
        exact = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        return millisecond_up(exact) if up else exact
    if up and isinstance(value, str) and value.endswith(_CUT_OFF):
        return value[:-1] + _GREATEST
    return value if isinstance(value, int | str | dt.date) and not isinstance(value, bool) else None


def delta_rewrites(snapshot: Snapshot) -> Iterator[Commit]:
    """The compactions that a version comes from, the newest first, as far as the log has them."""
    try:
        for version, actions in commits(snapshot.location, int(snapshot.table.snapshot)):
            if version and _changes_no_row(actions):
                yield _files_at(snapshot, version - 1), _files_at(snapshot, version)
    except (OSError, ValueError, InputError):
        return  # the log has been cleaned


def _changes_no_row(actions: Actions) -> bool:
    changed = [one for action in actions for kind, one in action.items() if kind in {"add", "remove"}]
    return bool(changed) and not any(one.get("dataChange", True) for one in changed)


def _files_at(snapshot: Snapshot, version: int) -> list[TableFile]:
    table = _opened(snapshot.location, version, snapshot.at)
    return _files(table, pa.table(table.get_add_actions()), snapshot.outside, _vectors(table, snapshot.at))


def pinned_vectors(table: PinnedTable) -> dict[str, bytes]:
    """The deletion vectors of a pinned version, packed, by the paths of their files.

    Raises:
        InputError: the version is gone.
    """
    at = f"input {table.name}"
    return _vectors(_opened(table.name, int(table.snapshot), at), at)


def _at_the_end_of(table: DeltaTable, location: str, day: dt.date, at: str) -> int:
    """The newest version when a day ended, in UTC, as the commits themselves say when they were made."""
    end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), dt.UTC).timestamp() * _MILLISECONDS
    required = f"a version that was committed before the end of {day} in UTC"
    try:
        for version, actions in commits(location, int(table.version())):
            said = said_in(actions)
            when = said.get("inCommitTimestamp", said.get("timestamp"))
            if when is None:
                came = f"the version {version}, which does not say when"
                raise InputError(at, required, came, "choose a version by its number")
            if when < end:
                return version
    except (OSError, ValueError) as err:
        raise InputError(at, "a log that can be read", first_line(err), "choose a version by its number") from None
    raise InputError(
        at, required, "none, or one that the log has no more", "choose a later day, or a version by its number"
    )


def _opened(location: str, version: int | None, at: str) -> DeltaTable:
    try:
        from deltalake import DeltaTable  # noqa: PLC0415  # an extra
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415
    except ImportError:
        raise SpecError.saying(at, "deltalake is not installed", "install skewless[delta]") from None
    try:
        from skewless_lake.delta.delta_tables import patience  # noqa: PLC0415

        return DeltaTable(location, version=version, storage_options=patience(location))
    except TableNotFoundError:
        raise InputError(at, "a Delta table", "none at this place", "check the path") from None
    except (DeltaError, OSError, ValueError) as err:
        required = "a Delta table that deltalake can open" if version is None else f"the version {version}"
        # deltalake has one error for a store that does not answer and for a log that is broken or was cleaned.
        remedy = "repair its log" if version is None else "choose a later version, as its log may have been cleaned"
        hint = f"see that its store answers; if it does, {remedy}"
        unsupported = "upport" in str(err)  # a feature, which the message names
        raise InputError(at, required, first_line(err), "drop the feature" if unsupported else hint) from None


def _files(
    table: DeltaTable, actions: pa.Table, outside: tuple[str, ...], vectors: dict[str, bytes]
) -> list[TableFile]:
    parted = actions["partition"].combine_chunks() if outside else pa.array([{}])
    base, files = plain_path(table.table_uri), []
    try:
        columns = [[text_of(value.as_py()) for value in parted.field(name)] for name in outside]
    except (OverflowError, ValueError) as err:
        raise InputError(
            f"input {base}", "values of partitions that are known here", first_line(err),
            "write these partitions anew, by another column",
        ) from None  # fmt: skip
    of_actions = (actions[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    for position, (path, size, rows) in enumerate(zip(*of_actions, strict=True)):
        found = _located(base, path)
        values = {name: column[position] for name, column in zip(outside, columns, strict=True)}
        vector = vectors.get(found)
        name = () if vector is None else (VECTOR + hashlib.sha256(vector).hexdigest()[:32],)
        files.append(TableFile(found, size, values, name, rows=rows))
    return files


def _located(base: str, path: str) -> str:
    """A path of the log, which is a part of a URI below the table, or a whole one."""
    return unquote(plain_path(path)) if urlsplit(path).scheme else posixpath.join(base, unquote(path))


def _vectors(table: DeltaTable, at: str) -> dict[str, bytes]:
    from deltalake.exceptions import DeltaError  # noqa: PLC0415  # an extra

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    found: dict[str, bytes] = {}
    try:
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            for path, kept in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                found[unquote(plain_path(path))] = packed(kept.values.to_numpy(zero_copy_only=False))
    except (DeltaError, pa.ArrowException, OSError) as err:
        raise InputError(
            at, "deletion vectors that deltalake can read", first_line(err),
            "purge them (REORG TABLE ... APPLY (PURGE)), and drop the feature, or repair the table",
        ) from None  # fmt: skip
    return found
