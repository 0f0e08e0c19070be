"""Kept states without Spark: files that end as Parquet files do, versions that name them, and windows over these."""

import datetime as dt
import hashlib
import os
from pathlib import Path

from skewless.documents.commit import CommittedFile
from skewless.documents.window import JobWindow, PartVersion, SeenFile, WindowPart, WindowSpan
from skewless.standing.states_store import Fingerprint, Numbered, StatesStore, open_states

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
#: The shortest file that ends as a Parquet file does: behind an empty footer.
FILE = b"PAR1" + bytes(4) + b"PAR1"


def store_of(folder: Path, name: str = "states") -> StatesStore:
    fingerprint = Fingerprint(shapes={"name": name})
    store = open_states(str(folder), fingerprint)
    store.begin(fingerprint)
    return store


def file_of(path: str, rows: int = 1) -> CommittedFile:
    checksum = hashlib.sha256().hexdigest()
    return CommittedFile(kind="standing", path=path, rows=rows, size_bytes=len(FILE), checksum=checksum)


def add(store: StatesStore, run: str, part: str, *files: str) -> Numbered:
    for path in files:
        full = Path(store.path(path))
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(FILE)
    seen, states = SeenFile(path=run, size_bytes=1, ranks=(0,)), tuple(map(file_of, files))
    return store.commit_all([PartVersion(part=part, fingerprint="f", run=run, files=(seen,), rows=1, states=states)])[0]


def make_old(store: StatesStore, age: dt.timedelta, *paths: str) -> None:
    for path in map(Path, paths or [str(one) for one in Path(str(store)).rglob("*")]):
        os.utime(Path(str(store), path), ((NOW - age).timestamp(),) * 2)


def window_of(store: StatesStore) -> JobWindow:
    parts = []
    for at, name in enumerate(store.parts()):
        newest = store.newest(name)[0]
        assert newest is not None
        base = {"base": newest.number, "base_states": newest.version.states, "base_rows": newest.version.rows}
        parts.append(WindowPart.model_validate({"name": name, "place": at, "files": newest.version.files, **base}))
    return JobWindow(store=str(store), fingerprint="", shapes={}, windows=(WindowSpan(),), parts=tuple(parts))
