"""Kept states without Spark: files that end as Parquet files do, versions that name them, and windows over these."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from skewless.documents.commit import CommittedFile
from skewless.documents.window import JobWindow, PartVersion, SeenFile, WindowPart, WindowSpan
from skewless.standing.fingerprint import Fingerprint
from skewless.standing.store import Numbered, StatesStore, open_states
from skewless.standing.window_choice import MergeStep

#: Of each key, how often each file is in its state.
Counts = dict[Any, Counter[Any]]
NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
#: The shortest file that ends as a Parquet file does: behind an empty footer.
FILE = b"PAR1" + bytes(4) + b"PAR1"


def store_of(folder: Path, name: str = "states") -> StatesStore:
    """A store of a fingerprint of this name."""
    fingerprint = Fingerprint(shapes={"name": name})
    store = open_states(str(folder), fingerprint)
    store.begin(fingerprint)
    return store


def file_of(path: str, rows: int = 1) -> CommittedFile:
    """Such a file of states, as a version names it."""
    checksum = hashlib.sha256().hexdigest()
    return CommittedFile(kind="standing", path=path, rows=rows, size_bytes=len(FILE), checksum=checksum)


def add(store: StatesStore, run: str, part: str, *files: str) -> Numbered:
    """A version of a part, with files of states that are there."""
    for path in files:
        full = Path(store.path(path))
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(FILE)
    seen, states = SeenFile(path=run, size_bytes=1, ranks=(0,)), tuple(map(file_of, files))
    return store.commit(PartVersion(part=part, fingerprint="f", run=run, files=(seen,), rows=1, states=states))


def make_old(store: StatesStore, age: dt.timedelta, *paths: str) -> None:
    """Touch some files as long ago, or all of them."""
    for path in map(Path, paths or [str(one) for one in Path(str(store)).rglob("*")]):
        os.utime(Path(str(store), path), ((NOW - age).timestamp(),) * 2)


def window_of(store: StatesStore) -> JobWindow:
    """A window that takes all states of the newest version of each part."""
    parts = []
    for at, name in enumerate(store.parts()):
        newest = store.newest(name)[0]
        assert newest is not None
        base = {"base": newest.number, "base_states": newest.version.states, "base_rows": newest.version.rows}
        parts.append(WindowPart.model_validate({"name": name, "place": at, "files": newest.version.files, **base}))
    return JobWindow(store=str(store), fingerprint="", shapes={}, windows=(WindowSpan(),), parts=tuple(parts))


def merged(many: Iterable[Counts], sign: int = 1) -> Counts:
    """States of many parts, merged."""
    total: Counts = {}
    for states in many:
        for key, seen in states.items():
            of = total.setdefault(key, Counter())
            for name, count in seen.items():
                of[name] += sign * count
    return total


def follow(step: MergeStep, read: Callable[[str], Counts]) -> Counts:
    """What a step of a night's plan makes of states that are read by their names."""
    added = merged(map(read, step.add))
    if step.copy_from:
        touched = {key for name in step.touched_by for key in read(name)}
        copied = {key: seen for key, seen in read(step.copy_from).items() if key not in touched}
        return copied | {key: seen for key, seen in added.items() if key in touched}
    left = merged([added, merged(map(read, step.subtract), -1)])
    assert all(count >= 0 for seen in left.values() for count in seen.values()), "only what is there is taken out"
    kept = {key: Counter({name: count for name, count in seen.items() if count}) for key, seen in left.items()}
    return {key: seen for key, seen in kept.items() if seen}
