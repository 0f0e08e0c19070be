"""Readers of a day that is published under their hands get one version whole, or an error: never a mix."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from skewless.run.directory import RunDirectory
from tests.publication.libraries import LIBRARIES, Library, Pause
from tests.publication.versions import FILES, Outcome, day_of, judged, publish_version, ready, refused
from tests.tiers import mostly_long


def read_once(library: Library, day: str, pause: Pause, sentences: list[str]) -> Outcome:
    """One read, and what it got; an error that does not say that a file is missing counts as torn."""
    try:
        rows: pa.Table = library.read(day, pause)
    except Exception as err:  # noqa: BLE001 - each library has errors of its own
        outcome = refused(err)
        if outcome == "torn":
            sentences.append(f"{type(err).__name__}: {str(err)[:160]}")
        return outcome
    outcome = judged(rows)
    if outcome == "torn":
        sentences.append(f"{rows.num_rows} rows of versions {sorted(set(rows['version'].to_pylist()))}"[:160])
    return outcome


class Publisher:
    """Publishes one version of a day after the other."""

    def __init__(self, place: Path) -> None:
        self.place, self.versions = place, 0
        self._next = self._made()
        self.day = str(day_of(self._next))
        self.publish()

    def _made(self) -> RunDirectory:
        self.versions += 1
        return ready(self.place / "runs" / str(self.versions), self.place / "out", self.versions)

    def publish(self) -> None:
        publish_version(self._next)
        shutil.rmtree(self.place / "runs" / str(self.versions - 1), ignore_errors=True)
        self._next = self._made()


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A place where an fsync takes no time, if this machine has one: readers see the same."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield Path(place)


class Stepping(LocalFileSystem):
    """The local file system, which has a version published at one step of a reader: a look, a listing or an opening."""

    protocol = "stepping"
    cachable = False

    def __init__(self, publisher: Publisher) -> None:
        super().__init__()
        self._publisher, self._at, self.steps = publisher, 0, 0

    def arm(self, at: int) -> None:
        self._at, self.steps = at, 0

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("stepping://"))

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._at:
            self._publisher.publish()

    def ls(self, path: str, detail: bool = False, **given: Any) -> Any:
        self._step()
        return super().ls(path, detail=detail, **given)

    def info(self, path: Any, **given: Any) -> Any:
        self._step()
        return super().info(path, **given)

    def open(self, path: str, *given: Any, **named: Any) -> Any:
        self._step()
        return super().open(path, *given, **named)


#: polars reads its files by itself only.
STEPPED = [name for name in LIBRARIES if name != "polars"]


@pytest.mark.parametrize("name", mostly_long(STEPPED, "pyarrow.dataset"))
def test_a_version_published_at_any_step_of_a_read_leaves_it_whole_or_an_error(quick_disk: Path, name: str) -> None:
    publisher, seen = Publisher(quick_disk), set[Outcome]()
    files, said = Stepping(publisher), list[str]()
    stepped, plain = LIBRARIES[name](files), LIBRARIES[name]()
    for at in itertools.count(1):
        files.arm(at)
        seen.add(read_once(stepped, publisher.day, lambda: None, said))
        assert not said, f"published at step {at}"
        assert read_once(plain, publisher.day, lambda: None, said) == "whole"
        if files.steps < at:
            break
    assert at > 2 * FILES
    # pyarrow leaves out what goes between listing a name and looking at it; that it listed none is an error, too.
    assert seen == {"whole", "not found"} | (set() if name == "duckdb" else {"none listed"})
