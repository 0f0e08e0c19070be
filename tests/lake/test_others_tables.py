"""Tables that others have made: what they ask of a writer is held, or the table is refused before anything is done."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, StringType
from pyspark.sql import SparkSession

from skewless.errors import QualityError, RunDirectoryError, SpecError
from skewless_lake.catalogs import open_catalog
from skewless_lake.delta_tables import require_race
from skewless_lake.iceberg_tables import require_race as iceberg_race
from skewless_lake.publication import publish_run, require_fitting, roll_back, turn_in_table
from skewless_lake.staged_files import TableRule
from skewless_spark.quality.expectations import rule_checks
from tests.lake.outputs import DAY, NOW, committed, part_of, publish, ready, result_table, seen, staged
from tests.lake.test_outputs import run as begun
from tests.lake.test_outputs import spec
from tests.lake_tables import append, data_file
from tests.tiers import mostly_long

_OLD = f"date={DAY}/part-0.parquet"


def delta_table(
    root: Path,
    *,
    protocol: tuple[int, int] = (1, 2),
    reader: Iterable[str] = (),
    writer: Iterable[str] = (),
    properties: dict[str, str] | None = None,
    of_key: dict[str, Any] | None = None,
    nullable: bool = True,
    path: str = _OLD,
    deleted: dict[str, Any] | None = None,
) -> Path:
    """A table that a program of others has made, action by action: one file of the day, with one row."""
    folder = root / "marts" / "clicks"
    file = folder / unquote(path)
    file.parent.mkdir(parents=True)
    pq.write_table(result_table("old", 1), file)
    versions: dict[str, Any] = {"minReaderVersion": protocol[0], "minWriterVersion": protocol[1]}
    versions |= {"readerFeatures": list(reader)} if protocol[0] == 3 else {}
    versions |= {"writerFeatures": [*reader, *writer]} if protocol[1] == 7 else {}
    columns = [
        {"name": "date", "type": "date", "nullable": True, "metadata": {}},
        {"name": "key", "type": "string", "nullable": nullable, "metadata": of_key or {}},
        {"name": "by", "type": "string", "nullable": True, "metadata": {"comment": "who has made the row"}},
    ]
    if properties and properties.get("delta.columnMapping.mode") == "name":
        for number, column in enumerate(columns, start=1):
            column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": column["name"]}
    about = {
        "id": "of-others", "format": {"provider": "parquet", "options": {}}, "createdTime": 0,
        "schemaString": json.dumps({"type": "struct", "fields": columns}), "partitionColumns": ["date"],
        "configuration": properties or {},
    }  # fmt: skip
    added = {
        "path": path, "partitionValues": {"date": str(DAY)}, "size": file.stat().st_size, "modificationTime": 0,
        "dataChange": True, "stats": json.dumps({"numRecords": 1}), "deletionVector": deleted,
    }  # fmt: skip
    log(folder, 0, [{"protocol": versions}, {"metaData": about}, {"add": added}])
    return folder


def log(folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
    name = folder / "_delta_log" / f"{version:020d}.json"
    name.parent.mkdir(exist_ok=True)
    name.write_text("".join(json.dumps(action) + "\n" for action in actions))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "identity-columns": ({"protocol": (1, 6)}, "writer version 6"),
    "row-tracking": ({"protocol": (1, 7), "writer": ["rowTracking"]}, "the feature rowTracking"),
    "clustering": ({"protocol": (1, 7), "writer": ["domainMetadata", "clustering"]}, "the feature clustering"),
    "commit-times": ({"protocol": (1, 7), "writer": ["inCommitTimestamp"]}, "the feature inCommitTimestamp"),
    "iceberg-too": ({"protocol": (1, 7), "writer": ["icebergCompatV2"]}, "the feature icebergCompatV2"),
    "defaults": ({"protocol": (1, 7), "writer": ["allowColumnDefaults"]}, "the feature allowColumnDefaults"),
    "widening": ({"protocol": (3, 7), "reader": ["typeWidening"]}, "the feature typeWidening"),
    "vacuum": ({"protocol": (3, 7), "reader": ["vacuumProtocolCheck"]}, "the feature vacuumProtocolCheck"),
    "of-a-catalog": ({"protocol": (3, 7), "reader": ["catalogManaged"]}, "deltalake cannot open the table"),
    "of-tomorrow": ({"protocol": (3, 7), "reader": ["ofTomorrow"]}, "deltalake cannot open the table"),
    "append-only": ({"properties": {"delta.appendOnly": "true"}}, "the property delta.appendOnly = true"),
    "turns-expire": (
        {"properties": {"delta.setTransactionRetentionDuration": "interval 7 days"}},
        "the property delta.setTransactionRetentionDuration = interval 7 days",
    ),
    "mapped": (
        {"protocol": (2, 5), "properties": {"delta.columnMapping.mode": "name"}},
        "the property delta.columnMapping.mode = name",
    ),
    "char": (
        {"of_key": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(2)"}},
        "the metadata __CHAR_VARCHAR_TYPE_STRING of the column key",
    ),
    "identity": ({"of_key": {"delta.identity.start": 1}}, "the metadata delta.identity.start of the column key"),
    "literal-space": ({"path": f"date={DAY}/part 0.parquet"}, "but got 'date=2026-11-20/part 0.parquet'"),
    "umlaut": ({"path": f"date={DAY}/pärt.parquet"}, "but got 'date=2026-11-20/pärt.parquet'"),
    "small-hex": ({"path": f"date={DAY}/part%3d0.parquet"}, "but got 'date=2026-11-20/part%3d0.parquet'"),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_long(REFUSED, "row-tracking", "append-only"))
def test_a_delta_table_that_asks_for_what_we_do_not_know_is_refused_at_every_step(tmp_path: Path, name: str) -> None:
    how, sentence = REFUSED[name]
    other = tmp_path / "other"
    run = ready(other / "run", other, "delta", "new")
    folder = delta_table(tmp_path, **how)
    target = part_of("delta", tmp_path)
    with pytest.raises(SpecError) as checked:  # of `skewless check`
        require_fitting(target)
    assert sentence in str(checked.value)
    with pytest.raises(SpecError):  # of `prepare`
        turn_in_table(target)
    with pytest.raises(SpecError):
        staged(committed(tmp_path / "run", tmp_path, "delta", result_table("new")))
    assert [file.name for file in folder.rglob("*.parquet")] == [Path(unquote(how.get("path", _OLD))).name]
    # It has become such a table since the result was staged.
    there, before = other / "marts" / "clicks" / "_delta_log", folder / "_delta_log" / f"{0:020d}.json"
    (there / f"{1:020d}.json").write_text(before.read_text())
    with pytest.raises(SpecError) as published:
        publish_run(run, NOW)
    assert sentence in str(published.value)
    assert not (there / f"{2:020d}.json").exists()


#: The inline vector of the protocol's own example.
_DELETED = {
    "storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40,
    "cardinality": 6,
}  # fmt: skip
TAKEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "change-data": {"protocol": (1, 4), "properties": {"delta.enableChangeDataFeed": "true"}},
    "deletion-vectors": {
        "protocol": (3, 7), "reader": ["deletionVectors"], "properties": {"delta.enableDeletionVectors": "true"},
        "deleted": _DELETED,
    },
    "settings": {
        "properties": {
            "delta.autoOptimize.optimizeWrite": "true", "delta.appendOnly": "false", "owner": "others",
            "delta.logRetentionDuration": "interval 30 days", "delta.columnMapping.mode": "none",
        }
    },
    "encoded-space": {"path": f"date={DAY}/part%200%25.parquet"},
    "odd-letters": {"path": f"date={DAY}/p+a:r@t=$0(1)!.parquet"},
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_long(TAKEN, "plain"))
def test_a_delta_table_of_others_takes_a_day_in_place_of_its_own(tmp_path: Path, name: str) -> None:
    folder = delta_table(tmp_path, **TAKEN[name])
    target = part_of("delta", tmp_path)
    require_fitting(target)
    publish(tmp_path / "run", tmp_path, "delta", "new")
    changed = DeltaTable(str(folder))
    shown = [
        value for file in changed.file_uris() for value in pq.read_table(file, partitioning=None)["by"].to_pylist()
    ]
    assert shown == ["new"] * 3
    if name == "deletion-vectors":  # a file is known by its path and its vector: others keep it otherwise
        actions = (folder / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
        removed = [json.loads(action)["remove"] for action in actions if "remove" in action]
        assert [one["deletionVector"] for one in removed] == [_DELETED]
    if name == "change-data":
        changes = pa.table(changed.load_cdf(starting_version=1).read_all())
        assert sorted(changes["_change_type"].to_pylist()) == ["delete", "insert", "insert", "insert"]


@pytest.mark.long
def test_a_commit_that_is_refused_is_a_race_only_if_another_version_has_come(tmp_path: Path) -> None:
    folder = delta_table(tmp_path, properties={"delta.appendOnly": "true"})
    table, target = DeltaTable(str(folder)), part_of("delta", tmp_path)
    added = AddAction("x.parquet", 1, {"date": str(DAY)}, 0, True, "{}")
    filters = [("date", "=", str(DAY))]
    with pytest.raises(CommitFailedError) as refused:
        table.create_write_transaction([added], "overwrite", table.schema(), ["date"], filters)
    with pytest.raises(SpecError, match=r"does not commit to the table .*append-only"):
        require_race(table, target, Counter(), refused.value)
    log(folder, 1, [{"commitInfo": {"operation": "of others"}}])
    require_race(table, target, Counter(), refused.value)


@pytest.mark.long
def test_nulls_in_a_column_of_a_delta_table_that_must_not_be_null_are_a_sentence(tmp_path: Path) -> None:
    delta_table(tmp_path, nullable=False)
    run = committed(
        tmp_path / "1", tmp_path, "delta", result_table("new").set_column(0, "key", pa.array(["a", None, "c"]))
    )
    with pytest.raises(SpecError, match=r"column 'key' .*: expected a value in each row, .*, but got nulls in 1 of"):
        staged(run)
    publish(tmp_path / "2", tmp_path, "delta", "new")
    assert seen("delta", tmp_path) == {str(DAY): ["new"] * 3}


@pytest.mark.long
def test_rows_are_held_to_the_rules_that_a_table_has_when_it_is_committed_to(tmp_path: Path) -> None:
    folder = delta_table(tmp_path, protocol=(1, 3), properties={"delta.constraints.known": "by <> 'unknown'"})
    first, target = ready(tmp_path / "1", tmp_path, "delta", "first"), part_of("delta", tmp_path)
    assert staged(first).rules == (TableRule(name="CHECK known", condition="by <> 'unknown'"),)
    publish_run(first, NOW)
    publish(tmp_path / "2", tmp_path, "delta", "second", turn=2)
    roll_back(target, NOW)
    assert seen("delta", tmp_path) == {str(DAY): ["first"] * 3}
    DeltaTable(str(folder)).alter.add_constraint({"short": "by <> 'late'"})
    late = ready(tmp_path / "4", tmp_path, "delta", "late", turn=9)
    DeltaTable(str(folder)).alter.drop_constraint("short")
    with pytest.raises(RunDirectoryError, match=r"constraints or required columns .* have changed since"):
        publish_run(late, NOW)
    DeltaTable(str(folder)).alter.add_constraint({"short": "by <> 'late'"})
    with pytest.raises(RunDirectoryError, match=r"constraints or required columns .* have changed since"):
        roll_back(target, NOW)
    assert seen("delta", tmp_path) == {str(DAY): ["first"] * 3}


@pytest.mark.long
def test_a_day_that_breaks_a_constraint_of_its_table_is_not_published(spark: SparkSession, tmp_path: Path) -> None:
    given = spec(
        tmp_path, {"format": "delta", "path": str(tmp_path / "marts" / "clicks")}, aggregates={"rows": "count"}
    )
    columns = pa.schema([("page", pa.string()), ("rows", pa.int64()), ("date", pa.date32())])
    made = DeltaTable.create(str(tmp_path / "marts" / "clicks"), columns, partition_by=["date"])
    made.alter.add_constraint({"few": "rows < 30"})
    with pytest.raises(QualityError, match=r"asks for: CHECK few \(broken by 5 rows: rows < 30; in \S"):
        begun(spark, tmp_path, given, "run")
    assert DeltaTable(str(tmp_path / "marts" / "clicks")).count() == 0


@pytest.mark.long
def test_rules_are_true_of_each_row_or_broken(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, "a"), (2, 4, None), (3, 5, "c")], "n long, twice long, `odd``name` string")
    rules = [
        TableRule(name="positive", condition="n > 0"),
        TableRule(name="null is broken", condition="`odd``name` <> 'x'"),
        TableRule(name="generated", condition="`twice` <=> (n * 2)"),
        TableRule(name="of the part", condition="date > '2026-01-01' OR n = 1"),
        TableRule(name="held by the writer"),
    ]
    parts = {"date": dt.date(2025, 1, 1)}
    checks = rule_checks(frame, rules, parts, "table", ["odd`name", "n"])
    assert [(one.column, one.observed) for one in checks] == [
        ("positive", "0"), ("null is broken", "1"), ("generated", "1"), ("of the part", "2"),
    ]  # fmt: skip
    assert [one.success for one in checks] == [True, False, False, False]
    assert [[str(key) for key in one.keys] for one in checks] == [[], ["null, 2"], ["c, 3"], ["null, 2", "c, 3"]]
    for condition in ("no_such_function(n) > 1", "n >", "n; drop"):
        with pytest.raises(SpecError, match="a rule of the table cannot be evaluated"):
            rule_checks(frame, [TableRule(name="odd", condition=condition)], parts, "table")


def iceberg_table(root: Path, *fields: PartitionField, required: bool = False, version: str = "2") -> Table:
    """A table that others have made, partitioned by the month or as told."""
    schema = Schema(
        NestedField(1, "date", DateType()),
        NestedField(2, "key", StringType(), required=required),
        NestedField(3, "by", StringType()),
    )
    catalog = open_catalog("local", str(root))
    catalog.create_namespace("marts")
    spec_of = PartitionSpec(*fields or (PartitionField(1, 1000, IdentityTransform(), "date"),))
    return catalog.create_table("marts.clicks", schema, None, spec_of, properties={"format-version": version})


@pytest.mark.long
def test_files_of_a_month_are_not_replaced_by_those_of_a_day(tmp_path: Path) -> None:
    """The table was partitioned by month once: its files of then have rows of many days."""
    table = iceberg_table(tmp_path, PartitionField(1, 1000, MonthTransform(), "month"))
    days = pa.array([DAY, DAY - dt.timedelta(days=1)], pa.date32())
    old = pa.table({"date": days, "key": ["a", "b"], "by": ["old"] * 2})
    append(table, data_file(table, old, Record((DAY.year - 1970) * 12 + DAY.month - 1)))
    with table.update_spec() as change:
        change.remove_field("month")
        change.add_field("date", IdentityTransform(), "date")
    run = committed(tmp_path / "run", tmp_path, "iceberg", result_table("new"))
    with pytest.raises(SpecError, match="older than the table's partitions and may have rows of several"):
        staged(run)
    assert seen("iceberg", tmp_path) == {str(DAY - dt.timedelta(days=1)): ["old"], str(DAY): ["old"]}
    other = DAY + dt.timedelta(days=40)
    publish(tmp_path / "other", tmp_path, "iceberg", "new", turn=2, day=other)
    assert seen("iceberg", tmp_path)[str(other)] == ["new"] * 3


@pytest.mark.long
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_that_had_more_partition_columns_takes_a_day_in_place_of_its_own(tmp_path: Path, version: str) -> None:
    by_day_and_key = [PartitionField(one, 999 + one, IdentityTransform(), f"p{one}") for one in (1, 2)]
    table = iceberg_table(tmp_path, *by_day_and_key, version=version)
    days = pa.array([DAY, DAY - dt.timedelta(days=1)], pa.date32())
    table.append(pa.table({"date": days, "key": ["a", "b"], "by": ["old"] * 2}))
    with table.update_spec() as change:
        change.remove_field("p2")
    if version == "1":  # the field stays there as a void one, and pyiceberg does not write that
        with pytest.raises(SpecError, match=r"but got one partitioned by date \(identity\), key \(void\)"):
            turn_in_table(part_of("iceberg", tmp_path))
        return
    publish(tmp_path / "run", tmp_path, "iceberg", "new")
    assert seen("iceberg", tmp_path) == {str(DAY - dt.timedelta(days=1)): ["old"], str(DAY): ["new"] * 3}


@pytest.mark.long
def test_required_columns_of_an_iceberg_table_have_values_when_it_is_committed_to(tmp_path: Path) -> None:
    iceberg_table(tmp_path, required=True)
    nulls = result_table("new").set_column(0, "key", pa.array(["a", None, "c"]))
    with pytest.raises(SpecError, match=r"column 'key' .*: expected a value in each row, .*, but got nulls in 1 of"):
        staged(committed(tmp_path / "1", tmp_path, "iceberg", nulls))
    publish(tmp_path / "2", tmp_path, "iceberg", "new")
    late = ready(tmp_path / "3", tmp_path, "iceberg", "late", turn=2)
    with open_catalog("local", str(tmp_path)).load_table("marts.clicks").update_schema() as change:
        change.make_column_optional("key")
    with pytest.raises(RunDirectoryError, match=r"required columns .* have changed since"):
        publish_run(late, NOW)
    assert seen("iceberg", tmp_path) == {str(DAY): ["new"] * 3}


@pytest.mark.long
def test_a_catalog_that_never_commits_is_no_race(tmp_path: Path) -> None:
    table, failed, refused = iceberg_table(tmp_path), Counter[str](), CommitFailedException("no writes today")
    target = part_of("iceberg", tmp_path)  # of which only the table counts
    for _ in range(10):
        iceberg_race(table, target, failed, refused)
    with pytest.raises(SpecError, match=r"its catalog does not commit to it \(no writes today\)"):
        iceberg_race(table, target, failed, refused)
    with table.update_schema() as change:
        change.add_column("more", StringType())
    iceberg_race(table, target, failed, refused)
