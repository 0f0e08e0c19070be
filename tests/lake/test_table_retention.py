"""What prune keeps of runs that have published in a table, and which files of theirs it removes from the table."""

import datetime as dt
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from skewless.documents.job import Job
from skewless.errors import UnreachableError
from skewless.publication.records import PUBLISHED, Identity, record_of
from skewless.publication.retention import Limits, fates
from skewless.run.directory import RunDirectory
from skewless_lake.catalogs import open_catalog
from skewless_lake.pruning import prune_each
from skewless_lake.publication import publish_run, publishing_run, roll_back, shown_by_table
from skewless_lake.staged_files import OutputPart
from skewless_lake.staging import ResultFile, stage_result
from tests.lake.outputs import (
    DAY,
    KINDS,
    NOW,
    TABLE,
    committed,
    judge,
    publish,
    read,
    ready,
    result_table,
    seen,
    staged,
)

pytestmark = pytest.mark.long
of_each_kind = pytest.mark.parametrize("kind", KINDS)


def actions(root: Path, asked: Callable[[Job], Mapping[str, Identity]] | None = shown_by_table) -> dict[str, str]:
    later = dt.datetime.now(tz=dt.UTC) + dt.timedelta(days=60)
    return {Path(one.location).name: one.action for one in fates(str(root / "runs"), later, Limits(), asked)}


@pytest.fixture
def root(tmp_path: Path, kind: str) -> Path:
    """Two runs of one day, and one of each of the two days after it, which are kept for warm starts."""
    for name, turn, days in [("first", 1, 0), ("second", 2, 0), ("third", 1, 1), ("fourth", 1, 2)]:
        day = DAY + dt.timedelta(days=days)
        publish(tmp_path / "runs" / "clicks" / name, tmp_path, kind, name, turn=turn, day=day)
    return tmp_path


@of_each_kind
def test_a_run_goes_whose_day_another_run_has_published_since(root: Path) -> None:
    assert actions(root) == {"first": "remove", "second": "thin", "third": "keep", "fourth": "keep"}


@of_each_kind
def test_after_a_rollback_the_run_before_is_the_one_that_is_shown(root: Path) -> None:
    roll_back(OutputPart.of(RunDirectory(str(root / "runs" / "clicks" / "first")).job()), NOW)
    assert actions(root) == {"first": "thin", "second": "remove", "third": "keep", "fourth": "keep"}


@of_each_kind
def test_a_run_that_was_killed_behind_its_commit_is_the_one_that_is_shown(root: Path, kind: str) -> None:
    run = ready(root / "runs" / "clicks" / "killed", root, kind, "killed", turn=3)
    for step in publishing_run(run, NOW):
        if step == "committed":
            break
    assert {name: done for name, done in actions(root).items() if done != "keep"} == {
        "first": "remove", "second": "remove", "killed": "thin",
    }  # fmt: skip


@of_each_kind
def test_where_the_table_cannot_be_asked_all_that_have_published_stay(root: Path) -> None:
    def away(job: Job) -> Mapping[str, Identity]:
        raise UnreachableError.saying(job.output_path, "it is away", "try again later")

    everything = {"first": "thin", "second": "thin", "third": "keep", "fourth": "keep"}
    assert actions(root, away) == everything
    assert actions(root, None) == everything


@of_each_kind
def test_a_table_that_was_made_anew_knows_no_run_and_none_goes(root: Path, kind: str) -> None:
    if kind == "delta":
        shutil.rmtree(root / "marts")
    else:
        open_catalog("local", str(root)).drop_table(TABLE.partition(".")[2])
    assert actions(root) == {"first": "thin", "second": "thin", "third": "keep", "fourth": "keep"}


def _table(root: Path) -> Table:
    return open_catalog("local", str(root)).load_table(TABLE.partition(".")[2])


def data_files(root: Path) -> set[Path]:
    return set(root.glob("warehouse/**/*.parquet")) | set(root.glob("marts/clicks/date=*/*.parquet"))


def prune(root: Path, *, dry_run: bool = False) -> list[str]:
    later = dt.datetime.now(tz=dt.UTC) + dt.timedelta(days=60)
    return [fate.sentence for fate in prune_each(str(root / "runs"), later, Limits(), dry_run=dry_run)]


@of_each_kind
def test_files_of_an_attempt_that_was_killed_go_with_the_material_of_its_run(root: Path, kind: str) -> None:
    run = committed(root / "runs" / "clicks" / "killed", root, kind, result_table("killed"), turn=3)
    columns = pa.schema([("key", pa.string()), ("by", pa.string())])

    def killed() -> Iterator[pa.RecordBatch]:
        raise KeyboardInterrupt

    before = data_files(root)
    good = ResultFile(2, lambda: iter(result_table("killed", 2).to_batches()))
    with pytest.raises(KeyboardInterrupt):
        stage_result(run, columns, [good, ResultFile(1, killed)], OutputPart.of(run.job()))
    torn = data_files(root) - before
    assert torn, "the first file is there, and nothing names it"
    publish_run(judge(run), NOW)
    rows = read(kind, root).num_rows
    assert any(f"; also {len(torn)} files in " in said for said in prune(root, dry_run=True) if "/killed" in said)
    assert torn <= data_files(root)
    prune(root)
    assert not torn & data_files(root)
    assert read(kind, root).num_rows == rows


@of_each_kind
def test_files_of_a_run_that_failed_its_audit_go_with_it_and_others_stay(root: Path, kind: str) -> None:
    before = data_files(root)
    bad = committed(root / "runs" / "clicks" / "bad", root, kind, result_table("bad"), turn=3)
    staged(bad)
    judge(bad, success=False)
    stranger = next(iter(before)).with_name("of-another-writer.parquet")
    stranger.write_bytes(b"")
    seen_before = read(kind, root)
    assert prune(root)
    assert data_files(root) == before | {stranger}
    assert read(kind, root).equals(seen_before)
    assert not bad.exists("job.json")


@of_each_kind
def test_a_day_that_was_replaced_can_be_gone_back_to_after_a_prune(root: Path, kind: str) -> None:
    target = OutputPart.of(RunDirectory(str(root / "runs" / "clicks" / "first")).job())
    prune(root)
    assert not (root / "runs" / "clicks" / "first").exists()
    roll_back(target, NOW)
    assert seen(kind, root)["2026-11-20"] == ["first"] * 3


@of_each_kind
def test_a_run_whose_record_was_lost_keeps_what_its_table_names(root: Path, kind: str) -> None:
    (root / "runs" / "clicks" / "first" / PUBLISHED).unlink()
    (root / "runs" / "clicks" / "second" / PUBLISHED).unlink()
    before = data_files(root)
    prune(root)
    assert data_files(root) == before
    assert seen(kind, root)["2026-11-20"] == ["second"] * 3


@pytest.mark.parametrize("kind", ["iceberg"])
def test_what_was_published_once_is_left_to_the_maintenance_of_the_catalog(root: Path) -> None:
    first, table = RunDirectory(str(root / "runs" / "clicks" / "first")), _table(root)
    record = record_of(first)
    assert record is not None
    assert record.snapshot is not None
    table.maintenance.expire_snapshots().by_ids([record.snapshot]).commit()
    before = data_files(root)
    prune(root)
    assert data_files(root) == before


@of_each_kind
def test_where_the_table_is_away_a_run_and_its_files_stay_until_another_time(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OSError("the store is away")

    bad = committed(root / "runs" / "clicks" / "bad", root, kind, result_table("bad"), turn=3)
    staged(bad)
    judge(bad, success=False)
    with monkeypatch.context() as patch:
        patch.setattr(f"skewless_lake.{kind}.{kind}_tables.find_table", away)
        said = [one for one in prune(root) if "/bad:" in one]
    assert [one.startswith("keep ") and "the store is away" in one for one in said] == [True]
    assert bad.exists("job.json")
    prune(root)
    assert not bad.exists("job.json")
