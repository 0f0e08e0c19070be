"""What of a Delta table we write to: a list of all that a table may ask of its writers, and what is held of it.

deltalake commits files to tables whose constraints, generated columns and invariants nobody has looked at. So what is
on no list here is refused, and the rules of a table are handed to those who read what is staged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable

from skewless.errors import SpecError
from skewless_lake.staged import TableRule

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


def require_understood(table: DeltaTable, at: str) -> None:
    """Refuse a table that asks something of its writers that we do not know of.

    Raises:
        SpecError: names it.
    """
    asked = next(_not_understood(table), None)
    if asked is not None:
        raise SpecError.saying(
            at, f"the table has {asked}, which is on no list of what Skewless can write to",
            "drop that from the table, or publish into a table of its own",
        )  # fmt: skip


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
