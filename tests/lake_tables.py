"""Small Iceberg and Delta tables for tests, with what the libraries themselves cannot write.

pyiceberg writes no delete files, deltalake no deletion vectors: here their manifests and logs are written as the
specifications say, and the libraries' own readers read them back.
"""

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record
from pyroaring import BitMap

from skewless_lake.catalogs import open_catalog


def lake(root: Path) -> Catalog:
    catalog = open_catalog("local", str(root))
    catalog.create_namespace_if_not_exists("db")
    return catalog


def iceberg_table(
    root: Path, schema: Schema | pa.Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, name: str = "clicks"
) -> Table:
    return lake(root).create_table(f"db.{name}", schema, partition_spec=spec)


def with_fields(root: Path, change: Callable[[list[dict[str, Any]]], object]) -> Table:
    """The table ``local.db.clicks`` with other fields: format 3 allows more than pyiceberg writes."""
    catalog = lake(root)
    raw = json.loads(Path(catalog.load_table("db.clicks").metadata_location.removeprefix("file://")).read_text())
    for schema in raw["schemas"]:
        change(schema["fields"])
    changed = root / "changed-00001.metadata.json"
    changed.write_text(json.dumps(raw))
    catalog.drop_table("db.clicks")
    return catalog.register_table("db.clicks", str(changed))


def data_file(
    table: Table, rows: pa.Table, partition: Record | None = None, group_rows: int = 1 << 20, *, bounds: bool = False
) -> DataFile:
    """A file of a table, with its field ids, of a partition whatever its rows are, with bounds or without."""
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    kinds = {one.name: one for one in schema_to_pyarrow(table.schema())}
    fields = [kinds[name].with_type(kinds[name].type) for name in rows.column_names]
    pq.write_table(rows.cast(pa.schema(fields)), path, row_group_size=group_rows)
    return _file(
        DataFileContent.DATA, path, len(rows), table, partition, **(_statistics(table, path) if bounds else {})
    )


def _statistics(table: Table, path: str) -> dict[str, Any]:
    plan, ids = compute_statistics_plan(table.schema(), {}), parquet_path_to_id_mapping(table.schema())
    return data_file_statistics_from_parquet_metadata(pq.read_metadata(path), plan, ids).to_serialized_dict()


def _file(
    content: DataFileContent, path: str, rows: int, table: Table, partition: Record | None, **more: Any
) -> DataFile:
    told = {
        "record_count": rows, "column_sizes": {}, "value_counts": {}, "null_value_counts": {}, "nan_value_counts": {},
        "lower_bounds": {}, "upper_bounds": {}, **more,
    }  # fmt: skip
    file = DataFile.from_args(
        content=content, file_path=path, file_format=FileFormat.PARQUET, partition=partition or Record(),
        file_size_in_bytes=Path(path).stat().st_size, **told,
    )  # fmt: skip
    file.spec_id = table.spec().spec_id
    return file


def append(table: Table, *files: DataFile) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    deletes: Sequence[DataFile] = ()

    def _manifests(self) -> list[ManifestFile]:
        location = f"{self._transaction.table_metadata.location}/metadata/{uuid.uuid4()}-deletes.avro"
        metadata = self._transaction.table_metadata
        with _DeletesWriter(
            metadata.spec(), metadata.schema(), self._io.new_output(location), self._snapshot_id, "deflate"
        ) as writer:
            for file in self.deletes:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return [*super()._manifests(), writer.to_manifest_file()]


def _append_deletes(table: Table, *files: DataFile) -> None:
    with table.transaction() as transaction:
        update = _AppendDeletes(Operation.OVERWRITE, transaction, table.io)
        update.deletes = files
        update.commit()


def delete_positions(table: Table, positions: Mapping[str, Sequence[int]], partition: Record | None = None) -> str:
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    schema = pa.schema([
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ])  # fmt: skip
    pairs = [(file, one) for file in sorted(positions) for one in positions[file]]
    pq.write_table(pa.table([[file for file, _ in pairs], [one for _, one in pairs]], schema=schema), path)
    _append_deletes(table, _file(DataFileContent.POSITION_DELETES, path, len(pairs), table, partition))
    return path


def delete_equal(table: Table, rows: pa.Table, partition: Record | None = None) -> None:
    path = f"{table.location()}/data/{uuid.uuid4()}-equal.parquet"
    pq.write_table(rows, path)
    ids = [table.schema().find_field(name).field_id for name in rows.column_names]
    _append_deletes(table, _file(DataFileContent.EQUALITY_DELETES, path, len(rows), table, partition, equality_ids=ids))


class _Replace(_OverwriteFiles):
    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        told = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **told.additional_properties)


def compact(table: Table, old: Sequence[DataFile], new: DataFile) -> None:
    with table.transaction() as transaction:
        update = _Replace(Operation.OVERWRITE, transaction, table.io)
        for file in old:
            update.delete_data_file(file)
        update.append_data_file(new)
        update.commit()


_DELTA_MAGIC = 1681511377
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def _z85(content: bytes) -> str:
    return base64.b85encode(content).decode().translate(str.maketrans(_B85, _Z85))


def delete_by_vector(folder: Path, path: str, positions: Sequence[int], *, in_file: bool = False) -> None:
    """Commit a deletion vector for a file of a Delta table, named as its log names it: inline, or in a file of its own.

    A file of vectors begins with its format's version. Each vector has its length before it and its CRC behind it.
    """
    log = folder / "_delta_log"
    commits = sorted(log.glob("*.json"))
    lines = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    added = next(line["add"] for line in reversed(lines) if line.get("add", {}).get("path") == path)
    payload = struct.pack("<iqi", _DELTA_MAGIC, 1, 0) + BitMap(positions).serialize()
    vector: dict[str, Any] = {"sizeInBytes": len(payload), "cardinality": len(set(positions))}
    if in_file:
        name, before = uuid.uuid4(), b"\1" + b"of another file"
        (folder / "ab").mkdir(exist_ok=True)
        (folder / "ab" / f"deletion_vector_{name}.bin").write_bytes(
            before + struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
        )
        vector |= {"storageType": "u", "pathOrInlineDv": f"ab{_z85(name.bytes)}", "offset": len(before)}
    else:
        vector |= {"storageType": "i", "pathOrInlineDv": _z85(payload + b"\0" * (-len(payload) % 4))}
    removed = {name: added[name] for name in ("path", "partitionValues", "size")}
    actions = [
        {"remove": {**removed, "dataChange": True, "deletionTimestamp": 1, "extendedFileMetadata": True,
                    **({"deletionVector": added["deletionVector"]} if added.get("deletionVector") else {})}},
        {"add": {**added, "dataChange": True, "deletionVector": vector}},
        {"commitInfo": {"timestamp": 1, "operation": "DELETE", "operationParameters": {}}},
    ]  # fmt: skip
    (log / f"{len(commits):020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
