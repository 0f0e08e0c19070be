"""The Delta table of an output: it is made, held to what a result needs, and published in."""

import datetime as dt
import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from skewless.errors import RunDirectoryError, SpecError
from skewless.run.folder import is_object, make_folder, open_location, plain_path, sync_file, sync_folder
from skewless_lake.delta_log import commits, of_footer, said_in
from skewless_lake.formats import reason, told, written
from skewless_lake.staged_files import OutputPart, StagedFile, StagedResult, TableRule
from skewless_lake.staging import (
    ResultFile,
    create_file,
    other_partitions,
    part_fields,
    require_columns,
    write_all,
    write_rows,
)

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


LOG = "_delta_log"
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
    from skewless.run import object_client  # noqa: PLC0415  # an extra

    return {
        "max_retries": str(object_client.RETRIES),
        "retry_timeout": f"{object_client.RETRY_SECONDS:.3f}s",
        "backoff_config.max_backoff": f"{object_client.LONGEST_PAUSE_SECONDS:.3f}s",
        "timeout": f"{object_client.ANSWER_SECONDS:.3f}s",
        "connect_timeout": f"{object_client.CONNECT_SECONDS:.3f}s",
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


def files_of_part(table: DeltaTable, target: OutputPart) -> list[dict[str, Any]]:
    """The files of a part, of each its ``path`` and ``size_bytes``."""
    actions = pa.table(table.get_add_actions(flatten=True))
    for name, value in target.values.items():
        actions = actions.filter(pc.equal(pc.cast(actions[f"partition.{name}"], pa.string()), str(value)))
    return list(actions.select(["path", "size_bytes"]).to_pylist())


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


def make_table(target: OutputPart, columns: pa.Schema) -> DeltaTable:
    """Make it, unless another process is faster."""
    try:
        schema = Schema.from_arrow(_wanted(target, columns))
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


def _wanted(target: OutputPart, columns: pa.Schema) -> pa.Schema:
    return pa.schema([*columns, *part_fields(target)])


def with_columns(table: DeltaTable, target: OutputPart, columns: pa.Schema) -> DeltaTable:
    """The table with all columns of a result."""
    have = {field.name: field.type for field in table.schema().fields}
    fields = {field.name: field for field in Schema.from_arrow(_wanted(target, columns)).fields}
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


NUMBERED = "version"
LOST, CHANGED, UNANSWERED = (CommitFailedError,), (DeltaError,), ()


def require_race(table: DeltaTable, target: OutputPart, _failed: Counter[str], err: Exception) -> None:
    """Go on only if another version is there by now: by the same error deltalake refuses what it never commits."""
    now = find_table(target)
    if now is None or int(now.version()) == int(table.version()):
        raise SpecError.saying(
            where(target), f"deltalake does not commit to the table ({reason(err)})", "publish into a table of its own"
        ) from None


def column_names(table: DeltaTable) -> list[str]:
    """The names of a table's columns."""
    return [field.name for field in table.schema().fields]


def latest_turn(table: DeltaTable, target: OutputPart) -> int:
    """The latest turn in which a part was published, which the table keeps by part; 0 if it has none."""
    return table.transaction_version(_application(target)) or 0


def _application(target: OutputPart) -> str:
    return f"skewless/{target.part.name}"


def publications(table: DeltaTable, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    """The versions that we have published, newest first, with what their commits say."""
    for version, actions in commits(location_of(target), int(table.version())):
        about = told(said_in(actions))
        if "part" in about:
            yield version, about


def staged_files(_table: DeltaTable, _target: OutputPart, staged: StagedResult) -> Sequence[StagedFile]:
    """The files as they were staged; nobody removes them while the table is there."""
    return staged.files


def commit_part(table: DeltaTable, target: OutputPart, files: Sequence[StagedFile], about: Mapping[str, str]) -> int:
    """Commit a version upon the one that was loaded, in which a part has just these files.

    Raises:
        CommitFailedError: another version has been committed since.
    """
    values = {name: str(value) for name, value in target.values.items()}
    now = int(dt.datetime.fromisoformat(about["at"]).timestamp() * 1000)
    actions = [AddAction(file.path, file.size_bytes, values, now, True, file.statistics) for file in files]
    version = int(table.version())
    table.create_write_transaction(
        actions,  # type: ignore[arg-type]  # its list is invariant
        "overwrite",
        table.schema(),
        partition_by=list(values),
        partition_filters=[(name, "=", value) for name, value in values.items()],
        commit_properties=CommitProperties(
            custom_metadata=written(about),
            max_commit_retries=0,
            app_transactions=[Transaction(_application(target), int(about["turn"]))],
        ),
    )
    sync_version(target, version + 1)
    table.load_as_version(version + 1)
    observed = {unquote(file["path"]) for file in files_of_part(table, target)}
    if observed != {unquote(file.path) for file in files}:
        raise RunDirectoryError(
            f"version {version + 1} of {target.path}", f"just the {len(files):,} files of {target.part}",
            f"{len(observed):,} files", f"restore version {version}, and publish into a table of its own",
        )  # fmt: skip
    return version + 1


def earlier_files(table: DeltaTable, target: OutputPart, number: int) -> list[StagedFile]:
    """The files of a part in a version, all of which we have published."""
    del table  # as it was loaded: it is loaded anew as it was then
    then, files = find_table(target, number), list[StagedFile]()
    for listed in files_of_part(then, target) if then is not None else ():
        fs, place = open_location(f"{location_of(target).rstrip('/')}/{unquote(listed['path'])}")
        try:
            with fs.open(place, "rb") as opened:
                footer = pq.read_metadata(opened)
        except FileNotFoundError:
            raise SpecError(
                f"{target.path}, part {target.part}", f"the files of version {number}", f"{listed['path']} is gone",
                "it has been vacuumed: run the job again",
            ) from None  # fmt: skip
        files.append(StagedFile(rows=footer.num_rows, statistics=of_footer(footer), **listed))
    return files


def unnamed(table: DeltaTable, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """Which files of a run the log does not name; if the run has published, some version names what it has staged."""
    paths = {*others, *staged}
    if any(about.get("run-digest") == digest for about in map(told, table.history())):
        paths -= set(staged)
    named = {unquote(path) for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()}
    return sorted(path for path in paths if unquote(path) not in named)


def remove(target: OutputPart, paths: Collection[str]) -> None:
    """Remove files; those that are gone are no error."""
    location = location_of(target).rstrip("/")
    for path in paths:
        with suppress(FileNotFoundError):
            if "://" not in location:
                Path(location, unquote(path)).unlink()
            else:
                fs, there = open_location(f"{location}/{unquote(path)}")
                fs.rm_file(there)


def stage(
    table: DeltaTable, target: OutputPart, files: Sequence[ResultFile], begin: Callable[[Sequence[str]], object]
) -> StagedResult:
    """Write a result into new files below the output's table, which no version of it names yet."""
    location = plain_path(str(table.table_uri)).rstrip("/")
    parts = target.values
    known = pa.schema(table.schema().to_arrow())
    kind = pa.schema([field for field in known if field.name not in parts])
    folder, token = "/".join(f"{name}={value}" for name, value in parts.items()), uuid.uuid4()
    paths = [f"{folder}/part-{number:05d}-{token}.parquet" for number in range(len(files))]
    begin([quoted(path) for path in paths])

    def one(place: str, file: ResultFile) -> StagedFile:
        with create_file(place) as stream:
            footer = write_rows(stream, file, kind, {}, "zstd")
            size = stream.tell()
        path = quoted(place.removeprefix(f"{location}/"))
        return StagedFile(path=path, rows=file.rows, size_bytes=size, statistics=of_footer(footer))

    written = write_all([f"{location}/{path}" for path in paths], files, one)
    return StagedResult(table=target.path, location=location, files=written, rules=rules_of(table))


def quoted(path: str) -> str:
    """A path below a table as its log has it."""
    return quote(path, safe="/=-._")
