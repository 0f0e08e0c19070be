"""Columns of tables that files have by another name, of another type, or not at all."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.mapping.conditions import Condition, Typed
from skewless_spark.sources.lake.delta import delta_snapshot
from skewless_spark.sources.unit_reading import read_units
from tests.lake_tables import append, data_file, iceberg_table, with_fields
from tests.spark.scenario import DATE
from tests.spark.test_lake_inputs import ICEBERG, KV, delta_log, frozen, numbered, read


def test_a_delta_table_that_maps_its_columns_by_ids_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), numbered(2), configuration={"delta.columnMapping.mode": "id"})
    with pytest.raises(InputError, match=r"columns that are mapped by name, or not at all, but got .*mode = id"):
        frozen({"format": "delta", "path": "t"}, tmp_path, "v")


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


def test_a_text_that_was_cut_off_in_a_delta_log_is_no_upper_bound(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"s": ["ab\U0001f608"]}))
    stats = {"numRecords": 1, "minValues": {"s": "ab"}, "maxValues": {"s": "ab\ufffd"}, "nullCount": {"s": 0}}
    with delta_log(tmp_path / "t") as lines:
        for line in lines:
            if "add" in line:
                line["add"]["stats"] = json.dumps(stats)
    for value, files in (("ab\U0001f608", 1), ("ac", 0)):
        asked = [Condition("s", ">=", (Typed("string", value),))]
        snapshot, _ = delta_snapshot(Input(format="delta", path="t"), Part(DATE), str(tmp_path / "t"), asked)
        assert len(snapshot.files) == files
