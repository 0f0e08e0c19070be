"""Kept states that are damaged are passed over, whatever befell which file; they are on the disk before they count."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.documents.commit import CommittedFile
from skewless.documents.window import PartVersion, SeenFile
from skewless.run.directory import Attempt
from skewless.standing.store import STATES_STEP, StatesStore, borrow_states, version_path
from skewless.standing.window_choice import name_of
from tests.object_stores import BUCKET, as_client, object_server
from tests.tiers import mostly_long

PART = "2026-11-20"
#: What may befall a file; a bit that turns within a page is found by who reads the page.
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "cut": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "flipped": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "empty": lambda _: b"",
}


@pytest.fixture(params=mostly_long(["disk", "object store"], "disk"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StatesStore]:
    if request.param == "disk":
        yield StatesStore(str(tmp_path / "kept" / "f"))
        return
    with object_server("localbucket", tmp_path / "server") as server, as_client(server.environment):
        yield StatesStore(f"s3://{BUCKET}/kept/f")


def files_of(store: StatesStore, ident: str) -> tuple[CommittedFile, ...]:
    """Two files of states, as an attempt has written them."""
    attempt, names = Attempt(store, STATES_STEP, ident), ("data/a.parquet", "data/b.parquet")
    for name in names:
        path = f"{store.root}/{attempt.folder}/{name}"
        store.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with store.fs.open(path, "wb") as out:
            pq.write_table(pa.table({"c0": ["a", "b"], "rows": [1, 2]}), out)
    return tuple(attempt.described("standing", path, 2) for path in attempt.listed("data"))


def version_of(store: StatesStore, run: str, ident: str) -> PartVersion:
    seen = SeenFile(path="in", size_bytes=1, version=run, ranks=(0,))
    return PartVersion(part=PART, fingerprint="f", run=run, files=(seen,), rows=6, states=files_of(store, ident))


def test_a_version_of_which_any_file_is_damaged_is_passed_over(store: StatesStore) -> None:
    older, newer = (store.commit(version_of(store, run, run)) for run in ("r1", "r2"))
    assert store.newest(PART) == (newer, ())
    for path in (version_path(PART, 2), *(file.path for file in newer.version.states)):
        whole = store.fs.cat_file(f"{store.root}/{path}")
        for kind, damaged in DAMAGES.items():
            if (path, kind) == (version_path(PART, 2), "missing"):
                continue  # such a version never was
            store.fs.rm(f"{store.root}/{path}")
            if (content := damaged(whole)) is not None:
                with store.fs.open(f"{store.root}/{path}", "wb") as out:
                    out.write(content)
            found, faults = store.newest(PART)
            assert found == older, (path, kind)
            assert len(faults) == 1, (path, kind)
            assert faults[0].startswith("version 2 cannot be used ("), (path, kind)
            # The run that made it begins again: a version that nobody can use does not count.
            again = store.commit(version_of(store, "r2", f"again-{kind}"))
            assert again.number == 3, (path, kind)
            assert store.newest(PART) == (again, ())
            store.fs.rm(f"{store.root}/{version_path(PART, 3)}")
            with store.fs.open(f"{store.root}/{path}", "wb") as out:
                out.write(whole)
    assert store.commit(version_of(store, "r2", "late")) == newer
    # A run that has read a damaged page says so.
    store.drop_merge(name_of(((PART, 2),)), "r3")
    assert store.newest(PART)[0] == older
    assert store.commit(version_of(store, "r2", "anew")).number == 3


def test_states_and_their_names_are_on_the_disk_before_a_version_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StatesStore(str(tmp_path / "f"))
    version = version_of(store, "r", "x")
    noted = Path(store.path(version.states[0].path)).with_name(".a.parquet.crc")
    noted.write_bytes(b"by Hadoop")
    done, sync, link = list[str](), os.fsync, os.link

    def synced(handle: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        sync(handle)

    def linked(draft: Path, path: str) -> None:
        done.append(f"link {path}")
        link(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    number = store.commit(version).number
    counts = done.index(f"link {store.path(version_path(PART, number))}")
    files = [noted, *(Path(store.path(file.path)) for file in version.states)]
    folders = [path for path in files[0].parents if path.is_relative_to(str(store))]
    assert {str(path) for path in (*files, *folders)} <= set(done[:counts])
    assert str(Path(store.path(version_path(PART, number))).parent) in done[counts:]


def test_borrowed_states_are_the_users_own_and_follow_no_link_of_others(tmp_path: Path) -> None:
    kept = StatesStore(str(tmp_path / "kept" / "f"))
    kept.commit(version_of(kept, "r", "x"))
    document = Path(kept.path(version_path(PART, 1)))
    document.chmod(0o640)
    borrowed = tmp_path / "of a user" / "borrowed"
    borrow_states(str(tmp_path / "kept"), borrowed)
    assert stat.S_IMODE(borrowed.stat().st_mode) == 0o700
    assert stat.S_IMODE((borrowed / document.relative_to(tmp_path / "kept")).stat().st_mode) == 0o640
    of_others = tmp_path / "of others"
    of_others.mkdir()
    planted = tmp_path / "planted"
    planted.symlink_to(of_others)
    with pytest.raises(FileExistsError):
        borrow_states(str(tmp_path / "kept"), planted)
    assert not list(of_others.iterdir())
