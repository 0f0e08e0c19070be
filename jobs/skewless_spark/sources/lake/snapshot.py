"""A snapshot of a table, whatever made it: its columns, and its files as the table's own metadata has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from skewless.documents.job import PinnedTable
from skewless_spark.sources.formats.spark_types import spark_type_of


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        inner: its name in files without field ids; by default the same.
        field_id: by which it is found in files, whatever they call it: in Iceberg, and in Delta with mapping by id.
        default: of rows that were written before the column came, as text; None for null, or if it is not known.
    """

    name: str
    kind: str
    inner: str = ""
    field_id: int | None = None
    required: bool = False
    default: str | None = None


@dataclass(frozen=True)
class TableFile:
    """A file of a table.

    Attributes:
        values: of the partition columns, as text; None is null. Values of hidden partitions are not among them.
        days: of the columns whose days partition the table, though they are hidden: the day of all rows, as text.
        rows: its rows with the deleted ones, as the metadata says; None where it does not.
    """

    path: str
    size_bytes: int
    values: Mapping[str, str | None]
    deletes: tuple[str, ...] = ()
    days: Mapping[str, str | None] = field(default_factory=dict)
    rows: int | None = None

    @property
    def told(self) -> Mapping[str, str | None]:
        """By column: its one value, or its one day, in all rows of the file."""
        return {**self.values, **self.days}


#: The files of a table before a commit and after it.
Commit = tuple[Sequence[TableFile], Sequence[TableFile]]


@dataclass(frozen=True)
class Snapshot:
    """One state of a table.

    Attributes:
        table: its name and the number of the snapshot.
        outside: the partition columns that no file contains.
        parted: the columns whose values, or whose days, partition the table.
        ids: for files without field ids, the id of the column that each name in them stands for.
    """

    table: PinnedTable
    location: str
    columns: tuple[TableColumn, ...]
    outside: tuple[str, ...]
    parted: tuple[str, ...]
    files: tuple[TableFile, ...]
    ids: Mapping[str, int] = field(default_factory=dict)

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
    """The Spark SQL type of each column of a table."""
    return {one.name: spark_type_of(one.type) for one in schema}


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
