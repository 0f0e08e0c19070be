"""Standing states of tables: what changed is found in their metadata, and compaction costs no row."""

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.errors import InputError, SpecError
from skewless.run.directory import RunDirectory
from skewless_spark.comparison import results_of_all_rows
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.lake_tables import append, compact, data_file, delete_positions, iceberg_table
from tests.spark.scenario import result_of, spec_of

NIGHT = dt.date(2026, 11, 3)
DAYS = [dt.date(2026, 11, 1), dt.date(2026, 11, 2), NIGHT]
EPOCH = dt.date(1970, 1, 1)
SUM = {"n": "count", "total": {"function": "sum", "column": "v"}}


def rows_of(day: dt.date, first: int, number: int) -> pa.Table:
    values = range(first, first + number)
    return pa.table({"k": [f"k{one % 7}" for one in values], "v": list(values), "date": [day] * number})


class Nights:
    """Runs of one job over one table, each in a run directory of its own."""

    def __init__(self, spark: SparkSession, root: Path, source: dict[str, Any], **fields: Any) -> None:
        self.spark, self.root, self.source, self.fields, self.number = spark, root, source, fields, 0

    def night(self, date: dt.date = NIGHT) -> tuple[Job, dict[str, tuple[int, int]]]:
        """The job of a run to its merged result, and this."""
        self.number += 1
        fields = {"engine": "combine", "window": 3, **self.fields}
        spec = spec_of(self.root / "x", "k", SUM, **fields, input=self.source)
        run = RunDirectory(str(self.root / f"run{self.number}"))
        prepare(run, spec, date, str(self.root))
        run_stages(self.spark, run)
        merge_states(self.spark, run)
        found = result_of(run)
        # What ``compare --with fresh`` computes, from the files that the states are said to stand for.
        again = {row["c0"]: (row["r0"], row["r1"]) for row in results_of_all_rows(self.spark, run.job()).collect()}
        columns = (found[name].to_pylist() for name in ("k", "n", "total"))
        ours = {key: (n, total) for key, n, total in zip(*columns, strict=True)}
        assert ours == again
        return run.job(), ours


def expected(table: pa.Table) -> dict[str, tuple[int, int]]:
    counts, totals = Counter[str](), Counter[str]()
    for row in table.to_pylist():
        counts[row["k"]] += 1
        totals[row["k"]] += row["v"]
    return {key: (counts[key], totals[key]) for key in counts}


def ways(job: Job) -> list[str]:
    assert job.window
    return [part.way for part in job.window.parts]


def by_day(root: Path) -> Table:
    """An Iceberg table that the column ``date`` partitions, and a hidden day of a timestamp."""
    schema = Schema(
        NestedField(1, "k", StringType()), NestedField(2, "v", LongType()), NestedField(3, "date", DateType()),
        NestedField(4, "at", TimestampType()),
    )  # fmt: skip
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "date"), PartitionField(4, 1001, DayTransform(), "at_day")
    )
    return iceberg_table(root, schema, spec)


def record(day: dt.date) -> Record:
    return Record((day - EPOCH).days, None)


ICEBERG = {"format": "iceberg", "path": "local.db.clicks", "parts": "date"}


@pytest.mark.long
def test_nights_over_an_iceberg_table_read_what_changed_and_compaction_costs_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, nights = by_day(tmp_path), Nights(spark, tmp_path, ICEBERG)
    files = [data_file(table, rows_of(day, n * 100, 40), record(day)) for n, day in enumerate(DAYS) for _ in range(2)]
    append(table, *files)
    job, found = nights.night()
    assert (ways(job), job.rows, found) == (["new"] * 3, 240, expected(table.scan().to_arrow()))

    # A file that came late is added to its part; nothing else is read.
    late = data_file(table, rows_of(DAYS[0], 1000, 10), record(DAYS[0]))
    append(table, late)
    job, found = nights.night()
    assert (ways(job), job.rows) == (["added to", "reused", "reused"], 10)
    assert found == expected(table.scan().to_arrow())

    # Compaction: other files, the same rows.
    whole = pa.concat_tables([rows_of(DAYS[0], 0, 40), rows_of(DAYS[0], 0, 40), rows_of(DAYS[0], 1000, 10)])
    one = data_file(table, whole, record(DAYS[0]))
    compact(table, [*files[:2], late], one)
    job, found = nights.night()
    assert (ways(job), job.rows, job.units) == (["reused"] * 3, 0, ())
    assert job.window
    assert [part.rewritten for part in job.window.parts] == [1, 0, 0]
    assert found == expected(table.scan().to_arrow())

    # It is remembered: whoever expires the old snapshots takes nothing away.
    table.refresh()
    for snapshot in table.snapshots()[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    job, found = nights.night()
    assert (ways(job), job.rows, found) == (["reused"] * 3, 0, expected(table.scan().to_arrow()))

    # Rows that are deleted change their part, and no other.
    delete_positions(table, {one.file_path: [0, 1, 89]}, record(DAYS[0]))
    job, found = nights.night()
    assert (ways(job), job.rows) == (["reduced anew", "reused", "reused"], 87)
    assert found == expected(table.scan().to_arrow())

    # Compaction that applies the deletes changes no row either.
    kept = whole.take([row for row in range(90) if row not in {0, 1, 89}])
    compact(table, [one], data_file(table, kept, record(DAYS[0])))
    job, found = nights.night()
    assert (ways(job), job.rows, found) == (["reused"] * 3, 0, expected(table.scan().to_arrow()))


@pytest.mark.long
def test_a_file_that_came_before_a_compaction_is_not_lost_in_it(spark: SparkSession, tmp_path: Path) -> None:
    table, nights = by_day(tmp_path), Nights(spark, tmp_path, {**ICEBERG}, window=1)
    old = data_file(table, rows_of(NIGHT, 0, 20), record(NIGHT))
    append(table, old)
    nights.night()
    new = data_file(table, rows_of(NIGHT, 20, 5), record(NIGHT))
    append(table, new)
    compact(table, [old, new], data_file(table, rows_of(NIGHT, 0, 25), record(NIGHT)))
    job, found = nights.night()
    assert (ways(job), job.rows, found) == (["reduced anew"], 25, expected(table.scan().to_arrow()))


@pytest.mark.long
def test_an_aggregate_that_sees_rows_in_order_has_a_compacted_part_anew(spark: SparkSession, tmp_path: Path) -> None:
    table = by_day(tmp_path)
    old = [data_file(table, rows_of(NIGHT, n, 5), record(NIGHT)) for n in (0, 5)]
    append(table, *old)
    aggregates = {**SUM, "visits": {"function": "sessions", "column": "v", "gap": 1.0}}
    spec = spec_of(tmp_path / "x", "k", aggregates, window=1, input=ICEBERG)
    jobs = []
    for number in range(2):
        run = RunDirectory(str(tmp_path / f"run{number}"))
        jobs.append(prepare(run, spec, NIGHT, str(tmp_path)))
        run_stages(spark, run)
        merge_states(spark, run)
        if not number:
            compact(table, old, data_file(table, rows_of(NIGHT, 0, 10), record(NIGHT)))
    assert [ways(job) for job in jobs] == [["new"], ["reduced anew"]]


@pytest.mark.long
def test_nights_over_a_delta_table_do_not_read_what_optimize_rewrote(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    nights = Nights(spark, tmp_path, {"format": "delta", "path": str(folder), "parts": "date"})
    for n, day in enumerate(DAYS):
        for part in range(2):
            write_deltalake(str(folder), rows_of(day, n * 100 + part, 30), partition_by=["date"], mode="append")
    job, found = nights.night()
    assert (ways(job), job.rows) == (["new"] * 3, 180)
    assert found == expected(DeltaTable(str(folder)).to_pyarrow_table())
    DeltaTable(str(folder)).optimize.compact()
    assert len(DeltaTable(str(folder)).file_uris()) == 3
    job, again = nights.night()
    assert (ways(job), job.rows, again) == (["reused"] * 3, 0, found)
    write_deltalake(str(folder), rows_of(DAYS[1], 500, 3), mode="append")
    DeltaTable(str(folder)).delete(f"date = '{DAYS[0]}' AND v < 10")
    job, found = nights.night()
    assert (ways(job), job.rows) == (["reduced anew", "added to", "reused"], 3 + 60 - 19)
    assert found == expected(DeltaTable(str(folder)).to_pyarrow_table())


@pytest.mark.long
def test_a_name_that_stands_for_another_column_begins_new_states(spark: SparkSession, tmp_path: Path) -> None:
    table, nights = by_day(tmp_path), Nights(spark, tmp_path, ICEBERG, window=1)
    append(table, data_file(table, rows_of(NIGHT, 1, 20), record(NIGHT)))
    _, found = nights.night()
    assert found == expected(table.scan().to_arrow())
    with table.update_schema() as update:
        update.delete_column("v")
    with table.update_schema() as update:
        update.add_column("v", LongType())
    job, found = nights.night()
    assert (ways(job), job.rows) == (["new"], 20)
    assert {total for _, total in found.values()} == {None}


def test_parts_need_a_column_that_partitions_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = by_day(tmp_path)
    append(table, data_file(table, rows_of(NIGHT, 0, 5), record(NIGHT)))
    with pytest.raises(InputError, match=r"such columns are: date, at\."):
        Nights(spark, tmp_path, {**ICEBERG, "parts": "k"}).night()
    with pytest.raises(InputError, match=r"files of the part that the run computes, but got none, and 1 without a day"):
        Nights(spark, tmp_path, {**ICEBERG, "parts": "at"}).night()
    with pytest.raises(InputError, match=r"files of the part that the run computes, but got none at local\.db"):
        Nights(spark, tmp_path, ICEBERG).night(dt.date(2026, 11, 9))
    with pytest.raises(SpecError, match=r"input\.parts, the partition column whose days are the parts"):
        Nights(spark, tmp_path, {"format": "iceberg", "path": "local.db.clicks"}).night()


@pytest.mark.parametrize("kind", ["iceberg", "folder"])
def test_files_without_a_day_are_of_no_part_and_are_told(tmp_path: Path, kind: str) -> None:
    if kind == "iceberg":
        table, source = by_day(tmp_path), ICEBERG
        append(table, data_file(table, rows_of(NIGHT, 0, 5), record(NIGHT)))
        undated = rows_of(NIGHT, 5, 2).drop_columns("date").append_column("date", pa.nulls(2, pa.date32()))
        append(table, data_file(table, undated, Record(None, None)))
    else:
        source = {"path": str(tmp_path / "in"), "parts": "date"}
        for day, rows in ((f"{NIGHT}", 5), ("__HIVE_DEFAULT_PARTITION__", 2)):
            (tmp_path / "in" / f"date={day}").mkdir(parents=True)
            pq.write_table(rows_of(NIGHT, 0, rows).drop_columns("date"), tmp_path / "in" / f"date={day}" / "p.parquet")
    spec = spec_of(tmp_path / "x", "k", SUM, engine="combine", window="all", input=source)
    job = freeze(spec, NIGHT, str(tmp_path), "spec")
    assert job.window is not None
    assert ([part.name for part in job.window.parts], job.rows) == ([f"{NIGHT}"], 5)
    assert job.extent.endswith("5 rows in 1 file, 1 file without a day left out")


def test_the_days_of_a_hidden_partition_are_parts_and_compaction_costs_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As most tables of events are partitioned: by day(at), where the column itself has times."""

    def events(day: dt.date, first: int, number: int) -> pa.Table:
        noon = dt.datetime.combine(day, dt.time(12))
        return rows_of(day, first, number).drop_columns("date").append_column("at", pa.array([noon] * number))

    schema = Schema(
        NestedField(1, "k", StringType()), NestedField(2, "v", LongType()), NestedField(3, "at", TimestampType())
    )
    hidden = PartitionField(3, 1000, DayTransform(), "at_part")
    table = iceberg_table(tmp_path, schema, PartitionSpec(hidden))
    days = {day: Record((day - EPOCH).days) for day in DAYS}
    first = {day: data_file(table, events(day, 100 * number, 30), days[day]) for number, day in enumerate(DAYS)}
    append(table, *first.values())
    nights = Nights(spark, tmp_path, {"format": "iceberg", "path": "local.db.clicks", "parts": "at"})
    job, found = nights.night()
    assert (ways(job), job.rows) == (["new"] * 3, 90)
    assert found == expected(pa.concat_tables(events(day, 100 * number, 30) for number, day in enumerate(DAYS)))
    late = data_file(table, events(DAYS[0], 500, 5), days[DAYS[0]])
    append(table, late)
    job, found = nights.night()
    assert (ways(job), job.rows) == (["added to", "reused", "reused"], 5)
    both = pa.concat_tables([events(DAYS[0], 0, 30), events(DAYS[0], 500, 5)])
    compact(table, [first[DAYS[0]], late], data_file(table, both, days[DAYS[0]]))
    job, again = nights.night()
    assert (ways(job), job.rows) == (["reused"] * 3, 0)
    assert again == found
