"""A snapshot of a table, whatever made it: its columns, and its files as the table's own metadata has them."""

import datetime as dt
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skewless.documents.job import PinnedTable, Unit
from skewless.errors import InputError, first_line
from skewless.run.folder import open_location
from skewless_spark.sources.formats.column_types import UNSUPPORTED, spark_type_of
from skewless_spark.sources.formats.parquet import open_parquet


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    kind: str
    inner: str = ""
    """Its name in files without field ids; by default the same."""
    field_id: int | None = None
    """By which it is found in files of Iceberg, whatever they call it."""
    ids: tuple[int | None, ...] | None = None
    """Of the fields inside it, see ``ids_within``; None where files are read by names."""
    required: bool = False
    default: str | None = None
    """Of rows that were written before the column came, as text; None for null, or if it is not known."""


@dataclass(frozen=True)
class TableFile:
    """A file of a table."""

    path: str
    size_bytes: int
    values: Mapping[str, str | None]
    """Of the partition columns, as text; None is null. Values of hidden partitions are not among them."""
    deletes: tuple[str, ...] = ()
    days: Mapping[str, str | None] = field(default_factory=dict)
    """Of the columns whose days partition the table, though they are hidden: the day of all rows, as text."""
    rows: int | None = None
    """Its rows with the deleted ones, as the metadata says; None where it does not."""

    @property
    def told(self) -> Mapping[str, str | None]:
        """By column: its one value, or its one day, in all rows of the file."""
        return {**self.values, **self.days}


#: The files of a table before a commit and after it.
Commit = tuple[Sequence[TableFile], Sequence[TableFile]]


@dataclass(frozen=True)
class Snapshot:
    """One state of a table."""

    table: PinnedTable
    """Its name and the number of the snapshot."""
    location: str
    columns: tuple[TableColumn, ...]
    outside: tuple[str, ...]
    """The partition columns that no file contains."""
    parted: tuple[str, ...]
    """The columns whose values, or whose days, partition the table."""
    files: tuple[TableFile, ...]
    ids: Mapping[str, int] = field(default_factory=dict)
    """For files without field ids, the id of the column that each name in them stands for."""
    vectors: Mapping[str, bytes] = field(default_factory=dict)
    """The deletion vectors that are in the table's log, packed, by the paths of their files."""

    def fields(self, names: Iterable[str]) -> dict[str, str]:
        """What each column is, whatever it is called: its id or its name in files, and its type."""
        known = {one.name: one for one in self.columns}
        of_names = {name: known[name] for name in names if name in known}
        return {
            name: f"{one.kind}, {f'field {one.field_id}' if one.field_id is not None else one.inner or name}"
            for name, one in of_names.items()
        }

    @property
    def kinds(self) -> dict[str, str]:
        """The Spark SQL type of each column."""
        return {one.name: one.kind for one in self.columns}

    @property
    def at(self) -> str:
        """What errors call it."""
        return f"input {self.table}"


def kinds_of(schema: pa.Schema) -> dict[str, str]:
    """The Spark SQL type of each column of a table. To Spark, Iceberg's UUID is a text, and not the bytes of a file."""
    return {one.name: f"{UNSUPPORTED}uuid" if "uuid>" in str(one.type) else spark_type_of(one.type) for one in schema}


def text_of(value: object) -> str | None:
    """A value of metadata as a text that is read back as the same one; None if there is none.

    Raises:
        ValueError: it is bytes that are no text, or may be escaped ones, as deltalake writes them and reads no more.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        if b"\\u" in value:
            raise ValueError(f"the bytes {value!r}, which may stand for themselves or for others"[:200])
        return value.decode()
    if isinstance(value, dt.date):
        return value.isoformat()
    return None if value is None else str(value)


Positions = npt.NDArray[np.int64]
#: Deletion vectors by the paths of their files, each packed.
Vectors = Mapping[str, bytes]
_PUFFIN = ".puffin"
#: Names one deletion vector of a Delta table, whose log holds it or says where it is.
VECTOR = "vector:"
#: A delete file may be about all files of a partition; a worker reads it once for those that it reads in a row.
_KEPT_FILES = 4


def deleted_positions(path: str, deletes: Iterable[str], vectors: Vectors) -> Positions:
    """The positions of the deleted rows of a file, ascending, each once."""
    found = [unpacked(vectors[path]) if one.startswith(VECTOR) else _of_file(one, path) for one in deletes]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def deleted_of_unit(unit: Unit, vectors: Vectors) -> Positions:
    """As ``deleted_positions``, counted from the first row of the unit; negative ones are before it."""
    return deleted_positions(unit.path, unit.deletes, vectors) - unit.first_row


def packed(kept: Iterable[bool]) -> bytes:
    """A deletion vector, from whether each row is kept."""
    return zlib.compress(np.packbits(~np.asarray(kept, dtype=bool)).tobytes(), 1)


def unpacked(vector: bytes) -> Positions:
    """The positions of a packed deletion vector."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(zlib.decompress(vector), np.uint8))).astype(np.int64)


def _of_file(deletes: str, path: str) -> Positions:
    try:
        return _of_puffin(deletes, path) if deletes.endswith(_PUFFIN) else _of_parquet(deletes, path)
    except (pa.ArrowException, OSError, KeyError, ValueError) as err:
        raise InputError(
            f"delete file {deletes}", f"the deleted rows of {path}", first_line(err),
            "nothing was committed; if its snapshot has expired, start a new run",
        ) from None  # fmt: skip


def _of_parquet(deletes: str, path: str) -> Positions:
    by_file = _by_file(deletes)
    found = [by_file[spelled] for spelled in _spellings(path) if spelled in by_file]
    return np.concatenate(found) if found else np.empty(0, np.int64)


@lru_cache(maxsize=_KEPT_FILES)
def _by_file(deletes: str) -> dict[str, Positions]:
    """The positions that a delete file has of each file, grouped once: it may be about thousands of files."""
    fs, file = open_location(deletes)
    with fs.open(file, "rb") as opened:
        table = open_parquet(opened).read(columns=["file_path", "pos"])
    if not len(table):
        return {}
    encoded = table["file_path"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    positions = table["pos"].to_numpy().astype(np.int64)[order]
    ends = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)), side="right")
    return dict(zip(encoded.dictionary.to_pylist(), np.split(positions, ends[:-1]), strict=True))


def _of_puffin(deletes: str, path: str) -> Positions:
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file  # noqa: PLC0415  # an extra
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415

    fs, file = open_location(deletes)
    with fs.open(file, "rb") as opened:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(opened.read()))
    found = [one.to_vector() for one in vectors if one.referenced_data_file in _spellings(path)]
    arrays = [np.asarray(chunk, dtype=np.int64) for one in found for chunk in one.chunks]
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _spellings(path: str) -> list[str]:
    return [path] if "://" in path else [path, f"file:{path}", f"file://{path}"]
