"""Where the versions of a day are while they are not published: in a sibling of the output folder; and the exchange.

    /lake/marts/clicks/date=2026-11-20/                     what readers see: the published version, a real folder
    /lake/marts/.clicks.skewless/turns/                     the store of turns
    /lake/marts/.clicks.skewless/drafts/DAY/TURN-ID/        a version that is to be published
    /lake/marts/.clicks.skewless/drafts/DAY/TURN-ID.building/   while it is built
    /lake/marts/.clicks.skewless/kept/DAY/UNTIL-TURN-ID/    a version that was published until then

It is a sibling and no part of the output folder, as globs of DuckDB and polars read folders whose names begin with
a dot, too; and it is on the same file system, so that folders can be exchanged.
"""

import ctypes
import datetime as dt
import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.errors import RunDirectoryError, SpecError
from skewless.publication.records import manifest_of, published_path
from skewless.run.folder import absolute_root, is_object, make_folder
from skewless.spec.spec import JobSpec

BUILDING = ".building"
#: How the name of a folder begins in which the file system is tried.
PROBE = "probe-"
_SLOT = re.compile(rf"(\d{{1,18}})-[0-9a-f]+({re.escape(BUILDING)})?")
_STAMP = "%Y%m%dT%H%M%SZ"
_KEPT = re.compile(r"(\d{8}T\d{6}Z)-.+")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_SOMETHING_THERE = frozenset({errno.EEXIST, errno.ENOTEMPTY})


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
    if is_object(output_path):
        raise RunDirectoryError("output.path", "a path of a local or shared file system", repr(output_path))
    real = Path(os.path.realpath(output_path))
    return real.with_name(f".{real.name}.skewless")


def beside_output(spec: JobSpec, output_path: str, root: str) -> str:
    """The folder in which turns, nights and states of an output are kept, if the spec names no other one."""
    return beside_table(output_path, absolute_root(root)) if spec.output.is_table else beside_folder(output_path)


def beside_folder(output_path: str) -> str:
    """The sibling of an output folder, or of an output's prefix in a bucket.

    >>> beside_folder("s3://lake/marts/clicks")
    's3://lake/marts/.clicks.skewless'
    """
    if not is_object(output_path):
        return str(beside(output_path))
    above, _, name = output_path.rstrip("/").rpartition("/")
    return f"{above}/.{name}.skewless"


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


def exchange(draft: Path, target: Path) -> None:
    """Put ``draft`` in the place of ``target``; what was there, if anything, ends up at ``draft``.

    Raises:
        FileNotFoundError: the draft is gone: somebody has moved it away. The target is as it was.
        SpecError: folders cannot be exchanged here.
    """
    if not target.exists():
        try:
            draft.rename(target)
        except OSError as err:
            if err.errno not in _SOMETHING_THERE:  # another run has come in between
                raise
        else:
            return
    _exchange(draft, target, target)


def _exchange(draft: Path, target: Path, where: Path) -> None:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        if renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _NO_EXCHANGE:
            raise OSError(code, os.strerror(code), str(target))
    raise SpecError(
        f"field output.path, {where}", "a file system that can exchange two folders at once (renameat2)",
        "one that cannot", "choose another one, or publish into a table",
    )  # fmt: skip


def require_exchange(folder: Path) -> None:
    """Try in a folder of ours whether its file system can exchange folders; a ``SpecError`` if it cannot."""
    place = folder / f"{PROBE}{secrets.token_hex(8)}"
    names = [place / "a", place / "b"]
    for name in names:
        name.mkdir(parents=True)
    try:
        _exchange(names[0], names[1], folder)
    finally:
        for name in (*names, place):
            name.rmdir()


def clear_drafts(place: Place, turn: int, now: dt.datetime, but: Path | None = None) -> None:
    """Move away the drafts, all but one, of this turn and of earlier ones: their attempts were killed, or are late.

    An attempt without a draft cannot publish, so one that wakes late changes nothing. Where an attempt was killed
    after its exchange, the old version lies in the place of its draft, and is kept.
    """
    for slot in _slots(place.drafts):
        if int(slot.name.partition("-")[0]) <= turn and slot != but:
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


def kept_versions(sibling: Path) -> list[KeptVersion]:
    """All versions of all days that were published before."""
    versions = []
    for day in _folders(sibling / "kept"):
        for folder in _folders(day):
            stamp = _KEPT.fullmatch(folder.name)
            if stamp is not None:
                since = dt.datetime.strptime(stamp[1], _STAMP).replace(tzinfo=dt.UTC)
                versions.append(KeptVersion(folder, since))
    return versions


def past_grace(sibling: Path, now: dt.datetime, grace: dt.timedelta) -> list[KeptVersion]:
    """The kept versions whose time of grace is over."""
    return [version for version in kept_versions(sibling) if now - version.since >= grace]


def left_drafts(sibling: Path, before: dt.datetime) -> list[Path]:
    """Drafts, and probes of the file system, that killed attempts have left: they have not changed since a moment."""
    slots = [slot for day in _folders(sibling / "drafts") for slot in _slots(day)]
    probes = [folder for folder in _folders(sibling) if folder.name.startswith(PROBE)]
    return [folder for folder in (*slots, *probes) if _changed_before(folder, before)]


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


def _slots(drafts: Path) -> Iterator[Path]:
    return (folder for folder in _folders(drafts) if _SLOT.fullmatch(folder.name))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # it went just now, or is somebody else's file
        return []
