"""Other readers of the tables: Iceberg's Java core, and three libraries that read while days are published."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from skewless_lake.catalogs import open_catalog
from skewless_lake.publication import publish_run
from tests.lake.outputs import KINDS, NOW, TABLE, ready
from tests.lake.test_outputs import OUTPUTS, iceberg, run, spec


def test_icebergs_java_core_reads_the_same_rows_nested_fields_too(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, spec(tmp_path, OUTPUTS["iceberg"]), "run")
    table = iceberg(tmp_path)
    found = subprocess.run(
        [sys.executable, "-m", "tests.lake.java_reader", table.metadata_location],
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    of_java = {row["page"]: row for row in map(json.loads, found.stdout.splitlines())}
    wanted = {row["page"]: row for row in table.scan().to_arrow().to_pylist()}
    assert of_java.keys() == wanted.keys()
    for page, row in wanted.items():
        seen = of_java[page]
        assert (int(seen["rows"]), seen["cents"], seen["day"]) == (row["rows"], str(row["cents"]), str(row["day"]))
        assert [int(one) for one in seen["all"].strip("[]").split(", ")] == row["all"]
        # A struct in a list: without ids of nested fields, Java would see nulls.
        assert all(item["item"] in seen["top"] and str(item["count"]) in seen["top"] for item in row["top"])
        assert seen["last"].startswith(row["last"].strftime("%Y-%m-%dT%H:%M"))
        assert seen["last"].endswith("Z")
        assert not seen["local"].endswith("Z")


def read_iceberg(root: Path) -> set[str]:
    table = open_catalog("local", str(root)).load_table(TABLE.partition(".")[2])
    return _who(table.scan().to_arrow())


def duckdb_of_iceberg(root: Path) -> set[str]:
    """DuckDB, on the files of one snapshot."""
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
    """Who has made the rows; a torn read would see another number of them."""
    assert len(found) == 3, found
    return set(found["by"].to_pylist())


READERS: dict[str, list[Callable[[Path], set[str]]]] = {
    "iceberg": [read_iceberg, duckdb_of_iceberg], "delta": [read_delta, duckdb_of_delta]
}  # fmt: skip


@pytest.mark.parametrize(("kind", "reads"), [("iceberg", 40), ("delta", 40), *(
    pytest.param(kind, 2500, marks=pytest.mark.long) for kind in KINDS
)])  # fmt: skip
def test_readers_see_one_version_whole_while_a_day_is_published_again_and_again(
    tmp_path: Path, kind: str, reads: int
) -> None:
    """Each of two libraries reads so often for each kind of table."""
    publish_run(ready(tmp_path / "0", tmp_path, kind, "run 0", turn=1), NOW)
    over, torn, seen = threading.Event(), list[object](), set[str]()

    def publish_on() -> None:
        number = 1
        while not over.is_set():
            publish_run(ready(tmp_path / f"{number}", tmp_path, kind, f"run {number}", turn=number + 1), NOW)
            number += 1
            over.wait(0.2)

    publisher = threading.Thread(target=publish_on)
    publisher.start()
    try:
        for _ in range(reads):
            for reader in READERS[kind]:
                found = reader(tmp_path)
                seen |= found
                if len(found) != 1:
                    torn.append(found)
    finally:
        over.set()
        publisher.join()
    assert torn == []
    assert len(seen) > 1, "nothing was published while it was read"
