"""Whoever wrote a file, and however it is read, whole, cut, in workers or of a table: its rows are those of Spark."""

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless_spark.session.spark_errors import sentence_for
from skewless_spark.session.versions import to_arrow
from tests.differential.batches import Batch, types_in, write_batch
from tests.differential.rows import first_difference, rows_of
from tests.differential.test_opener import job_over, with_a_secret
from tests.differential.values import COMMON, KINDS, OTHER
from tests.differential.ways import WAYS, job_of, types_of, whole
from tests.differential.writers import SPARK_MODES
from tests.tiers import mostly_long

#: What plain Spark refuses to read.
_FOREIGN = {"half", "near_instant", "near_local"}


def require_equal(spark: SparkSession, batch: Batch, root: Path) -> None:
    """All ways of reading a folder give the rows that were written; plain Spark too, where it reads them."""
    wanted = rows_of(batch.rows, batch.names)
    declared = types_in(batch.names[1:])
    readable = [str(file) for file in sorted(batch.path.glob("*.parquet")) if not _in_brotli(file)]
    if _FOREIGN.isdisjoint(batch.names):
        ddl = ", ".join(f"{name} {kind}" for name, kind in declared.items())
        found = rows_of(to_arrow(spark.read.schema(ddl).parquet(*readable)), batch.names)
        few = sum(pq.read_metadata(file).num_rows for file in readable)
        assert (found.total(), found - wanted) == (few, {}), first_difference(found, wanted, batch.names)
    for kind in ("parquet", "delta"):
        given = {"format": kind, "path": str(batch.path)}
        assert types_of(given, root) == declared
        for way, (read, cut) in WAYS.items():
            job = job_of(given, declared, root, cut=cut)
            try:
                found = rows_of(read(spark, job, batch.names), batch.names)
            except InputError as error:
                # pyarrow does not unpack all integers that DuckDB packs.
                if way != "workers" or not (batch.of_spark or "-duckdb.parquet" in error.where):
                    raise
                continue
            assert found == wanted, f"{kind}, {way}: {first_difference(found, wanted, batch.names)}"


def _in_brotli(file: Path) -> bool:
    footer = pq.read_metadata(file)
    return any(footer.row_group(number).column(0).compression == "BROTLI" for number in range(footer.num_row_groups))


@pytest.mark.parametrize("mode", mostly_long(range(len(SPARK_MODES)), 0))
def test_every_type_is_read_the_same_in_every_way(spark: SparkSession, tmp_path: Path, mode: int) -> None:
    require_equal(spark, write_batch(spark, tmp_path / "common", mode, list(COMMON), 12), tmp_path)


@pytest.mark.long
def test_types_that_only_some_write_are_read_the_same_in_every_way(spark: SparkSession, tmp_path: Path) -> None:
    require_equal(spark, write_batch(spark, tmp_path / "other", 2, list(OTHER), 8), tmp_path)


def test_spark_too_says_that_a_column_is_encrypted(spark: SparkSession, tmp_path: Path) -> None:
    """It was to be restored from a copy."""
    job = job_over(with_a_secret(tmp_path / "a.parquet"), cut=False)
    assert whole(spark, job, ["id"])["id"].to_pylist() == [0, 1, 2, 3]
    with pytest.raises(Exception, match="ParquetCryptoRuntimeException") as raised:
        whole(spark, job, ["secret"])
    told = r".*/a\.parquet: expected columns that are not encrypted, but got ParquetCrypto\w+; leave them out"
    assert re.match(told, sentence_for(raised.value))


#: Columns as Java writers have them, and Arrow has not: their values, and those as Spark reads them.
OF_JAVA: dict[str, tuple[str, list[bytes], list[Any]]] = {
    # Spark's own scan ended in a NullPointerException.
    "decimals": ("optional binary a (DECIMAL(4,2));", [b"\xff", b"\x27\x0f"], [Decimal("-0.01"), Decimal("99.99")]),
    "enumerations": ("required binary a (ENUM);", [b"RED", b"RED"], ["RED", "RED"]),
    "within": ("optional int32 k; required group a { required binary x (ENUM); }", [b"RED"], [{"x": "RED"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_JAVA)
def test_what_java_writes_is_read_in_every_way(spark: SparkSession, tmp_path: Path, name: str) -> None:
    jvm: Any = spark.sparkContext._jvm
    java, path, (column, values, wanted) = jvm.org.apache, tmp_path / "a.parquet", OF_JAVA[name]
    declared = java.parquet.schema.MessageTypeParser.parseMessageType(f"message m {{ {column} }}")
    place = java.hadoop.fs.Path(str(path))
    writer = java.parquet.hadoop.example.ExampleParquetWriter.builder(place).withType(declared).build()
    rows = java.parquet.example.data.simple.SimpleGroupFactory(declared)
    for value in values:
        row, raw = rows.newGroup(), java.parquet.io.api.Binary.fromConstantByteArray(value)
        (row.addGroup("a") if "group" in column else row).append("x" if "group" in column else "a", raw)
        writer.write(row)
    writer.close()
    for read, cut in WAYS.values():
        assert read(spark, job_over(path, cut=cut), ["a"])["a"].to_pylist() == wanted


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_random_files_are_read_the_same_in_every_way(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    some: Sequence[str] = list(COMMON if seed % 2 else KINDS)
    names = sorted(np.random.default_rng(seed).choice(some, size=6, replace=False).tolist())
    require_equal(spark, write_batch(spark, tmp_path / "random", seed, names, 50), tmp_path)
