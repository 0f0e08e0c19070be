"""Where the versions of a day are while they are not published: in a sibling of the output folder.

    /lake/marts/clicks/date=2026-11-20/                     what readers see: the published version, a real folder
    /lake/marts/.clicks.skewless/turns/                     the store of turns
    /lake/marts/.clicks.skewless/drafts/DAY/TURN-ID/        a version that is to be published
    /lake/marts/.clicks.skewless/drafts/DAY/TURN-ID.building/   while it is built
    /lake/marts/.clicks.skewless/kept/DAY/UNTIL-TURN-ID/    a version that was published until then

It is a sibling and no part of the output folder, as globs of DuckDB and polars read folders whose names begin with
a dot, too; and it is on the same file system, so that folders can be exchanged.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.errors import RunDirectoryError, SpecError
from skewless.run.folder import absolute_root
from skewless.run.publication.exchange import ASIDE, PROBE, make_folder, put_back
from skewless.run.publication.records import manifest_of, published_path
from skewless.spec.spec import JobSpec

BUILDING = ".building"
_SLOT = re.compile(rf"(\d{{1,18}})-[0-9a-f]+({re.escape(BUILDING)}|{re.escape(ASIDE)})?")
_STAMP = "%Y%m%dT%H%M%SZ"
_KEPT = re.compile(r"(\d{8}T\d{6}Z)-.+")


class Place(NamedTuple):
    """Where a day is published: the folder, the sibling of the output folder, and the day as one name below them."""

    target: Path
    beside: Path
    day: str

    @property
    def drafts(self) -> Path:
        """Where versions of the day are built."""
        return self.beside / "drafts" / self.day

    @property
    def kept(self) -> Path:
        """Where versions of the day are that were published before."""
        return self.beside / "kept" / self.day


class KeptVersion(NamedTuple):
    """A folder with a version of a day, and until when, in UTC, it was the published one."""

    folder: Path
    since: dt.datetime


def beside(output_path: str) -> Path:
    """The sibling of an output folder, beside what a link leads to; a ``RunDirectoryError`` on an object store."""
    if "://" in output_path:
        raise RunDirectoryError("output.path", "a path of a local or shared file system", repr(output_path))
    real = Path(os.path.realpath(output_path))
    return real.with_name(f".{real.name}.skewless")


def turns_folder(output_path: str) -> str:
    """The folder of the store that has the turns of an output folder's days."""
    return str(beside(output_path) / "turns")


def beside_output(spec: JobSpec, output_path: str, root: str) -> str:
    """The folder in which turns, nights and states of an output are kept, if the spec names no other one."""
    return beside_table(output_path, absolute_root(root)) if spec.output.is_table else str(beside(output_path))


def beside_table(output_path: str, root: str) -> str:
    """Where turns and states of a table's results are kept, below the data root: ``tables/NAME-DIGEST``."""
    name = re.split(r"[./]", output_path.rstrip("/"))[-1]
    return f"{root.rstrip('/')}/tables/{name}-{hashlib.sha256(output_path.encode()).hexdigest()[:8]}"


def place_of(job: Job) -> Place:
    """Where the result of a job is published; errors as of ``beside``."""
    sibling = beside(job.output_path)
    below = PurePosixPath(published_path(job)).relative_to(job.output_path)
    return Place(Path(os.path.realpath(job.output_path)) / below, sibling, "--".join(below.parts))


def make_beside(output_path: str) -> Path:
    """Make the sibling of an output folder; a ``SpecError`` if it is on another file system: a mount point has such."""
    sibling, output = beside(output_path), Path(os.path.realpath(output_path))
    make_folder(sibling)
    if output.exists() and output.stat().st_dev != sibling.stat().st_dev:
        raise SpecError(
            f"field output.path, {output}", "a folder on the file system of the one it lies in, where its versions "
            "are built", "a mount point", "publish into a folder below it",
        )  # fmt: skip
    return sibling


def clear_drafts(place: Place, turn: int, now: dt.datetime, but: Path | None = None) -> None:
    """Move away the drafts, all but one, of this turn and of earlier ones: their attempts were killed, or are late.

    An attempt without a draft cannot publish, so one that wakes late changes nothing. Where an attempt was killed
    after its exchange, the old version lies in the place of its draft, and is kept.
    """
    for slot in _slots(place.drafts):
        if _turn_of(slot) > turn or slot == but:
            continue
        if slot.name.endswith(ASIDE) and not place.target.exists():
            continue  # somebody is between two renames, or was killed there: see ``repair``
        keep(place, slot, now)


def keep(place: Place, slot: Path, now: dt.datetime) -> None:
    """Move what lies in a draft's place to the kept versions, and remove it there if it was never published.

    It is moved before it is read, as somebody may exchange it until it is moved.
    """
    make_folder(place.kept)
    moved = place.kept / f"{now.astimezone(dt.UTC):{_STAMP}}-{slot.name}"
    try:
        slot.rename(moved)
    except FileNotFoundError:
        return  # it was exchanged or moved by somebody else
    manifest = manifest_of(moved)
    if slot.name.endswith(BUILDING) or (manifest is not None and manifest.name == slot.name):
        remove(moved)


def repair(place: Place) -> None:
    """Put the old version of a day back whose publisher was killed between two renames."""
    if place.target.exists():
        return
    asides = [slot for slot in _slots(place.drafts) if slot.name.endswith(ASIDE)]
    for aside in sorted(asides, key=_turn_in, reverse=True)[:1]:
        put_back(aside, place.target)


def kept_versions(sibling: Path) -> list[KeptVersion]:
    """All versions of all days that were published before."""
    found = []
    for day in _folders(sibling / "kept"):
        for folder in _folders(day):
            stamp = _KEPT.fullmatch(folder.name)
            if stamp is not None:
                since = dt.datetime.strptime(stamp[1], _STAMP).replace(tzinfo=dt.UTC)
                found.append(KeptVersion(folder, since))
    return found


def past_grace(sibling: Path, now: dt.datetime, grace: dt.timedelta) -> list[KeptVersion]:
    """The kept versions whose time of grace is over."""
    return [one for one in kept_versions(sibling) if now - one.since >= grace]


def left_drafts(sibling: Path, before: dt.datetime) -> list[Path]:
    """Drafts, and probes of the file system, that killed attempts have left: they have not changed since a moment.

    A version that an attempt set aside between two renames is not among them: it may be all that is left of its day.
    """
    slots = [slot for day in _folders(sibling / "drafts") for slot in _slots(day) if not slot.name.endswith(ASIDE)]
    probes = [one for one in _folders(sibling) if one.name.startswith(PROBE)]
    return [one for one in (*slots, *probes) if _changed_before(one, before)]


def remove(folder: Path) -> None:
    """Remove a version that nobody reads any more; what cannot be removed now goes another time.

    It is renamed first, so that nobody takes a half of it for a version, whenever this ends.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    if not folder.name.endswith(BUILDING):
        with suppress(OSError):
            folder = folder.rename(folder.with_name(folder.name + BUILDING))
    shutil.rmtree(folder, ignore_errors=True)


def _changed_before(slot: Path, moment: dt.datetime) -> bool:
    try:
        return slot.lstat().st_ctime < moment.timestamp()
    except FileNotFoundError:  # a publication, or another prune, has moved it just now
        return False


def _turn_in(folder: Path) -> int:
    manifest = manifest_of(folder)
    return manifest.turn if manifest is not None else 0


def _turn_of(slot: Path) -> int:
    return int(slot.name.partition("-")[0])


def _slots(drafts: Path) -> Iterator[Path]:
    return (one for one in _folders(drafts) if _SLOT.fullmatch(one.name))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # it went just now, or is somebody else's file
        return []
