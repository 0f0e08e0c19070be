"""Where versions of a day lie while they are not published: their names, and what is kept of them."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from skewless.publication.places import BUILDING, Place, clear_drafts, kept_versions, left_drafts, past_grace, place_of
from skewless.publication.records import MANIFEST, Identity, VersionManifest
from tests.publication.days import NOW
from tests.unit import synthetic

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(synthetic.job([], output_path=str(tmp_path / "out")))


def slot(place: Place, name: str, turn: int = 0, of: str = "") -> Path:
    """A version in the place of a draft; with a turn, its manifest says so, and what it was named."""
    folder = place.drafts / name
    folder.mkdir(parents=True)
    if turn:
        by = Identity(job="0" * 64, run="r")
        manifest = VersionManifest(by=by, turn=turn, name=of or name, files=())
        (folder / MANIFEST).write_text(manifest.sealed(), encoding="utf-8")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_part_is_one_name_beside_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    job = synthetic.job([], output_path=str(tmp_path / "out"))
    spec = job.spec.model_copy(update={"schedule": job.spec.schedule.model_copy(update={"part": "hour-1"})})
    place = place_of(job.model_copy(update={"spec": spec, "hour": "07"}))
    assert place.target == tmp_path / "disk" / "out" / "date=2026-11-20" / "hour=07"
    assert place.beside == tmp_path / "disk" / ".out.skewless"
    assert place.day == "date=2026-11-20--hour=07"


@pytest.mark.parametrize(
    ("name", "turn", "of", "moved", "kept"),
    [
        ("9-ab", 9, "", True, False),  # a draft that was never published
        ("9-ab", 8, "8-cd", True, True),  # the version that was exchanged for it
        ("9-ab", 0, "", True, True),  # nobody can say what it is
        (f"9-ab{BUILDING}", 0, "", True, False),
        ("10-ab", 10, "", True, False),
        ("11-ab", 11, "", False, False),  # of a later turn
    ],
)
def test_drafts_of_this_turn_and_of_earlier_ones_are_moved_away(
    place: Place, name: str, turn: int, of: str, moved: bool, kept: bool
) -> None:
    slot(place, name, turn, of)
    clear_drafts(place, 10, NOW.astimezone(dt.timezone(9 * HOUR)))
    assert names(place.drafts) == ([] if moved else [name])
    assert [(one.folder.name.endswith(name), one.since) for one in kept_versions(place.beside)] == (
        [(True, NOW)] if kept else []
    )


def test_a_version_goes_when_its_grace_is_over_and_strange_names_never(place: Place) -> None:
    for age in (23, 24, 25):
        (place.kept / f"{NOW - age * HOUR:%Y%m%dT%H%M%SZ}-1-ab").mkdir(parents=True)
    (place.kept / "mine").mkdir()
    found = past_grace(place.beside, NOW, 24 * HOUR)
    assert sorted((NOW - one.since) // HOUR for one in found) == [24, 25]


def test_drafts_that_nobody_has_touched_are_left_over(place: Place) -> None:
    for name in ("1-ab", f"2-cd{BUILDING}", "mine"):
        slot(place, name)
    later = dt.datetime.fromtimestamp(os.lstat(place.drafts / "1-ab").st_ctime + 9, dt.UTC)
    assert [one.name for one in left_drafts(place.beside, later)] == ["1-ab", f"2-cd{BUILDING}"]
    assert left_drafts(place.beside, later - HOUR) == []
