"""Going back to the version of a day before the published one."""

import datetime as dt
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from skewless.errors import SpecError
from skewless_lake.delta_tables import publications
from skewless_lake.publication import publish_run, roll_back
from tests.lake.outputs import DAY, KINDS, NOW, part_of, publish, ready, seen

of_each_kind = pytest.mark.parametrize("kind", KINDS)


@of_each_kind
def test_a_day_goes_back_to_its_version_before_and_other_days_stay(tmp_path: Path, kind: str) -> None:
    other = DAY + dt.timedelta(days=1)
    for turn, (text, day) in enumerate([("old", DAY), ("new", DAY), ("other", other)], start=1):
        publish(tmp_path / f"{turn}", tmp_path, kind, text, turn=turn, day=day)
    about = roll_back(part_of(kind, tmp_path), NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3, "2026-11-21": ["other"] * 3}
    assert about["run"] == str(tmp_path / "1")
    roll_back(part_of(kind, tmp_path), NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["new"] * 3, "2026-11-21": ["other"] * 3}


@pytest.mark.long
def test_a_day_goes_back_over_a_commit_that_says_nothing_of_itself(tmp_path: Path) -> None:
    """``DeltaTable.history`` leaves it out, and so gives the publication before it the number of this empty day."""
    publish(tmp_path / "1", tmp_path, "delta", "old")
    folder = tmp_path / "marts" / "clicks"
    DeltaTable(str(folder)).delete("date = '2026-11-20'")
    silent = folder / "_delta_log" / f"{2:020d}.json"
    lines = silent.read_text().splitlines()
    silent.write_text("".join(f"{line}\n" for line in lines if "commitInfo" not in line))
    publish(tmp_path / "2", tmp_path, "delta", "new", turn=2)
    roll_back(part_of("delta", tmp_path), NOW)
    assert seen("delta", tmp_path) == {"2026-11-20": ["old"] * 3}


@pytest.mark.long
def test_versions_have_their_own_numbers_in_a_table_that_was_opened_before_the_newest_one(tmp_path: Path) -> None:
    publish(tmp_path / "1", tmp_path, "delta", "old")
    opened = DeltaTable(str(tmp_path / "marts" / "clicks"))
    publish(tmp_path / "2", tmp_path, "delta", "new", turn=2)
    assert [(version, about["turn"]) for version, about in publications(opened, part_of("delta", tmp_path))] == [
        (1, "1")
    ]


@pytest.mark.long
@of_each_kind
def test_an_older_run_does_not_undo_it(tmp_path: Path, kind: str) -> None:
    for turn, text in enumerate(["old", "new"], start=1):
        publish(tmp_path / f"{turn}", tmp_path, kind, text, turn=turn)
    late = ready(tmp_path / "late", tmp_path, kind, "late", turn=2)
    roll_back(part_of(kind, tmp_path), NOW)
    assert publish_run(late, NOW).superseded is not None
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3}


@pytest.mark.long
@of_each_kind
def test_an_older_run_does_not_undo_it_though_the_store_of_turns_was_lost(tmp_path: Path, kind: str) -> None:
    for turn, text in ((5, "old"), (7, "new")):
        publish(tmp_path / f"{turn}", tmp_path, kind, text, turn=turn)
    late = ready(tmp_path / "late", tmp_path, kind, "late", turn=6)
    shutil.rmtree(tmp_path / "tables")
    roll_back(part_of(kind, tmp_path), NOW)
    shutil.rmtree(tmp_path / "tables")
    assert publish_run(late, NOW).superseded is not None
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3}


@of_each_kind
def test_a_day_that_was_published_once_has_nothing_to_go_back_to(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "old")
    with pytest.raises(SpecError, match=r"part 2026-11-20: expected two publications of it .*, but got 1; "):
        roll_back(part_of(kind, tmp_path), NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3}
