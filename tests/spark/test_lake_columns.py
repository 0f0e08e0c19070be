"""Columns of tables that files have by another name, of another type, or not at all."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

from skewless.errors import InputError, SkewlessError
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.sources.lake.delta import snapshot_of
from skewless_spark.sources.lake.table_inputs import Condition
from skewless_spark.sources.unit_reading import read_units
from tests.lake_tables import append, data_file, iceberg_table, with_fields
from tests.spark.scenario import DATE
from tests.spark.test_lake_inputs import ICEBERG, KV, delta_log, frozen, numbered, read


def test_a_delta_table_that_maps_its_columns_by_ids_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), numbered(2), configuration={"delta.columnMapping.mode": "id"})
    with pytest.raises(InputError, match=r"columns that are mapped by name, or not at all, but got .*mode = id"):
        frozen({"format": "delta", "path": "t"}, tmp_path, "v")


def of(column: str) -> dict[str, Any]:
    return {"a": {"function": "first", "column": column}}


NESTED = pa.table({"k": ["a"], "s": pa.array([{"x": 1, "y": "one"}]), "v": [5]})


def test_a_field_that_left_a_structure_of_iceberg_and_came_back_is_another_one(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path, NESTED.schema)
    append(table, data_file(table, NESTED))
    assert frozen(ICEBERG, tmp_path, aggregates=of("s.x")).source.columns["s"] == "struct<x:bigint,y:string>"
    with table.update_schema() as change:
        change.delete_column(("s", "x"))
    with table.update_schema() as change:
        change.add_column(("s", "x"), LongType())
    with table.update_schema() as change:
        change.move_first(("s", "x"))
    frozen(ICEBERG, tmp_path, "v")
    with pytest.raises(SkewlessError, match=r"whose fields are others in "):
        frozen(ICEBERG, tmp_path, aggregates=of("s"))


def test_fields_that_a_delta_table_maps_and_variants_are_no_columns_of_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "t"), NESTED, configuration={"delta.columnMapping.mode": "name"})
    given = {"format": "delta", "path": "t"}
    frozen(given, tmp_path, "v")
    with pytest.raises(SkewlessError, match="whose fields the table maps"):
        frozen(given, tmp_path, aggregates=of("s"))
    rows = spark.sql("SELECT 'a' AS k, 1 AS v, parse_json('{}') AS j, array(parse_json('1')) AS l, struct(1 AS x) AS s")
    rows.write.parquet(str(tmp_path / "variants"))
    given = {"path": "variants"}
    frozen(given, tmp_path, aggregates=of("s.x"))
    for name in ("j", "l"):
        with pytest.raises(SkewlessError, match="variant"):
            frozen(given, tmp_path, aggregates=of(name))


#: Types of Iceberg, and a default as its metadata has it.
DEFAULTS: dict[str, tuple[str, Any, Any]] = {
    "number": ("long", 7, 7), "text": ("string", "ü/%", "ü/%"), "flag": ("boolean", True, True),
    "money": ("decimal(9,2)", "14.20", Decimal("14.20")), "day": ("date", "2026-01-02", dt.date(2026, 1, 2)),
    "at": ("timestamptz", "2026-01-02T03:04:05.000006+00:00", dt.datetime(2026, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001
    "part": ("double", 0.1, 0.1),
}  # fmt: skip


@pytest.mark.long
def test_rows_that_are_older_than_a_column_of_iceberg_have_its_default(spark: SparkSession, tmp_path: Path) -> None:
    def add(fields: list[dict[str, Any]]) -> None:
        for number, (name, (kind, default, _)) in enumerate(DEFAULTS.items(), start=10):
            fields.append({"id": number, "name": name, "type": kind, "required": True, "initial-default": default})

    table = iceberg_table(tmp_path, KV)
    append(table, data_file(table, numbered(2)))
    with_fields(tmp_path, add)
    names = [name for name in DEFAULTS if name != "flag"]
    read_in = read(spark, frozen(ICEBERG, tmp_path, "v", *names))
    assert read_in == [(key, value, *(DEFAULTS[name][2] for name in names)) for key, value in read(
        spark, frozen(ICEBERG, tmp_path, "v"))]  # fmt: skip
    for one in (
        {"name": "bytes", "type": "binary", "required": False, "initial-default": "0a0b"},
        {"name": "must", "type": "long", "required": True},
    ):
        with_fields(tmp_path, lambda fields, one=one: fields.append({"id": 20, **one}))  # type: ignore[misc]
        with pytest.raises(InputError, match=f"the column '{one['name']}', of which each row of the table has a value"):
            frozen(ICEBERG, tmp_path, "v")
        with_fields(tmp_path, lambda fields: fields.pop())


@pytest.mark.long
def test_bytes_that_partition_a_delta_table_are_a_text_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"], "p": pa.array([b"hello"])})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["p"])
    given, select = {"format": "delta", "path": str(tmp_path / "t")}, {"select": ["k", "string(p) AS s"]}
    with pytest.raises(InputError, match="expected values of partitions that are known here, but got the bytes"):
        frozen(given, tmp_path, "s", map=select)  # deltalake escapes each byte, and does not read that back
    with delta_log(tmp_path / "t") as lines:
        for line in lines:
            if "add" in line:
                line["add"]["partitionValues"] = {"p": "hello"}  # as Spark writes them
    job = frozen(given, tmp_path, "s", map=select)
    assert [row[1] for row in read_units(spark, job, range(len(job.units)), ["k", "s"]).collect()] == ["hello"]


US, BERLIN = pa.timestamp("us", "UTC"), -2_524_521_600_000_000  # 00:53:28 of 1890 there
#: The value of a file, its bounds as another program writes them, a comparison, and how many files may pass it.
BOUNDS: dict[str, tuple[pa.DataType, Any, str, str, str, Any, int]] = {
    "a text that was cut off": (pa.string(), "ab\U0001f608", "ab", "ab\ufffd", ">=", "ab\U0001f608", 1),
    "an escaped character of plane 2": (pa.string(), "\U00020001", "a", "\U00020001", "=", "\U00020001", 1),
    "milliseconds": (US, 10**15 + 999, "2001-09-09T01:46:40Z", "2001-09-09T01:46:40Z", ">", 10**15 + 998, 1),
    "milliseconds before 1970": (US, -500, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "<", -499, 1),
    "an offset that was cut": (US, BERLIN, "1890-01-01T00:53:28+00:53", "1890-01-01T00:53:28+00:53", "=", BERLIN, 1),
    "a time above": (US, 10**15, "2001-09-08T18:46:40-07:00", "2001-09-08T18:46:40-07:00", ">", 10**15 + 1_000, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_that_another_program_has_cut_leaves_no_row_out(tmp_path: Path, name: str) -> None:
    kind, value, low, high, comparison, asked, files = BOUNDS[name]
    write_deltalake(str(tmp_path / "t"), pa.table({"v": pa.array([value], kind)}))
    stats = {"numRecords": 1, "minValues": {"v": low}, "maxValues": {"v": high}, "nullCount": {"v": 0}}
    with delta_log(tmp_path / "t") as lines:
        for line in lines:
            if "add" in line:
                line["add"]["stats"] = json.dumps(stats)
    wanted = Condition("v", "string" if kind == pa.string() else "timestamp", comparison, (asked,))  # type: ignore[arg-type]
    given = Input(format="delta", path="t")
    assert len(snapshot_of(given, Part(DATE), "", str(tmp_path / "t"), lambda _: [wanted]).files) == files
