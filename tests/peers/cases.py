"""What lies in a folder of test files: Parquet files and Delta tables, and what others read in each."""

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

#: Names of Parquet files; encrypted ones among them.
_PARQUET = (".parquet", ".parquet.encrypted")
_LOG = "_delta_log"
#: Where a Delta table has its rows as plain Parquet files, by the folder of the table.
_EXPECTED = ("expected/latest/table_content", "expected/latest", "expected")
#: A time in a Delta log, which is that of the zone in which each reader is: ours is UTC, as deltalake's is.
_TIME = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d+)?")


class Case(NamedTuple):
    """A file or a table.

    Attributes:
        given: the section ``input`` of a spec that reads it.
        oracles: ways in which others read it; the first that reads it counts.
    """

    name: str
    given: dict[str, Any]
    oracles: tuple[Callable[[SparkSession], pa.Table], ...]


def unpacked(folder: Path, place: Path) -> Path:
    """A folder of archives, unpacked to another place; a folder without archives as it is."""
    archives = sorted(folder.glob("*.tar.gz"))
    for archive in archives:
        with tarfile.open(archive) as opened:
            opened.extractall(place / archive.name.removesuffix(".tar.gz"), filter="data")
    return place if archives else folder


def cases_in(folder: Path) -> Iterator[Case]:
    """All files and tables below a folder, in the order of their names."""
    tables = sorted(path.parent for path in folder.rglob(_LOG))
    # A table that is to be refused may have no log.
    tables += sorted(path for path in folder.rglob("delta") if path.is_dir() and not (path / _LOG).exists())
    of_tables = {path for table in tables for path in (table, *_expected(table))}
    for table in tables:
        yield Case(
            str(table.relative_to(folder)),
            {"format": "delta", "path": str(table)},
            (_expected_rows(table), _by_deltalake(table)),
        )
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name.endswith(_PARQUET)):
        if not any(table in file.parents for table in of_tables):
            yield Case(str(file.relative_to(folder)), {"path": str(file)}, (_by_spark(file), _by_duckdb(file)))


def _expected(table: Path) -> list[Path]:
    return [path for base in (table, table.parent) for name in _EXPECTED if (path := base / name).is_dir()]


def _expected_rows(table: Path) -> Callable[[SparkSession], pa.Table]:
    def read(spark: SparkSession) -> pa.Table:
        if _times_without_zone(table):
            raise ValueError("its partitions are times without a zone: what is expected is of the writer's zone")
        files = [str(file) for file in sorted(_expected(table)[0].rglob("*.parquet"))]
        return spark.read.parquet(*files).toArrow()

    return read


def _times_without_zone(table: Path) -> bool:
    lines = [line for log in sorted((table / _LOG).glob("*.json")) for line in log.read_text().splitlines()]
    added = [action["add"] for action in map(json.loads, lines) if action.get("add")]
    return any(_TIME.fullmatch(value or "") for one in added for value in one["partitionValues"].values())


def _by_deltalake(table: Path) -> Callable[[SparkSession], pa.Table]:
    def read(_: SparkSession) -> pa.Table:
        from deltalake import DeltaTable, QueryBuilder  # an extra

        found = QueryBuilder().register("peer", DeltaTable(str(table))).execute("SELECT * FROM peer")
        return pa.table(found.read_all() if hasattr(found, "read_all") else found)

    return read


def _by_spark(file: Path) -> Callable[[SparkSession], pa.Table]:
    def read(spark: SparkSession) -> pa.Table:
        frame = spark.read.parquet(str(file))
        # What Arrow cannot hold cannot be compared, and no job reads it.
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
        return frame.select([f"`{name}`" for name, kind in kinds.items() if "variant" not in kind]).toArrow()

    return read


def _by_duckdb(file: Path) -> Callable[[SparkSession], pa.Table]:
    def read(_: SparkSession) -> pa.Table:
        with duckdb.connect() as connection:
            found = connection.sql("SELECT * FROM read_parquet(?)", params=[str(file)])
            return found.to_arrow_table() if hasattr(found, "to_arrow_table") else found.arrow().read_all()

    return read
