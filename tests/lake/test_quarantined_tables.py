"""Keys in quarantine beside a table: what the newest publication of a day names, whoever was killed between commits."""

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from skewless.errors import LostRaceError, RunDirectoryError, SpecError
from skewless.publication.records import record_of
from skewless_lake.catalogs import open_catalog
from skewless_lake.formats import table_format
from skewless_lake.pruning import left_files, remove_left
from skewless_lake.publication import HELD_IN, publish_run, publishing_run, roll_back
from skewless_lake.staged_files import staged_parts
from tests.lake.outputs import DAY, KINDS, NOW, TABLE, apart, part_of, publish, seen

of_each_kind = pytest.mark.parametrize("kind", KINDS)
Seen = tuple[list[str], list[str]]
#: Who has made the rows of the day, and those in quarantine: of a run with a key there, and of one without.
ONE: Seen = (["one"] * 2, ["one"])
TWO: Seen = (["two"] * 2, ["two"])


def held(kind: str, root: Path, number: int | None = None) -> list[str]:
    """Who has made the rows of the table beside, as it is now, or in a snapshot or version."""
    if kind == "delta":
        rows = DeltaTable(f"{root}/marts/clicks_quarantine", version=number).to_pyarrow_table().to_pylist()
    else:
        table = open_catalog("local", str(root)).load_table(f"{TABLE.partition('.')[2]}_quarantine")
        rows = table.scan(snapshot_id=number).to_arrow().to_pylist()
    assert all(row["quarantine_reason"] == f"quarantine_reason of {row['by']}" for row in rows)
    return [row["by"] for row in rows if row["date"] == DAY]


def read(kind: str, root: Path) -> Seen:
    """What a reader sees who takes what the newest publication of the day names."""
    target = part_of(kind, root)
    tables = table_format(target.output)
    named = (about for _, about in tables.publications(tables.find_table(target), target))
    about = next(one for one in named if one["part"] == target.part.name)
    rows = seen(kind, root)[str(DAY)]
    if HELD_IN not in about:
        return rows, []
    beside = held(kind, root, int(about[HELD_IN]))
    assert about["quarantine-table"].endswith("clicks_quarantine")
    assert int(about["quarantine-rows"]) == len(beside)
    return rows, beside


_PUBLISH = """
import os, signal, sys
from skewless.run.directory import RunDirectory
from skewless_lake.publication import publishing_run
from tests.lake.outputs import NOW
for number, step in enumerate(publishing_run(RunDirectory(sys.argv[1]), NOW), start=1):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@of_each_kind
@pytest.mark.parametrize("step", [2, *(pytest.param(one, marks=pytest.mark.long) for one in (1, 3, 4, 5, 6))])
def test_a_publisher_that_is_killed_shows_both_or_neither_and_both_when_it_is_called_again(
    tmp_path: Path, kind: str, step: int
) -> None:
    publish_run(apart(tmp_path / "1", tmp_path, kind, "one"), NOW)
    run = apart(tmp_path / "2", tmp_path, kind, "two", turn=2)
    command = [sys.executable, "-c", _PUBLISH, str(run), str(step)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert held(kind, tmp_path) == (["one"] if step < 2 else ["two"])
    assert read(kind, tmp_path) == (ONE if step < 4 else TWO)
    record = publish_run(run, NOW)
    assert read(kind, tmp_path) == TWO
    assert held(kind, tmp_path) == ["two"]
    assert (record.keys, record.quarantined) == (2, 1)
    assert publish_run(run, NOW) == record == record_of(run)


@of_each_kind
def test_the_next_run_of_the_day_replaces_what_a_killed_one_has_left_and_an_older_one_never_does(
    tmp_path: Path, kind: str
) -> None:
    killed = apart(tmp_path / "1", tmp_path, kind, "one")
    list(itertools.islice(publishing_run(killed, NOW), 2))
    assert held(kind, tmp_path) == ["one"]
    older = apart(tmp_path / "older", tmp_path, kind, "older", turn=2)
    later = apart(tmp_path / "3", tmp_path, kind, "two", 0, turn=3)
    steps = publishing_run(later, NOW)
    list(itertools.islice(steps, 2))
    assert held(kind, tmp_path) == [], "it has none, and says so"
    with pytest.raises(LostRaceError, match=r"turn 3 of .*/3, which has not published yet"):
        publish_run(older, NOW)
    list(steps)
    assert read(kind, tmp_path) == (["two"] * 3, [])
    assert publish_run(older, NOW).superseded is not None
    assert (held(kind, tmp_path), read(kind, tmp_path)) == ([], (["two"] * 3, []))


@of_each_kind
def test_a_day_goes_back_with_its_keys_in_quarantine(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "0", tmp_path, kind, "none")
    for turn, text in enumerate(["one", "two"], start=2):
        publish_run(apart(tmp_path / text, tmp_path, kind, text, turn=turn), NOW)
    for expected in (ONE, TWO):
        roll_back(part_of(kind, tmp_path), NOW)
        assert (read(kind, tmp_path), held(kind, tmp_path)) == (expected, expected[1])


@of_each_kind
def test_a_day_does_not_go_back_behind_a_run_that_is_publishing_it(tmp_path: Path, kind: str) -> None:
    for turn, text in enumerate(["one", "two"], start=1):
        publish_run(apart(tmp_path / text, tmp_path, kind, text, turn=turn), NOW)
    steps = publishing_run(apart(tmp_path / "later", tmp_path, kind, "later", turn=9), NOW)
    list(itertools.islice(steps, 2))
    with pytest.raises(LostRaceError, match=r"to be the last one, but got turn 9; wait until that run has published"):
        roll_back(part_of(kind, tmp_path), NOW)
    assert (read(kind, tmp_path), held(kind, tmp_path)) == (TWO, ["later"])
    list(steps)
    assert held(kind, tmp_path) == read(kind, tmp_path)[1] == ["later"]


@pytest.mark.long
@of_each_kind
def test_a_day_goes_back_to_a_result_of_which_nothing_was_left_out(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "none")
    publish_run(apart(tmp_path / "2", tmp_path, kind, "two", turn=2), NOW)
    roll_back(part_of(kind, tmp_path), NOW)
    assert (read(kind, tmp_path), held(kind, tmp_path)) == ((["none"] * 3, []), [])
    roll_back(part_of(kind, tmp_path), NOW)
    assert (read(kind, tmp_path), held(kind, tmp_path)) == (TWO, ["two"])
    if kind == "iceberg":
        table = open_catalog("local", str(tmp_path)).load_table(f"{TABLE.partition('.')[2]}_quarantine")
        gone = [one.snapshot_id for one in table.snapshots() if one != table.current_snapshot()]
        table.maintenance.expire_snapshots().by_ids(gone).commit()
        publish_run(apart(tmp_path / "3", tmp_path, kind, "three", turn=9), NOW)
        table.refresh().maintenance.expire_snapshots().by_ids([table.snapshots()[0].snapshot_id]).commit()
        with pytest.raises(SpecError, match="expected its keys in quarantine, of snapshot"):
            roll_back(part_of(kind, tmp_path), NOW)


@of_each_kind
def test_keys_that_are_neither_published_nor_in_quarantine_keep_a_day_back(tmp_path: Path, kind: str) -> None:
    run = apart(tmp_path / "1", tmp_path, kind, "one", lost=1)
    with pytest.raises(RunDirectoryError, match="expected 3 rows, as the ledger has them, but got 1 and 1"):
        publish_run(run, NOW)
    assert seen(kind, tmp_path) == {}
    assert held(kind, tmp_path) == []


@of_each_kind
def test_a_prune_removes_what_a_run_has_left_in_either_table(tmp_path: Path, kind: str) -> None:
    def files() -> set[Path]:
        return {*tmp_path.glob("warehouse/**/*.parquet"), *tmp_path.glob("marts/*/date=*/*.parquet")}

    first = apart(tmp_path / "1", tmp_path, kind, "one", turn=2)
    publish_run(first, NOW)
    first_files = [file.path for _, one in staged_parts(first) for file in one.files]
    late = apart(tmp_path / "2", tmp_path, kind, "late")
    assert publish_run(late, NOW).superseded is not None
    left = {run: left_files(run) for run in (first, late)}
    assert [[len(one.paths) for one in of_run] for of_run in left.values()] == [[0, 0], [1, 1]]
    for one in itertools.chain(*left.values()):
        remove_left(one)
    assert len(files()) == 2
    assert read(kind, tmp_path) == ONE
    # A rollback needs them, though the day was published again.
    publish_run(apart(tmp_path / "3", tmp_path, kind, "two", turn=3), NOW)
    assert not {*first_files} & {path for one in left_files(first) for path in one.paths}
