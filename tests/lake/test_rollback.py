"""Going back to the version of a day before the published one."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from skewless.errors import SpecError
from skewless.spec.part import Part
from skewless_lake.delta.publishing import publications
from skewless_lake.publication import publish_run, roll_back
from skewless_lake.staged import OutputPart
from tests.lake.outputs import DAY, KINDS, NOW, output_of, ready, seen

of_each_kind = pytest.mark.parametrize("kind", KINDS)


def target_of(kind: str, root: Path) -> OutputPart:
    output, path = output_of(kind, root)
    return OutputPart(output, path, str(root), Part(DAY))


@of_each_kind
def test_a_day_goes_back_to_its_version_before_and_other_days_stay(tmp_path: Path, kind: str) -> None:
    other = DAY + dt.timedelta(days=1)
    for turn, (text, day) in enumerate([("old", DAY), ("new", DAY), ("other", other)], start=1):
        publish_run(ready(tmp_path / f"{turn}", tmp_path, kind, text, turn=turn, day=day), NOW)
    about = roll_back(target_of(kind, tmp_path), NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3, "2026-11-21": ["other"] * 3}
    assert about["run"] == str(tmp_path / "1")
    roll_back(target_of(kind, tmp_path), NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["new"] * 3, "2026-11-21": ["other"] * 3}


def test_a_day_goes_back_over_a_commit_that_says_nothing_of_itself(tmp_path: Path) -> None:
    """``DeltaTable.history`` leaves it out, and so gives the publication before it the number of this empty day."""
    publish_run(ready(tmp_path / "1", tmp_path, "delta", "old"), NOW)
    folder = tmp_path / "marts" / "clicks"
    DeltaTable(str(folder)).delete("date = '2026-11-20'")
    silent = folder / "_delta_log" / f"{2:020d}.json"
    lines = silent.read_text().splitlines()
    silent.write_text("".join(f"{line}\n" for line in lines if "commitInfo" not in line))
    publish_run(ready(tmp_path / "2", tmp_path, "delta", "new", turn=2), NOW)
    roll_back(target_of("delta", tmp_path), NOW)
    assert seen("delta", tmp_path) == {"2026-11-20": ["old"] * 3}


def test_versions_have_their_own_numbers_in_a_table_that_was_opened_before_the_newest_one(tmp_path: Path) -> None:
    publish_run(ready(tmp_path / "1", tmp_path, "delta", "old"), NOW)
    opened = DeltaTable(str(tmp_path / "marts" / "clicks"))
    publish_run(ready(tmp_path / "2", tmp_path, "delta", "new", turn=2), NOW)
    assert [(version, about["turn"]) for version, about in publications(opened, target_of("delta", tmp_path))] == [
        (1, "1")
    ]


@of_each_kind
def test_an_older_run_does_not_undo_it(tmp_path: Path, kind: str) -> None:
    for turn, text in enumerate(["old", "new"], start=1):
        publish_run(ready(tmp_path / f"{turn}", tmp_path, kind, text, turn=turn), NOW)
    late = ready(tmp_path / "late", tmp_path, kind, "late", turn=2)
    roll_back(target_of(kind, tmp_path), NOW)
    assert publish_run(late, NOW).superseded is not None
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3}


@of_each_kind
def test_an_older_run_does_not_undo_it_though_the_store_of_turns_was_lost(tmp_path: Path, kind: str) -> None:
    for turn, text in ((5, "old"), (7, "new")):
        publish_run(ready(tmp_path / f"{turn}", tmp_path, kind, text, turn=turn), NOW)
    late = ready(tmp_path / "late", tmp_path, kind, "late", turn=6)
    shutil.rmtree(tmp_path / "tables")
    roll_back(target_of(kind, tmp_path), NOW)
    shutil.rmtree(tmp_path / "tables")
    assert publish_run(late, NOW).superseded is not None
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3}


@of_each_kind
def test_a_day_that_was_published_once_has_nothing_to_go_back_to(tmp_path: Path, kind: str) -> None:
    publish_run(ready(tmp_path / "1", tmp_path, kind, "old"), NOW)
    with pytest.raises(SpecError, match=r"part 2026-11-20: expected two publications of it .*, but got 1; "):
        roll_back(target_of(kind, tmp_path), NOW)
    assert seen(kind, tmp_path) == {"2026-11-20": ["old"] * 3}
