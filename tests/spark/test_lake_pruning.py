"""What is left out of a table is read here: none of its rows passes the condition, or is of a part that was wanted."""

# Times are compared as Spark in UTC has them, without a zone.
# ruff: noqa: DTZ001

import datetime as dt
import json
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType, TimestampType
from pyiceberg.utils.datetime import date_to_days

from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.sources.lake.delta import snapshot_of as delta_snapshot
from skewless_spark.sources.lake.iceberg import snapshot_of as iceberg_snapshot
from skewless_spark.sources.lake.snapshot import Snapshot
from skewless_spark.sources.lake.table_inputs import Condition, LakeTable
from skewless_spark.windows.part_files import parts_of_table
from tests.lake_tables import append, data_file, iceberg_table, with_fields
from tests.spark.scenario import DATE
from tests.tiers import mostly_long

Row = Mapping[str, Any]
PASSES: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ASKED = 40
FIRST = dt.datetime(2026, 11, 18)
LETTERS = "aZ~\x7f\xff\u0416\ufffd\U0001f608"


def numbers(rng: random.Random) -> list[int]:
    middle = rng.choice([0, 100, -1000])
    return [rng.randint(middle - 20, middle + 20) for _ in range(8)]


def texts(rng: random.Random) -> list[str]:
    start = "".join(rng.choice(LETTERS) for _ in range(rng.choice([0, 1, 31, 40, 70])))
    return [start + "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 3))) for _ in range(8)]


def times(rng: random.Random) -> list[dt.datetime]:
    start = FIRST + dt.timedelta(days=rng.randint(0, 4))
    return [start + dt.timedelta(microseconds=rng.randint(0, 30_000_000) * 1999) for _ in range(8)]


def days(rng: random.Random) -> list[dt.date]:
    return [one.date() for one in times(rng)]


#: For each kind of column, its values and its Arrow type.
KINDS: dict[str, tuple[Callable[[random.Random], list[Any]], pa.DataType]] = {
    "bigint": (numbers, pa.int64()), "string": (texts, pa.string()), "date": (days, pa.date32()),
    "timestamp_ntz": (times, pa.timestamp("us")),
}  # fmt: skip


def with_nulls(values: list[Any], rng: random.Random) -> list[Any]:
    return [None if rng.random() < 0.2 else one for one in values]


def as_spark(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def conditions(rng: random.Random, rows: Sequence[Row], kinds: Mapping[str, str]) -> list[Condition]:
    """One or two comparisons with values that are in the table, or near to them."""
    made = []
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(sorted(kinds))
        known = [row[name] for row in rows if row[name] is not None] or KINDS[kinds[name]][0](rng)
        value = rng.choice([rng.choice(known), *KINDS[kinds[name]][0](rng)[:1]])
        made.append(Condition(name, kinds[name], rng.choice(sorted(PASSES)), (as_spark(value),)))  # type: ignore[arg-type]
    return made


def passes(row: Row, asked: Sequence[Condition]) -> bool:
    return all(
        row[one.column] is not None
        and any(PASSES[one.comparison](as_spark(row[one.column]), value) for value in one.values)
        for one in asked
    )


def require_nothing_lost(
    rng: random.Random, rows: Mapping[str, Sequence[Row]], pinned: Callable[[Sequence[Condition]], Snapshot]
) -> int:
    """Ask for rows of a table in many ways; how many files were left out.

    Args:
        rng: where the conditions come from.
        rows: of each file.
        pinned: the snapshot for some conditions.
    """
    kinds = {name: kind for name, kind in pinned(()).kinds.items() if kind in KINDS}
    everything, left_out = [row for of_file in rows.values() for row in of_file], 0
    for _ in range(ASKED):
        asked = conditions(rng, everything, kinds)
        gone = rows.keys() - {file.path for file in pinned(asked).files}
        left_out += len(gone)
        lost = [(path, row) for path in gone for row in rows[path] if passes(row, asked)]
        assert not lost, (asked, lost[0])
    return left_out


def require_parts_whole(table: LakeTable, column: str, rows: Mapping[str, Sequence[Row]]) -> int:
    """Ask for each two days of a table; how many files were of none of them."""
    left_out = 0
    for number in range(7):
        last = Part(FIRST.date() + dt.timedelta(days=number))
        wanted = [Part(last.date - dt.timedelta(days=1)), last]
        parts, _ = parts_of_table(table, column, last, wanted)
        gone = rows.keys() - {path for part in parts for path in part.files}
        left_out += len(gone)
        moments = [row[column] for path in gone for row in rows[path] if row[column] is not None]
        found = {one.date() if isinstance(one, dt.datetime) else one for one in moments}
        assert not found & {part.date for part in wanted}
    return left_out


def delta_of_swapped_names(folder: Path, rng: random.Random) -> dict[str, list[Row]]:
    """A Delta table that maps its columns: each has the name that another one has in the files."""
    kinds = [kind for kind in KINDS for _ in range(2)]
    files = [f"c{number}" for number in range(len(kinds))]
    parted = ["c4", "c5"] if rng.random() < 0.5 else []
    for _ in range(5):
        made = {name: KINDS[kind][0](rng) for name, kind in zip(files, kinds, strict=True)}
        columns = [
            pa.array(made[name][:1] * 8 if name in parted else with_nulls(made[name], rng), KINDS[kind][1])
            for name, kind in zip(files, kinds, strict=True)
        ]
        write_deltalake(str(folder), pa.table(columns, names=files), mode="append", partition_by=parted or None)
    swapped = {name: files[number ^ 1] for number, name in enumerate(files)}
    for log in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for one in actions:
            if "protocol" in one:
                features = ["columnMapping", "timestampNtz"]
                one["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                                   "writerFeatures": features}  # fmt: skip
            if "metaData" in one:
                schema = json.loads(one["metaData"]["schemaString"])
                for number, field in enumerate(schema["fields"]):
                    about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
                    field.update(name=swapped[field["name"]], metadata=about)
                one["metaData"].update(
                    schemaString=json.dumps(schema), partitionColumns=[swapped[name] for name in parted],
                    configuration={"delta.columnMapping.mode": "name"},
                )  # fmt: skip
        log.write_text("".join(json.dumps(one) + "\n" for one in actions))
    return {str(path): list(_rows_of(path, swapped)) for path in folder.rglob("*.parquet")}


def _rows_of(path: Path, swapped: Mapping[str, str]) -> Iterator[Row]:
    pairs = (one.split("=", 1) for one in path.parts if "=" in one and not one.endswith(".parquet"))
    of_folders = {swapped[name]: dt.date.fromisoformat(unquote(value)) for name, value in pairs}
    for row in pq.ParquetFile(path).read().to_pylist():
        yield {swapped[name]: value for name, value in row.items()} | of_folders


@pytest.mark.long
def test_no_row_of_a_delta_file_that_is_left_out_passes_though_columns_have_swapped_names(tmp_path: Path) -> None:
    left_out = of_parts = 0
    for seed in range(4):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        rows = delta_of_swapped_names(folder, rng)
        given = Input(format="delta", path=str(folder), parts="c4")

        def pinned(asked: Sequence[Condition], given: Input = given, folder: Path = folder) -> Snapshot:
            return delta_snapshot(given, Part(DATE), "", str(folder), lambda _: asked)

        left_out += require_nothing_lost(rng, rows, pinned)
        if pinned(()).parted:
            of_parts += require_parts_whole(LakeTable(pinned(()), str(tmp_path)), "c4", rows)
    assert left_out > 4 * ASKED
    assert of_parts > 10


#: How an Iceberg table is partitioned, by the ids of its columns.
SPECS = (
    PartitionSpec(),
    PartitionSpec(PartitionField(5, 1000, DayTransform(), "at_day")),
    PartitionSpec(PartitionField(5, 1000, HourTransform(), "h"), PartitionField(3, 1001, BucketTransform(3), "third")),
    PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "day"), PartitionField(6, 1001, DayTransform(), "was")),
)


def iceberg_of_changed_columns(root: Path, rng: random.Random, spec: PartitionSpec) -> dict[str, list[Row]]:
    """An Iceberg table whose columns were exchanged and promoted between its files."""
    table = iceberg_table(root, Schema(
        NestedField(1, "a", IntegerType()), NestedField(2, "b", IntegerType()), NestedField(3, "s", StringType()),
        NestedField(4, "day", DateType()), NestedField(5, "at", TimestampType()), NestedField(6, "was_day", DateType()),
    ), spec)  # fmt: skip
    kinds, paths = {1: "bigint", 2: "bigint", 3: "string", 4: "date", 5: "timestamp_ntz", 6: "date"}, list[str]()
    for number in range(4):
        if number == 2:
            table = with_fields(root, _promote)
            for old, new in (("a", "other"), ("b", "a"), ("other", "b")):
                with table.update_schema() as update:
                    update.rename_column(old, new)
            with table.update_schema() as update:
                update.update_column("b", LongType())
            kinds[6] = "timestamp_ntz"
        made = {one.name: with_nulls(KINDS[kinds[one.field_id]][0](rng), rng) for one in table.schema().fields}
        rows = pa.table(made, schema=table.schema().as_arrow())
        of_partition: dict[tuple[Any, ...], list[int]] = {}
        for place, row in enumerate(rows.to_pylist()):
            of_partition.setdefault(_partition(table, row), []).append(place)
        files = [data_file(table, rows.take(one), Record(*key), bounds=True) for key, one in of_partition.items()]
        append(table, *files)
        paths += [file.file_path for file in files]
    names = {one.field_id: one.name for one in table.schema().fields}
    return {path: list(_by_id(path, names)) for path in paths}


def _partition(table: Table, row: Row) -> tuple[Any, ...]:
    found = []
    for one in table.spec().fields:
        source = table.schema().find_field(one.source_id)
        value = one.transform.transform(source.field_type)(row[source.name])
        found.append(date_to_days(value) if isinstance(value, dt.date) else value)
    return tuple(found)


def _promote(fields: list[dict[str, Any]]) -> None:
    next(field for field in fields if field["name"] == "was_day")["type"] = "timestamp"


def _by_id(path: str, names: Mapping[int, str]) -> Iterator[Row]:
    found = pq.ParquetFile(path).read()
    own = {field.name: names[int(field.metadata[b"PARQUET:field_id"])] for field in found.schema}
    for row in found.to_pylist():
        named = {own[name]: value for name, value in row.items()}
        day = named["was_day"]
        yield named | {"was_day": dt.datetime.combine(day, dt.time()) if type(day) is dt.date else day}


@pytest.mark.parametrize("seed", mostly_long(range(len(SPECS)), 3))
def test_no_row_of_an_iceberg_file_that_is_left_out_passes_though_columns_were_promoted(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    rows = iceberg_of_changed_columns(tmp_path, rng, SPECS[seed])
    given = Input(format="iceberg", path="local.db.clicks", parts="at")

    def pinned(asked: Sequence[Condition]) -> Snapshot:
        return iceberg_snapshot(given, Part(DATE), str(tmp_path), "", lambda _: asked)

    assert require_nothing_lost(rng, rows, pinned) > ASKED / 2
    for column in pinned(()).parted:
        assert require_parts_whole(LakeTable(pinned(()), str(tmp_path)), column, rows)
