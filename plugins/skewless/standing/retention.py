"""Which standing states are kept: those of the newest parts, and what runs that are still under way need."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skewless.document import Frozen
from skewless.documents.window import PartVersion
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.storage import Storage
from skewless.standing.pins import modified, pins
from skewless.standing.store import FINGERPRINT, STATES_STEP, StatesStore, names_in, version_path


class HeldPart(NamedTuple):
    """A part that has states.

    Attributes:
        fingerprint: the folder of the states.
        part: its name.
        versions: how many versions it has.
        newest: the number of the newest version.
        version: that version; None if it is damaged.
    """

    fingerprint: str
    part: str
    versions: int
    newest: int
    version: PartVersion | None


class StatesLimits(Frozen):
    """What is removed of the states of a job.

    Attributes:
        parts: states of so many of the newest parts are kept; None for all parts.
        grace: nothing younger is removed, nor what became superfluous in that time: somebody may be reading it.
        unused: states of a fingerprint to which nothing was added for so long are removed, if others were added to.
    """

    parts: int | None
    grace: dt.timedelta = dt.timedelta(days=7)
    unused: dt.timedelta = dt.timedelta(days=30)


class Doomed(NamedTuple):
    """What a prune of states removes: a version or a file, with the reason.

    Attributes:
        path: in the file system of the store.
        size_bytes: its length.
        reason: in words.
    """

    path: str
    size_bytes: int
    reason: str


def held_parts(location: str) -> list[HeldPart]:
    """All parts that a job has states of, by fingerprint and name.

    Args:
        location: the folder of the states of the job.
    """
    return [held for store in _stores(location) for held in _held(store)]


def _held(store: StatesStore) -> Iterator[HeldPart]:
    fingerprint = store.root.rpartition("/")[2]
    for part in store.parts():
        numbers = store.numbers(part)
        if numbers:
            try:
                version = store.version(part, numbers[-1])
            except (DocumentError, RunDirectoryError):
                version = None
            yield HeldPart(fingerprint, part, len(numbers), numbers[-1], version)


def doomed_states(location: str, now: dt.datetime, limits: StatesLimits) -> list[Doomed]:
    """What a prune removes of the states of a job, in this order: versions before the files that they name.

    A version or a pin that cannot be read names nothing that could be kept for it, and so keeps all files: nothing of
    its fingerprint is removed but old versions of other parts.

    Args:
        location: the folder of the states of the job.
        now: the moment that ages are counted to, with a time zone.
        limits: what is kept.
    """
    stores = list(_stores(location))
    written = {store.root: _last_written(store) for store in stores}
    latest = max(written.values(), default=now)
    return [
        one
        for store in stores
        for one in _doomed(
            store, now, limits, unused=written[store.root] < latest and now - written[store.root] > limits.unused
        )
    ]


def _doomed(store: StatesStore, now: dt.datetime, limits: StatesLimits, *, unused: bool) -> list[Doomed]:
    gone, readable = list[Doomed](), True
    try:
        kept_files, released = pins(store, now, limits.grace)
    except (DocumentError, RunDirectoryError):
        kept_files, released, readable = set(), [], False
    for path in released:
        full = f"{store.root}/{path}"
        gone.append(Doomed(full, int(store.fs.size(full)), "no run under way needs what it names"))
    kept_parts = set[str]() if unused else set(store.parts()[-limits.parts if limits.parts else 0 :])
    for part in store.parts():
        for number, why in _superfluous(store, part, now, limits, kept=part in kept_parts):
            path = version_path(part, number)
            if why:
                full = f"{store.root}/{path}"
                gone.append(Doomed(full, int(store.fs.size(full)), why))
                continue
            try:
                kept_files.update(file.path for file in store.version(part, number).states)
            except (DocumentError, RunDirectoryError):
                readable = False
    if not readable:
        return gone
    for full, about in store.fs.find(f"{store.root}/{STATES_STEP}", detail=True).items():
        path = str(full)[len(store.root) + 1 :]
        if _checked_by(path) not in kept_files and now - modified(store, path) > limits.grace:
            gone.append(Doomed(str(full), int(about["size"]), "no version names it"))
    return gone


def _checked_by(path: str) -> str:
    """The file that a file of Hadoop's checksums belongs to, ``.NAME.crc``; of any other file, itself."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path


def _superfluous(
    store: StatesStore, part: str, now: dt.datetime, limits: StatesLimits, *, kept: bool
) -> Iterator[tuple[int, str]]:
    """Each version of a part, with the reason why it is removed; empty if it stays."""
    numbers = store.numbers(part)
    ages = [now - modified(store, version_path(part, number)) for number in numbers]
    for at, number in enumerate(numbers):
        newest = at + 1 == len(numbers)
        # A version may have been chosen until the next one came.
        since = ages[at] if newest else ages[at + 1]
        why = "" if newest else f"version {numbers[at + 1]} came after it"
        why = why if kept else f"the states of {limits.parts or 'all'} newer parts, or of another fingerprint, are kept"
        yield number, why if since > limits.grace else ""


def remove_states(location: str, doomed: Sequence[Doomed], now: dt.datetime, limits: StatesLimits) -> None:
    """Remove what ``doomed_states`` has found, but no file that a run has pinned since.

    It is not an error if something is gone already.

    Args:
        location: as ``doomed_states`` was given it.
        doomed: what it has found.
        now: as it was given it.
        limits: as it was given them.
    """
    storage = Storage(location)
    states = [one for one in doomed if _is_states(one.path)]
    for one in (one for one in doomed if not _is_states(one.path)):
        _remove(storage, one.path)
    # A run that pins files from here on finds that their versions are gone: see ``skewless.standing.pins``.
    kept = {f"{store.root}/{path}" for store in _stores(location) for path in pins(store, now, limits.grace)[0]}
    for one in states:
        if _checked_by(one.path) not in kept:
            _remove(storage, one.path)


def _is_states(path: str) -> bool:
    return f"/{STATES_STEP}/attempts/" in path


def _remove(storage: Storage, path: str) -> None:
    if storage.fs.exists(path):
        storage.fs.rm(path)


def _stores(location: str) -> Iterator[StatesStore]:
    folder = Storage(location)
    for name in sorted(names_in(folder, "")):
        if folder.exists(f"{name}/{FINGERPRINT}"):
            yield StatesStore(folder.path(name))


def _last_written(store: StatesStore) -> dt.datetime:
    versions = [version_path(part, number) for part in store.parts() for number in store.numbers(part)[-1:]]
    return max(modified(store, path) for path in [FINGERPRINT, *versions])
