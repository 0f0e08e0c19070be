"""How four libraries read a published day: each lists it, and only then opens what it has listed."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from fsspec import AbstractFileSystem

#: Named, because pyarrow takes a listing without a file for a table without columns, and raises only then.
COLUMNS = ["version", "part"]

Pause = Callable[[], None]


class Library(ABC):
    def __init__(self, files: AbstractFileSystem | None = None) -> None:
        self.files = files

    @abstractmethod
    def read(self, day: str, pause: Pause) -> pa.Table:
        """List a day, pause, and open what was listed."""


class Dataset(Library):
    def read(self, day: str, pause: Pause) -> pa.Table:
        found: Any = pyarrow.dataset.dataset(day, format="parquet", filesystem=self.files)
        pause()
        return found.to_table(columns=COLUMNS)


class ReadTable(Library):
    def read(self, day: str, pause: Pause) -> pa.Table:
        found = pq.ParquetDataset(day, filesystem=self.files)
        pause()
        return found.read(columns=COLUMNS)


class DuckDB(Library):
    """DuckDB: its ``glob`` lists, and ``read_parquet`` opens; a query over a glob does both in one breath."""

    def __init__(self, files: AbstractFileSystem | None = None) -> None:
        super().__init__(files)
        self._connection = duckdb.connect()
        if files is not None:
            self._connection.register_filesystem(files)
        self._scheme = f"{files.protocol}://" if files is not None else ""

    def read(self, day: str, pause: Pause) -> pa.Table:
        pattern = f"{self._scheme}{day}/*.parquet"
        names = [name for (name,) in self._connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()]
        pause()
        source = names or pattern  # no name at all: it is DuckDB that has to say so
        return self._connection.sql("SELECT version, part FROM read_parquet(?)", params=[source]).to_arrow_table()


class Polars(Library):
    """polars: a scan of a folder lists and opens when it is collected; it reads local files by itself only."""

    def read(self, day: str, pause: Pause) -> pa.Table:
        pause()
        return pl.scan_parquet(f"{day}/*.parquet").select(COLUMNS).collect().to_arrow()


#: By the names that are printed.
LIBRARIES: dict[str, type[Library]] = {
    "pyarrow.dataset": Dataset,
    "pyarrow.parquet.read_table": ReadTable,
    "duckdb": DuckDB,
    "polars": Polars,
}
