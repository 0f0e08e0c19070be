"""Delta tables, by deltalake: one version, with the files that its log names."""

import datetime as dt
import hashlib
import posixpath
from collections.abc import Iterator
from functools import reduce
from itertools import compress
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from skewless.documents.job import PinnedTable
from skewless.errors import InputError, first_line
from skewless.run.folder import plain_path
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_lake.delta_log import commits, said_in
from skewless_lake.delta_tables import patience
from skewless_spark.sources.formats.column_types import UNSUPPORTED
from skewless_spark.sources.formats.input_files import nearby
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
from skewless_spark.sources.lake.table_inputs import Condition, Conditions

#: What a reader must be able to do for tables that ask for it. All others are refused.
_FEATURES = frozenset(
    {"deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
     "vacuumProtocolCheck", "variantType", "variantType-preview"}
)  # fmt: skip
_MILLISECONDS = 1000
_MODE, _PHYSICAL = "delta.columnMapping.mode", "delta.columnMapping.physicalName"
#: What Spark's Delta put behind a text that it had cut off, until 2023: characters beyond 16 bits are greater. And what
#: deltalake may have made of an escaped character that is greater, as JSON has those of two planes by one in it.
_CUT_OFF = "\ufffd$|[\U00010000-\U0001ffff\U00030000-\U0003ffff]"
#: In microseconds: the log cuts times off to milliseconds; before 1973 to either side, and the seconds of a zone's
#: offset, which the last one had until then.
_MILLISECOND, _MINUTE, _SINCE_1973 = 1000, 60_000_000, 94_694_400_000_000
#: The types of bounds that are no integers.
_ARROW = {
    "string": pa.string(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def snapshot_of(given: Input, part: Part, _root: str, location: str, conditions: Conditions = lambda _: ()) -> Snapshot:
    """The version that a spec names, with its files, see ``TableReader``."""
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
    by_name = {column.name: column for column in columns}
    actions = pa.table(table.get_add_actions())
    files = _files(table, actions, outside, vectors)
    kept = np.ones(len(files), dtype=bool)
    for condition in conditions({column.name: column.kind for column in columns}):
        kept &= pc.fill_null(_may_pass(actions, by_name[condition.column], condition), True).to_numpy()
    chosen = list(compress(files, kept))
    return Snapshot(
        table=PinnedTable(
            kind="delta", name=location, snapshot=str(table.version()), left_out=len(files) - len(chosen)
        ),
        location=location,
        columns=columns,
        outside=outside,
        parted=outside,
        files=tuple(sorted(chosen, key=lambda file: file.path)),
        vectors=vectors,
    )


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


def _may_pass(actions: pa.Table, column: TableColumn, condition: Condition) -> pa.ChunkedArray:
    """Which files may hold rows that pass, by the value of their partition or their bounds; null is unknown.

    Values of partitions have the names of the table, bounds those of the files: a column may have another one's name.
    """
    kind = _ARROW.get(condition.kind, pa.int64())
    low = high = _logged(actions, "partition", column.name)
    if low is None:
        low, high = (_logged(actions, what, column.inner or column.name) for what in ("min", "max"))
    if low is None or high is None:
        return pa.chunked_array([pa.nulls(len(actions), pa.bool_())])
    if kind == pa.string():
        high = pc.if_else(pc.match_substring_regex(high, _CUT_OFF), None, high)
    passed: list[pa.ChunkedArray] = []
    for value in condition.values:
        least = greatest = value
        if condition.kind.startswith("timestamp") and isinstance(value, int):
            recent = value >= _SINCE_1973
            least, greatest = value + (0 if recent else _MINUTE), value - (_MILLISECOND if recent else _MINUTE)
        least, greatest = pa.scalar(least, kind), pa.scalar(greatest, kind)
        below = (pc.less if condition.comparison == "<" else pc.less_equal)(low, least)
        above = (pc.greater if condition.comparison == ">" else pc.greater_equal)(high, greatest)
        if condition.comparison == "=":
            passed.append(pc.and_kleene(below, above))
        else:
            passed.append(below if condition.comparison.startswith("<") else above)
    return reduce(pc.or_kleene, passed)


def _logged(actions: pa.Table, what: str, name: str) -> pa.ChunkedArray | None:
    if what not in actions.column_names or (place := actions[what].type.get_field_index(name)) < 0:
        return None
    return pc.struct_field(actions[what], [place])


def rewrites_of(snapshot: Snapshot, _root: str) -> Iterator[Commit]:
    """The compactions that a version comes from, the newest first, as far as the log has them."""
    try:
        for version, actions in commits(snapshot.location, int(snapshot.table.snapshot)):
            changed = [one for action in actions for kind, one in action.items() if kind in {"add", "remove"}]
            if version and changed and not any(one.get("dataChange", True) for one in changed):
                yield _files_at(snapshot, version - 1), _files_at(snapshot, version)
    except (OSError, ValueError, InputError):
        return  # the log has been cleaned


def _files_at(snapshot: Snapshot, version: int) -> list[TableFile]:
    table = _opened(snapshot.location, version, snapshot.at)
    return _files(table, pa.table(table.get_add_actions()), snapshot.outside, _vectors(table, snapshot.at))


def vectors_of(table: PinnedTable) -> dict[str, bytes]:
    """The deletion vectors of a pinned version, packed, by the paths of their files."""
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
        return DeltaTable(location, version=version, storage_options=patience(location))
    except TableNotFoundError:
        raise InputError(at, "a Delta table", "none at this place", nearby(location)) from None
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
        # A path of the log is a part of a URI below the table, or a whole one.
        found = unquote(plain_path(path)) if urlsplit(path).scheme else posixpath.join(base, unquote(path))
        values = {name: column[position] for name, column in zip(outside, columns, strict=True)}
        vector = vectors.get(found)
        name = () if vector is None else (VECTOR + hashlib.sha256(vector).hexdigest()[:32],)
        files.append(TableFile(found, size, values, name, rows=rows))
    return files


def _vectors(table: DeltaTable, at: str) -> dict[str, bytes]:
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
