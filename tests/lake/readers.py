"""Libraries that read a day of a table while it is published again and again."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from skewless_lake.catalogs import open_catalog
from tests.lake.outputs import TABLE, publish


class Reads(NamedTuple):
    reads: int
    torn: int
    versions: int


def read_iceberg(root: Path) -> set[str]:
    table = open_catalog("local", str(root)).load_table(TABLE.partition(".")[2])
    return _who(table.scan().to_arrow())


def duckdb_of_iceberg(root: Path) -> set[str]:
    table = open_catalog("local", str(root)).load_table(TABLE.partition(".")[2])
    files = [task.file.file_path for task in table.scan().plan_files()]
    found = duckdb.connect().sql(f'SELECT key, "by" FROM read_parquet({files})').to_arrow_table()
    return _who(found)


def read_delta(root: Path) -> set[str]:
    return _who(pa.table(DeltaTable(str(root / "marts" / "clicks")).to_pyarrow_table()))


def duckdb_of_delta(root: Path) -> set[str]:
    files = DeltaTable(str(root / "marts" / "clicks")).file_uris()
    found = duckdb.connect().sql(f'SELECT key, "by" FROM read_parquet({files})').to_arrow_table()
    return _who(found)


def _who(found: pa.Table) -> set[str]:
    """Who has made the rows; nobody, of a read of another number of rows than one publication has."""
    return set(found["by"].to_pylist()) if len(found) == 3 else set()


READERS: dict[str, list[Callable[[Path], set[str]]]] = {
    "iceberg": [read_iceberg, duckdb_of_iceberg], "delta": [read_delta, duckdb_of_delta]
}  # fmt: skip


def read_while_published(root: Path, kind: str, reads: int) -> Reads:
    """Publish a day every fifth of a second, and read it with each library."""
    publish(root / "0", root, kind, "run 0", turn=1)
    over, torn, seen = threading.Event(), 0, set[str]()

    def publish_on() -> None:
        number = 1
        while not over.is_set():
            publish(root / f"{number}", root, kind, f"run {number}", turn=number + 1)
            number += 1
            over.wait(0.2)

    publisher = threading.Thread(target=publish_on)
    publisher.start()
    try:
        for _ in range(reads):
            for reader in READERS[kind]:
                found = reader(root)
                seen |= found
                torn += len(found) != 1
    finally:
        over.set()
        publisher.join()
    return Reads(reads * len(READERS[kind]), torn, len(seen))
