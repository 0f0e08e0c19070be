"""Which standing states are kept: those of the newest parts, and what runs that are still under way need.

Each run says before it begins which files it needs, and a prune looks again. A run writes its pin first, and then looks
whether the versions that it has chosen are still there. A prune removes versions first, and then reads the pins, and
then removes files. So whichever comes first: the run finds that a version is gone, and chooses anew; or the prune finds
the pin, and leaves the files.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from skewless.document import Document, Frozen
from skewless.documents.window import JobWindow, PartVersion, WindowPart
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.directory import RESULT_STEP, RunDirectory, commit_path
from skewless.run.storage import Storage
from skewless.standing.states_store import (
    DAMAGED,
    FINGERPRINT,
    STATES_STEP,
    MergedPart,
    MergedParts,
    StatesStore,
    merge_path,
    names_in,
    states_checksum,
    version_path,
)

_PINS = "pins"


class Pin(Document):
    """Files below the store that a run needs, from before it begins until its result is committed."""

    run: str
    files: tuple[str, ...]


def pin(window: JobWindow, run: RunDirectory) -> bool:
    """Keep the states that a run has chosen from being removed; false if some are gone: the run has to choose anew."""
    store = StatesStore(window.store)
    based = [part for part in window.parts if part.base is not None]
    if not based:
        return True
    document = Pin(run=str(run), files=tuple(sorted(file.path for part in based for file in part.base_states)))
    store.write_once(f"{_PINS}/{document.digest()[:24]}.json", document)
    return all(_is_there(store, part) for part in based)


def _is_there(store: StatesStore, part: WindowPart) -> bool:
    try:
        # The number alone does not tell: it is given anew if all versions of a part were removed.
        return store.version(part.name, part.base or 0).states == part.base_states
    except (DocumentError, RunDirectoryError):
        return False


def pins(store: StatesStore, now: dt.datetime, grace: dt.timedelta) -> tuple[set[str], list[str]]:
    """The files that runs under way need; and the pins that nobody needs: of runs that have their result, or are gone.

    A run without a directory may be about to begin while its pin is not older than ``grace``.
    """
    files, released = set[str](), list[str]()
    for name in sorted(names_in(store, _PINS)):
        path = f"{_PINS}/{name}"
        if not name.endswith(".json"):
            continue
        try:
            one, young = store.read(path, Pin), now - modified(store, path) <= grace
        except (FileNotFoundError, RunDirectoryError):
            if store.exists(path):
                raise
            continue  # another prune has removed it, as nobody needs it
        run = RunDirectory(one.run)
        needed = not run.exists(commit_path(RESULT_STEP)) if run.exists("job.json") else young
        if needed:
            files.update(one.files)
        else:
            released.append(path)
    return files, released


def modified(store: StatesStore, path: str) -> dt.datetime:
    """When a file was written, with a time zone."""
    moment: dt.datetime = store.fs.modified(f"{store.root}/{path}")
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


class HeldPart(NamedTuple):
    """A part that has states under a fingerprint, with its newest version; None if that is damaged."""

    fingerprint: str
    part: str
    versions: int
    newest: int
    version: PartVersion | None


class StatesLimits(Frozen):
    """What is removed of the states of a job."""

    parts: int | None
    """States of so many of the newest parts are kept, see ``StatesStore.kept_parts``; None for all parts."""
    grace: dt.timedelta = dt.timedelta(days=7)
    """Nothing younger is removed, nor what became superfluous in that time: somebody may be reading it."""
    unused: dt.timedelta = dt.timedelta(days=30)
    """States of a fingerprint to which nothing was added for so long are removed, if others were added to."""


class Doomed(NamedTuple):
    """What a prune of states removes: a version or a file, in the file system of the store, with the reason."""

    path: str
    size_bytes: int
    reason: str


def held_parts(location: str) -> list[HeldPart]:
    """All parts that a job has states of, by fingerprint and name."""
    held = []
    for store in _stores(location):
        for part in store.parts():
            if numbers := store.numbers(part):
                try:
                    version = store.version(part, numbers[-1])
                except (DocumentError, RunDirectoryError):
                    version = None
                held.append(HeldPart(store.root.rpartition("/")[2], part, len(numbers), numbers[-1], version))
    return held


def doomed_states(location: str, now: dt.datetime, limits: StatesLimits) -> list[Doomed]:
    """What a prune removes of the states of a job, in this order: versions before the files that they name.

    A version or a pin that cannot be read names nothing that could be kept for it, and so keeps all files: nothing of
    its fingerprint is removed but old versions of other parts. What another prune removes meanwhile is passed over.
    """
    stores = list(_stores(location))
    written = {}
    for store in stores:
        versions = [version_path(part, number) for part in store.parts() for number in store.numbers(part)[-1:]]
        written[store.root] = min(_ages(store, [FINGERPRINT, *versions], now).values())
    least = min(written.values(), default=dt.timedelta())
    return [
        one
        for store in stores
        for one in _doomed(store, now, limits, unused=max(least, limits.unused) < written[store.root])
    ]


def _doomed(store: StatesStore, now: dt.datetime, limits: StatesLimits, *, unused: bool) -> list[Doomed]:
    gone, readable = list[Doomed](), True
    try:
        kept_files, released = pins(store, now, limits.grace)
    except (DocumentError, RunDirectoryError):
        kept_files, released, readable = set(), [], False
    gone += _doomed_files(store, released, "no run under way needs what it names")
    kept_states = set[tuple[str, str]]()
    kept_parts = set[str]() if unused else store.kept_parts(limits.parts, now)
    for part in store.parts():
        for number, why in _superfluous(store, part, now, limits, kept=part in kept_parts):
            path = version_path(part, number)
            if why:
                gone += _doomed_files(store, [path], why)
                continue
            try:
                version = store.version(part, number)
                kept_files.update(file.path for file in version.states)
                kept_states.add((part, states_checksum(version)))
            except (DocumentError, RunDirectoryError):
                readable &= not store.exists(path)
    nodes, needed = _nodes(store, kept_states)
    for name, node in nodes.items():
        old = [] if name in needed else _older(store, [merge_path(name)], now, limits)
        gone += _doomed_files(store, old, "the merged states are damaged, of states that are not kept, or in others")
        if not old:
            readable &= node is not None
            kept_files.update(file.path for file in (node.states if node else ()))
    damaged = [f"{DAMAGED}/{name}" for name in names_in(store, DAMAGED)]
    gone += _doomed_files(store, _older(store, damaged, now, limits), "the damage was found long ago")
    return gone if not readable else [*gone, *_unnamed(store, now, limits, kept_files)]


def _nodes(store: StatesStore, kept: set[tuple[str, str]]) -> tuple[dict[str, MergedParts | None], set[str]]:
    """All nodes by their names, None if one is damaged; and which are needed: of those that begin alike the longest."""
    nodes, longest = dict[str, MergedParts | None](), dict[MergedPart, tuple[int, str]]()
    for name in sorted(store.merges()):
        nodes[name] = None
        with suppress(DocumentError, RunDirectoryError):
            nodes[name] = node = store.merge(name)
            if {(one.part, one.states) for one in node.parts} <= kept:
                longest[node.parts[0]] = max((len(node.parts), name), longest.get(node.parts[0], (0, "")))
    return nodes, {name for _, name in longest.values()}


def _unnamed(store: StatesStore, now: dt.datetime, limits: StatesLimits, kept: set[str]) -> Iterator[Doomed]:
    for full, about in store.fs.find(f"{store.root}/{STATES_STEP}", detail=True).items():
        path = str(full)[len(store.root) + 1 :]
        if _checked_by(path) in kept:
            continue
        if _older(store, [path], now, limits):
            yield Doomed(str(full), int(about["size"]), "no version names it")


def _ages(store: StatesStore, paths: Iterable[str], now: dt.datetime) -> dict[str, dt.timedelta]:
    """How old files are; without those that a prune has removed, or a run has moved, since they were listed."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = now - modified(store, path)
    return found


def _older(store: StatesStore, paths: Iterable[str], now: dt.datetime, limits: StatesLimits) -> list[str]:
    return [path for path, age in _ages(store, paths, now).items() if age > limits.grace]


def _doomed_files(store: StatesStore, paths: Iterable[str], why: str) -> Iterator[Doomed]:
    """Files of a store that are to be removed; without those that another prune has removed already."""
    for path in paths:
        full = f"{store.root}/{path}"
        with suppress(FileNotFoundError):
            yield Doomed(full, int(store.fs.size(full)), why)


def _checked_by(path: str) -> str:
    """The file that a file of Hadoop's checksums belongs to, ``.NAME.crc``; of any other file, itself."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path


def _superfluous(
    store: StatesStore, part: str, now: dt.datetime, limits: StatesLimits, *, kept: bool
) -> Iterator[tuple[int, str]]:
    """Each version of a part, with the reason why it is removed; empty if it stays."""
    named = {version_path(part, number): number for number in store.numbers(part)}
    ages = _ages(store, named, now)
    numbers = [named[path] for path in ages]
    for at, number in enumerate(numbers):
        newest = at + 1 == len(numbers)
        # A version may have been chosen until the next one came.
        since = ages[version_path(part, numbers[at if newest else at + 1])]
        why = "" if newest else f"version {numbers[at + 1]} came after it"
        why = why if kept else f"the states of {limits.parts or 'all'} newer parts, or of another fingerprint, are kept"
        yield number, why if since > limits.grace else ""


def remove_states(location: str, doomed: Sequence[Doomed], now: dt.datetime, limits: StatesLimits) -> None:
    """Remove what ``doomed_states`` has found with these arguments, but no file that a run has pinned since.

    It is not an error if something is gone already.
    """
    storage = Storage(location)
    states = [one for one in doomed if _is_states(one.path)]
    for one in (one for one in doomed if not _is_states(one.path)):
        _remove(storage, one.path)
    # A run that pins files from here on finds that their versions are gone, see above.
    kept = {f"{store.root}/{path}" for store in _stores(location) for path in pins(store, now, limits.grace)[0]}
    for one in states:
        if _checked_by(one.path) not in kept:
            _remove(storage, one.path)


def _is_states(path: str) -> bool:
    return f"/{STATES_STEP}/attempts/" in path


def _remove(storage: Storage, path: str) -> None:
    with suppress(FileNotFoundError):
        storage.fs.rm_file(path)


def _stores(location: str) -> Iterator[StatesStore]:
    folder = Storage(location)
    for name in sorted(names_in(folder, "")):
        if folder.exists(f"{name}/{FINGERPRINT}"):
            yield StatesStore(folder.path(name))
