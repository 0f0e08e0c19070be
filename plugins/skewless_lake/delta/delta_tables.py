"""The Delta table of an output: made on first use, and held to the columns and the partitions that a result needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import CommitProperties

from skewless.errors import SpecError
from skewless.run.folder import make_folder, sync_file, sync_folder
from skewless.run.objects.location import is_object, plain_path
from skewless_lake.delta.log import known_values
from skewless_lake.formats import reason
from skewless_lake.staged_files import OutputPart, TableRule
from skewless_lake.staging import other_partitions, part_fields, require_columns

_READER_VERSIONS = frozenset({1, 2, 3})
#: All writers of version 6 have to know identity columns.
_WRITER_VERSIONS = frozenset({1, 2, 3, 4, 5, 7})
#: Without column mapping: ``_PROPERTIES`` has its mode. Files that are replaced go with their deletion vectors.
_FEATURES = frozenset({
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
    "invariants", "timestampNtz", "v2Checkpoint",
})  # fmt: skip
#: Properties that ask nothing of one who replaces whole files, whatever their value.
_OF_OTHERS = frozenset({
    "autoOptimize", "autoOptimize.autoCompact", "autoOptimize.optimizeWrite", "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct", "checkpointInterval", "checkpointPolicy", "columnMapping.maxColumnId",
    "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration", "enableChangeDataFeed",
    "enableDeletionVectors", "enableExpiredLogCleanup", "enableFullRetentionRollback", "isolationLevel",
    "logRetentionDuration", "minReaderVersion", "minWriterVersion", "parquet.compression.codec",
    "randomPrefixLength", "randomizeFilePrefixes", "sampleRetentionDuration", "targetFileSize",
    "tuneFileSizesForRewrites",
})  # fmt: skip
#: What switches off a property that is on no list.
_OFF = frozenset({"false", "none"})
_CHECK = "constraints."
_INVARIANT, _GENERATED = "delta.invariants", "delta.generationExpression"
_METADATA = frozenset({"comment", _INVARIANT, _GENERATED})


def _not_understood(table: DeltaTable) -> Iterator[str]:
    protocol = table.protocol()
    if protocol.min_reader_version not in _READER_VERSIONS:
        yield f"reader version {protocol.min_reader_version}"
    if protocol.min_writer_version not in _WRITER_VERSIONS:
        yield f"writer version {protocol.min_writer_version}"
    for feature in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _FEATURES):
        yield f"the feature {feature}"
    for name, value in sorted(table.metadata().configuration.items()):
        of_delta = name.removeprefix("delta.")
        if name == of_delta or of_delta in _OF_OTHERS or of_delta.startswith((_CHECK, "feature.")):
            continue
        if str(value).lower() not in _OFF:
            yield f"the property {name} = {value}"
    for path, field in _fields(table):
        for key in sorted(field["metadata"].keys() - _METADATA):
            yield f"the metadata {key} of the column {path}"


def rules_of(table: DeltaTable) -> tuple[TableRule, ...]:
    """What each row of a table must be: CHECK constraints, invariants, generated columns, NOT NULL."""
    checks = [
        TableRule(name=f"CHECK {name.removeprefix('delta.' + _CHECK)}", condition=value)
        for name, value in sorted(table.metadata().configuration.items())
        if name.startswith("delta." + _CHECK)
    ]
    for path, field in _fields(table):
        about, name = field["metadata"], path.replace("`", "``")
        if _INVARIANT in about:
            checks.append(TableRule(name=f"invariant of {path}", condition=_expression(about[_INVARIANT])))
        if _GENERATED in about:
            checks.append(TableRule(name=f"generated column {path}", condition=f"`{name}` <=> ({about[_GENERATED]})"))
        if not field["nullable"]:
            checks.append(TableRule(name=f"NOT NULL {path}"))
    return tuple(checks)


def _expression(invariant: str) -> str:
    """The condition in the text of an invariant; if it has another form, the text, which is none and fails."""
    try:
        return str(json.loads(invariant)["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        return invariant


def _fields(table: DeltaTable) -> Iterator[tuple[str, dict[str, Any]]]:
    """All columns, and the fields of structs in them, each with its path."""
    return _of_type(json.loads(table.schema().to_json()), "")


def _of_type(kind: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        inner = f"{path}{field['name']}"
        yield inner, field
        yield from _of_type(field["type"], f"{inner}.")
    for part in ("elementType", "keyType", "valueType"):
        yield from _of_type(kind.get(part), path)


#: The folder of a table in which its versions are.
LOG = "_delta_log"
_ATTEMPTS = 10
#: deltalake removes the files of a part by names that it has encoded anew: all but letters, digits and these.
_PLAIN = "/!$&'()+,-.:;=@_~"
#: What its errors say of a table that is of a protocol beyond it.
_BEYOND = ("unsupported", "not supported", "protocol", "catalog-managed")


def location_of(target: OutputPart) -> str:
    """The folder or URL of an output's table."""
    return plain_path(target.path.removeprefix("delta+"))


def sync_version(target: OutputPart, version: int) -> None:
    """Have a version of a local table on the disk; data files are there since they were written."""
    if "://" not in location_of(target):
        log = Path(location_of(target), LOG)
        sync_file(log / f"{version:020d}.json")
        sync_folder(log)


def patience(location: str) -> dict[str, str] | None:
    """How often and how long deltalake asks an object store: as our own clients do, and not three minutes at a time."""
    if not is_object(location):
        return None
    from skewless.run.objects import client  # noqa: PLC0415  # an extra

    return {
        "max_retries": str(client.RETRIES),
        "retry_timeout": f"{client.RETRY_SECONDS:.3f}s",
        "backoff_config.max_backoff": f"{client.LONGEST_PAUSE_SECONDS:.3f}s",
        "timeout": f"{client.ANSWER_SECONDS:.3f}s",
        "connect_timeout": f"{client.CONNECT_SECONDS:.3f}s",
    }


def find_table(target: OutputPart, version: int | None = None) -> DeltaTable | None:
    """The table of an output, as it is now or as it was in a version; None if it has not been made yet.

    Raises:
        SpecError: it has a protocol that deltalake does not know.
    """
    location = location_of(target)
    try:
        return DeltaTable(location, version=version, storage_options=patience(location))
    except TableNotFoundError:
        return None
    except DeltaError as err:
        if not any(word in str(err).lower() for word in _BEYOND):
            raise
        raise SpecError.saying(
            where(target), f"deltalake cannot open the table ({reason(err)})", "publish into a table of its own"
        ) from None


def where(target: OutputPart) -> str:
    """The table of an output, as sentences about it begin."""
    return f"output {location_of(target)}"


def ready_table(target: OutputPart, columns: pa.Schema) -> DeltaTable:
    """The table of an output, ready for a result: made if it is not there, its schema evolved if the spec says so."""
    wanted = pa.schema([*columns, *part_fields(target)])
    for attempt in range(_ATTEMPTS):
        table = find_table(target) or _make(target, wanted)
        require_fitting(table, target)
        try:
            return _fit(table, target, wanted)
        except DeltaError:  # somebody has changed the table just now
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def fitting_table(target: OutputPart) -> DeltaTable | None:
    """As ``find_table``, of a table whose part can be replaced."""
    table = find_table(target)
    if table is not None:
        require_fitting(table, target)
    return table


def files_of_part(table: DeltaTable, target: OutputPart, names: Sequence[str] = ("path",)) -> list[dict[str, Any]]:
    """The files of a part, of each what is named, as ``get_add_actions`` names it; all if nothing is."""
    actions = pa.table(table.get_add_actions(flatten=True))
    of_part = [True] * len(actions)
    for name, value in target.values.items():
        of_part = [
            one and str(came) == str(value)
            for one, came in zip(of_part, known_values(actions[f"partition.{name}"]), strict=True)
        ]
    found = actions.filter(pa.array(of_part, pa.bool_()))
    names = names or found.column_names
    rows = zip(*(known_values(found[name]) for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def require_fitting(table: DeltaTable, target: OutputPart) -> None:
    """Refuse a table of which a part is not just the files of one partition, or that we or deltalake cannot write."""
    partitions = table.metadata().partition_columns
    if partitions != list(target.values):
        raise other_partitions(where(target), target, partitions)
    asked = next(_not_understood(table), None)
    if asked is not None:
        raise SpecError.saying(
            where(target), f"the table has {asked}, which is on no list of what Skewless can write to",
            "drop that from the table, or publish into a table of its own",
        )  # fmt: skip
    paths = [str(file["path"]) for file in files_of_part(table, target)]
    odd = next((path for path in paths if quote(unquote(path), safe=_PLAIN) != path), None)
    if odd is not None:
        raise SpecError(
            f"{where(target)}, part {target.part}", "files that its log names with percent-encoded paths", repr(odd),
            "deltalake would leave that file in the table: delete or rewrite the files of the part with the program "
            "that wrote them, or publish into a table of its own",
        )  # fmt: skip


def _make(target: OutputPart, wanted: pa.Schema) -> DeltaTable:
    try:
        schema = Schema.from_arrow(wanted)
    except Exception as err:  # noqa: BLE001  # of several kinds
        raise SpecError(
            where(target), "columns of types that Delta has",
            str(err).partition("\n")[0][:200],
            "cast the result of the aggregate in map, or publish into a folder",
        ) from None  # fmt: skip
    location = location_of(target)
    if "://" not in location:
        make_folder(Path(location, LOG))
    try:
        table = DeltaTable.create(
            location, schema, mode="ignore", partition_by=list(target.values), storage_options=patience(location),
            # Tried again, it would commit its columns as version 1, over those that another process has just made.
            commit_properties=CommitProperties(max_commit_retries=0),
        )  # fmt: skip
    except CommitFailedError:
        made = find_table(target)
        if made is None:
            raise
        table = made
    sync_version(target, 0)
    return table


def _fit(table: DeltaTable, target: OutputPart, wanted: pa.Schema) -> DeltaTable:
    """The table with all columns of a result."""
    have = {field.name: field.type for field in table.schema().fields}
    fields = {field.name: field for field in Schema.from_arrow(wanted).fields}
    changed = next((name for name in fields if name in have and have[name] != fields[name].type), None)
    if changed is not None:
        raise SpecError(
            where(target), f"a column {changed!r} of type {fields[changed].type}, as in the result",
            str(have[changed]), "publish into a table of its own",
        )  # fmt: skip
    required = {field.name for field in table.schema().fields if not field.nullable}
    want = {name: field.type for name, field in fields.items()}
    if new := require_columns(where(target), target, have, required, want):
        table.alter.add_columns([fields[name] for name in new])
        sync_version(target, int(table.version()))
    return table
