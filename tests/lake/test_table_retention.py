"""What prune keeps of runs that have published in a table: the table says whose result it shows."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from skewless.documents.job import Job
from skewless.errors import UnreachableError
from skewless.run.directory import RunDirectory
from skewless.run.publication import Identity
from skewless.run.retention import Limits, fates
from skewless_lake.catalogs import open_catalog
from skewless_lake.publication import publish_run, publishing_table, shown_by_table
from skewless_lake.rollback import roll_back
from skewless_lake.staged import OutputPart
from tests.lake.outputs import DAY, KINDS, NOW, TABLE, ready

of_each_kind = pytest.mark.parametrize("kind", KINDS)


def actions(root: Path, asked: Callable[[Job], Mapping[str, Identity]] | None = shown_by_table) -> dict[str, str]:
    """What is done with each run two months later."""
    later = dt.datetime.now(tz=dt.UTC) + dt.timedelta(days=60)
    return {Path(one.location).name: one.action for one in fates(str(root / "runs"), later, Limits(), asked)}


@pytest.fixture
def root(tmp_path: Path, kind: str) -> Path:
    """Two runs of one day, and one of each of the two days after it, which are kept for warm starts."""
    for name, turn, days in [("first", 1, 0), ("second", 2, 0), ("third", 1, 1), ("fourth", 1, 2)]:
        day = DAY + dt.timedelta(days=days)
        publish_run(ready(tmp_path / "runs" / "clicks" / name, tmp_path, kind, name, turn=turn, day=day), NOW)
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
    for step in publishing_table(run, NOW):
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
