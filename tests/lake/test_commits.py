"""Publication in tables, without Spark: a run counts once, whoever commits in between and whenever one is killed."""

import datetime as dt
import os
import shutil
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.visitors import _ManifestEvalVisitor
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, StringType

from skewless.documents.job import PinnedTable
from skewless.errors import QualityError, SpecError
from skewless.publication.records import Publication, record_of
from skewless.run.directory import RunDirectory
from skewless.run.step_times import run_facts
from skewless_lake import delta_tables as tables
from skewless_lake.catalogs import open_catalog
from skewless_lake.delta_tables import commit_part
from skewless_lake.formats import TableFormat, ready_table
from skewless_lake.iceberg_tables import commit_part as iceberg_commit
from skewless_lake.iceberg_tables import publications, staged_files
from skewless_lake.publication import publish_run, publishing_run
from skewless_lake.staged_files import OutputPart
from tests.lake.outputs import (
    DAY,
    KINDS,
    NOW,
    TABLE,
    committed,
    judge,
    part_of,
    publish,
    read,
    ready,
    result_table,
    seen,
    staged,
)
from tests.lake.races import Races
from tests.lake.readers import read_while_published
from tests.lake_tables import delete_equal
from tests.tiers import mostly_long

of_each_kind = pytest.mark.parametrize("kind", KINDS)


def iceberg_table(root: Path) -> Table:
    return open_catalog("local", str(root)).load_table(TABLE.partition(".")[2])


def stopped_after(run: RunDirectory, name: str) -> Generator[str, None, Publication]:
    steps = publishing_run(run, NOW)
    for done in steps:
        if done == name:
            return steps
    raise AssertionError(f"there is no step {name!r}")


@of_each_kind
def test_nobody_sees_what_is_staged_and_everybody_what_is_published(tmp_path: Path, kind: str) -> None:
    run = ready(tmp_path / "run", tmp_path, kind, "first")
    assert seen(kind, tmp_path) == {}
    record = publish_run(run, NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["first"] * 3}
    assert record.snapshot is not None
    assert (record.keys, record.rows, record.superseded) == (3, 6, None)


@of_each_kind
def test_a_result_that_failed_its_audit_leaves_the_published_one_untouched(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "good", tmp_path, kind, "good")
    bad = judge(committed(tmp_path / "bad", tmp_path, kind, result_table("bad"), turn=2), success=False)
    with pytest.raises(QualityError, match=r"^1 of 1 checks failed: n: x \("):
        publish_run(bad, NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["good"] * 3}


@of_each_kind
def test_a_day_that_is_published_again_is_replaced_and_no_other_day(tmp_path: Path, kind: str) -> None:
    other = DAY + dt.timedelta(days=1)
    publish(tmp_path / "1", tmp_path, kind, "old")
    publish(tmp_path / "2", tmp_path, kind, "other", turn=2, day=other)
    publish(tmp_path / "3", tmp_path, kind, "new", turn=3)
    assert seen(kind, tmp_path) == {"2026-11-20": ["new"] * 3, "2026-11-21": ["other"] * 3}


@pytest.mark.long
@of_each_kind
def test_the_table_tells_where_a_result_came_from(tmp_path: Path, kind: str) -> None:
    source = PinnedTable(kind="iceberg", name="local.raw.clicks", snapshot="17")
    run = ready(tmp_path / "run", tmp_path, kind, "first", pinned=source)
    publish_run(run, NOW)
    if kind == "iceberg":
        ((_, about),) = publications(iceberg_table(tmp_path), part_of("iceberg", tmp_path))
    else:
        commit = DeltaTable(str(tmp_path / "marts" / "clicks")).history()[0]
        about = {name.removeprefix("skewless."): value for name, value in commit.items()}
    assert (about["part"], about["turn"], about["run"]) == ("2026-11-20", "1", str(tmp_path / "run"))
    assert (about["input-rows"], about["result-rows"], about["quality"]) == ("6", "3", "passed, 1 checks")
    assert about["spec-digest"] == run.job().spec.digest()
    assert (about["input-table"], about["input-snapshot"]) == ("local.raw.clicks", "17")
    facts = run_facts(run)  # of the asset event
    assert (facts["input_table"], facts["input_snapshot"]) == ("local.raw.clicks", "17")
    assert about["ledger"] == "0 rows reduced + 0 in kept states = 0 in the result"


@of_each_kind
@pytest.mark.parametrize("name", mostly_long(["loaded", "committed", "finished", "recorded"], "committed"))
def test_a_publisher_that_is_killed_after_a_step_publishes_once(tmp_path: Path, kind: str, name: str) -> None:
    run = ready(tmp_path / "run", tmp_path, kind, "first")
    stopped_after(run, name).close()
    record = publish_run(run, NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["first"] * 3}
    assert publish_run(run, NOW) == record == record_of(run)
    if kind == "iceberg":
        assert len(list(publications(iceberg_table(tmp_path), part_of("iceberg", tmp_path)))) == 1


@of_each_kind
def test_a_commit_that_came_in_between_is_not_lost(tmp_path: Path, kind: str) -> None:
    """With pyiceberg alone it is: to make a staged snapshot the current one discards what came since."""
    other = DAY + dt.timedelta(days=1)
    first = ready(tmp_path / "1", tmp_path, kind, "first")
    second = ready(tmp_path / "2", tmp_path, kind, "second", turn=2, day=other)
    paused = stopped_after(first, "loaded")
    publish_run(second, NOW)
    assert list(paused)[-1] == "recorded"
    assert seen(kind, tmp_path) == {"2026-11-20": ["first"] * 3, "2026-11-21": ["second"] * 3}


@of_each_kind
def test_a_commit_is_refused_if_the_day_was_replaced_in_between(tmp_path: Path, kind: str) -> None:
    """By somebody who is no run of ours, so that no turn tells: the day would have the rows of both."""
    publish(tmp_path / "1", tmp_path, kind, "first")
    run = ready(tmp_path / "2", tmp_path, kind, "second", turn=2)
    target = OutputPart.of(run.job())
    files = staged(run)
    if kind == "iceberg":
        stale = iceberg_table(tmp_path)
        theirs = ready(tmp_path / "3", tmp_path, kind, "theirs", turn=3)
        table = iceberg_table(tmp_path)
        added = staged_files(table, target, staged(theirs))
        ours_too = staged_files(iceberg_table(tmp_path), target, files)
        iceberg_commit(table, target, added, {})
        with pytest.raises(CommitFailedException):
            iceberg_commit(stale, target, ours_too, {})
    else:
        about = {"at": NOW.isoformat(), "turn": "3"}
        loaded = [DeltaTable(str(tmp_path / "marts" / "clicks")) for _ in range(2)]
        theirs = ready(tmp_path / "3", tmp_path, kind, "theirs", turn=3)
        commit_part(loaded[0], target, staged(theirs).files, about)
        with pytest.raises(CommitFailedError):
            commit_part(loaded[1], target, files.files, {**about, "turn": "2"})
    assert seen(kind, tmp_path) == {"2026-11-20": ["theirs"] * 3}


@of_each_kind
def test_of_two_runs_of_a_day_the_later_turn_counts_whoever_is_first(tmp_path: Path, kind: str) -> None:
    older = ready(tmp_path / "1", tmp_path, kind, "older", turn=1)
    newer = ready(tmp_path / "2", tmp_path, kind, "newer", turn=2)
    paused = stopped_after(older, "loaded")
    publish_run(newer, NOW)
    assert list(paused) == ["recorded"]
    over = publish_run(older, NOW).superseded
    assert over is not None
    assert (over.by.run, over.turn) == (str(tmp_path / "2"), 2)
    assert seen(kind, tmp_path) == {"2026-11-20": ["newer"] * 3}


@pytest.mark.long
@of_each_kind
def test_where_the_store_of_turns_was_lost_the_table_knows_the_turn(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "2", tmp_path, kind, "newer", turn=2)
    shutil.rmtree(tmp_path / "tables")
    assert publish_run(ready(tmp_path / "1", tmp_path, kind, "older"), NOW).superseded is not None
    assert seen(kind, tmp_path) == {"2026-11-20": ["newer"] * 3}


@pytest.mark.long
def test_manifests_that_threads_of_pyiceberg_have_mixed_up_cost_no_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of its threads share the bounds that they look at: a pause between setting and reading them shows it."""
    for number in range(8):
        run = ready(tmp_path / f"{number}", tmp_path, "iceberg", "old", day=DAY + dt.timedelta(days=number))
        publish_run(run, NOW)
    last = DAY + dt.timedelta(days=7)
    again = ready(tmp_path / "again", tmp_path, "iceberg", "new", turn=2, day=last)
    look, main, pauses = _ManifestEvalVisitor.visit_equal, threading.get_ident(), list[float]()

    def slow(self: _ManifestEvalVisitor, **arguments: Any) -> bool:
        if threading.get_ident() != main and len(pauses) < 8:
            pauses.append(0.05)
            time.sleep(pauses[-1])
        return look(self, **arguments)

    monkeypatch.setattr(_ManifestEvalVisitor, "visit_equal", slow)
    publish_run(again, NOW)
    assert len(pauses) == 8
    found = seen("iceberg", tmp_path)
    assert found.pop(str(last)) == ["new"] * 3
    assert set(map(tuple, found.values())) == {("old",) * 3}


@pytest.mark.long
@of_each_kind
def test_what_is_published_is_on_the_disk(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of a table on a local disk is synced, and so is each folder that names one; data comes first."""
    synced, fsync = list[str](), os.fsync

    def noted(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    publish(tmp_path / "run", tmp_path, kind, "first", schema="evolve")
    data = [place for place, path in enumerate(synced) if path.endswith(".parquet")]
    naming = [place for place, path in enumerate(synced) if path.endswith((".avro", f"_delta_log/{1:020d}.json"))]
    assert data
    assert max(data) < min(naming)
    wider = result_table("new").append_column("n", pa.array([1, 2, 3]))
    publish(tmp_path / "2", tmp_path, kind, wider, turn=2, schema="evolve")
    table = tmp_path / ("warehouse" if kind == "iceberg" else "marts")
    files = {str(path) for path in table.rglob("*") if path.is_file() and path.name != "_last_checkpoint"}
    assert files - set(synced) == set()
    assert {str(Path(file).parent) for file in files} - set(synced) == set()


@pytest.mark.long
@of_each_kind
def test_an_empty_result_is_published(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "old")
    publish(tmp_path / "2", tmp_path, kind, result_table("none", 0), turn=2)
    assert seen(kind, tmp_path) == {}


@of_each_kind
def test_a_result_with_another_column_is_refused_unless_the_table_may_evolve(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "old")
    wider = result_table("new").append_column("n", pa.array([1, 2, 3]))
    refused = committed(tmp_path / "2", tmp_path, kind, wider, turn=2)
    with pytest.raises(SpecError, match=r"column 'n' of type .*; set output\.schema: evolve"):
        staged(refused)
    day = DAY + dt.timedelta(days=1)
    publish(tmp_path / "3", tmp_path, kind, wider, turn=3, day=day, schema="evolve")
    found = {(str(row["date"]), row["n"]) for row in read(kind, tmp_path).to_pylist()}
    assert found == {("2026-11-20", None), *((str(day), number) for number in (1, 2, 3))}


@of_each_kind
def test_a_table_with_other_partitions_is_refused(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "old")
    other = committed(tmp_path / "2", tmp_path, kind, result_table("new"), turn=2, partition="day")
    with pytest.raises(SpecError, match="a table partitioned by day, but got one partitioned by date"):
        staged(other)


YEAR_20_000 = 569_000_000_000_000_000
#: The type of a column, and the least and the greatest of its values, as Parquet stores them.
ENDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "time": (pa.timestamp("us", "UTC"), [0, YEAR_20_000]),
    "last of 9999": (pa.timestamp("us"), [0, 253_402_300_799_999_999]),
    "day": (pa.date32(), [0, YEAR_20_000 // 86_400_000_000]),
    "decimal": (pa.decimal128(38, 18), [Decimal("9" * 20) * sign for sign in (-1, 1)]),
    "float": (pa.float64(), [float("-inf"), float("inf")]),
    "bytes": (pa.binary(), [b"", b"\xff" * 40]),
    "no UTF-8": (pa.string(), [b"caf\xe8", b"\xff\xfe"]),
    "cut before the surrogates": (pa.string(), [b"a", b"b" * 15 + "\ud7ffzzz".encode()]),
    "greatest text": (pa.string(), [b"", ("\U0010ffff" * 70).encode()]),
    "beyond 16 bits": (pa.string(), [b"a", "\U00020001".encode()]),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
@of_each_kind
def test_values_that_have_no_bound_are_published(tmp_path: Path, kind: str, name: str) -> None:
    """The libraries take bounds through Python, which has no year 20,000, and whose texts are Unicode."""
    of, values = ENDS[name]
    stored = pa.array(values, pa.binary() if of == pa.string() else of)
    column = pa.Array.from_buffers(of, len(values), stored.buffers())  # Arrow does not look at the bytes
    publish(tmp_path / "1", tmp_path, kind, result_table("x", 2).append_column("v", column), in_files=1)
    assert read(kind, tmp_path)["v"].combine_chunks().cast(stored.type) == stored
    for key, value in enumerate(values):
        wanted = {"key": f"k{key}"} | ({"v": value.decode()} if of == pa.string() and name != "no UTF-8" else {})
        for filtered, text in wanted.items():
            if kind == "delta":
                files = DeltaTable(str(tmp_path / "marts" / "clicks")).to_pyarrow_dataset()
                assert files.count_rows(filter=pc.field(filtered) == text) == 1
            else:
                condition = EqualTo(term=Reference(filtered), value=text)
                assert iceberg_table(tmp_path).scan(condition).to_arrow().num_rows == 1


@pytest.mark.long
def test_a_table_of_format_1_takes_results(tmp_path: Path) -> None:
    fields = {"date": DateType(), "key": StringType(), "by": StringType()}
    schema = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(fields.items(), 1)))
    catalog, by_date = open_catalog("local", str(tmp_path)), PartitionField(1, 1000, IdentityTransform(), "date")
    catalog.create_namespace("marts")
    catalog.create_table("marts.clicks", schema, None, PartitionSpec(by_date), properties={"format-version": "1"})
    for turn, text in enumerate(["old", "new"], start=1):
        publish(tmp_path / text, tmp_path, "iceberg", text, turn=turn)
    assert iceberg_table(tmp_path).format_version == 1
    assert seen("iceberg", tmp_path) == {"2026-11-20": ["new"] * 3}


@pytest.mark.long
def test_equality_deletes_of_another_writer_are_a_sentence(tmp_path: Path) -> None:
    publish(tmp_path / "1", tmp_path, "iceberg", "old")
    partition = Record((DAY - dt.date(1970, 1, 1)).days)
    delete_equal(iceberg_table(tmp_path), pa.table({"key": ["k1"]}), partition)
    run = committed(tmp_path / "2", tmp_path, "iceberg", result_table("new"), turn=2)
    with pytest.raises(SpecError, match=r"deleted by position, but got equality deletes; rewrite .* by compaction"):
        staged(run)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "rounds"), [("iceberg", 2), ("delta", 2), ("rest", 2), ("hive", 1)])
def test_four_days_and_two_runs_of_one_day_are_published_at_once(tmp_path: Path, kind: str, rounds: int) -> None:
    """``python -m tests.lake --rounds 50`` is the long form."""
    with Races(tmp_path, kind) as races:
        for _ in range(rounds):
            races.round()
        races.require_linear()


@pytest.mark.long
def test_a_delta_table_that_another_process_makes_just_now_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a table has come since deltalake has looked, it fails or commits its columns again: often, of 16 at once."""
    found, together, first = tables.find_table, threading.Barrier(16), threading.local()

    def looked(target: OutputPart, version: int | None = None) -> DeltaTable | None:
        seen = found(target, version)
        if not hasattr(first, "look"):
            first.look = together.wait(60)
        return seen

    def versions(target: OutputPart) -> int:
        first.__dict__.clear()
        return int(ready_table(cast("TableFormat", tables), target, result_table("x").schema).version())

    monkeypatch.setattr(tables, "find_table", looked)
    for number in range(10):
        root = tmp_path / str(number)
        target = OutputPart.of(committed(root / "run", root, "delta", result_table("x")).job())
        with ThreadPoolExecutor(16) as pool:
            assert set(pool.map(versions, [target] * 16)) == {0}


@pytest.mark.long
@of_each_kind
def test_a_column_of_a_type_that_the_format_lacks_is_a_sentence(tmp_path: Path, kind: str) -> None:
    odd = result_table("new").append_column("took", pa.array([1, 2, 3], pa.duration("us")))
    run = committed(tmp_path / "run", tmp_path, kind, odd)
    with pytest.raises(
        SpecError, match=r"types? that (Iceberg|Delta) has, but .*; cast the result of the aggregate in map"
    ):
        staged(run)


@pytest.mark.long
@of_each_kind
def test_readers_see_one_version_whole_while_a_day_is_published_again_and_again(tmp_path: Path, kind: str) -> None:
    """``python -m tests.lake --reads 2500`` reads more often."""
    found = read_while_published(tmp_path, kind, reads=200)
    assert found.torn == 0
    assert found.versions > 1, "nothing was published while it was read"


def test_an_embedded_catalog_whose_database_was_removed_is_another_one(tmp_path: Path) -> None:
    open_catalog("local", str(tmp_path)).create_namespace("marts")
    (tmp_path / "catalog.db").unlink()
    assert open_catalog("local", str(tmp_path)).list_namespaces() == []
