"""Readers in processes of their own, and a day that is published under their hands."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.synchronize
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from skewless.run.directory import RunDirectory
from tests.publication.libraries import LIBRARIES, Library, Pause
from tests.publication.versions import Outcome, day_of, judged, publish_version, ready, refused

_ASKS = "publish"
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Tally:
    """What one reader got.

    Attributes:
        reads: by outcome, first tries only.
        retries: by outcome: a second try after each read that found no file.
        sentences: what was torn, in words.
    """

    reads: Counter[Outcome] = field(default_factory=Counter)
    retries: Counter[Outcome] = field(default_factory=Counter)
    sentences: list[str] = field(default_factory=list)

    @property
    def whole(self) -> float:
        """Part of the reads that got one version whole, 0 to 1."""
        return self.reads["whole"] / self.reads.total()

    def __str__(self) -> str:
        again = f"; again: {dict(self.retries)}" if self.retries else ""
        said = f"; {self.sentences[0]}" if self.sentences else ""
        return f"{self.reads.total()} reads: {dict(self.reads)}, {100 * self.whole:.1f} % whole{again}{said}"


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


def _read_on(
    name: str, day: str, reads: int, ask_every: int, publisher: Connection, retrying: AbstractContextManager, seed: int
) -> None:
    """A reader process: so many reads, and in some of them a publication between listing and opening."""
    library, tally, draw = LIBRARIES[name](), Tally(), random.Random(seed)

    def asks() -> None:
        publisher.send(_ASKS)
        publisher.recv()

    def dawdles() -> None:
        time.sleep(draw.uniform(0, 0.02))

    for number in range(reads):
        pause = (asks if number % ask_every == ask_every - 1 else lambda: None) if ask_every else dawdles
        outcome = read_once(library, day, pause, tally.sentences)
        tally.reads[outcome] += 1
        if outcome in {"not found", "none listed"}:
            with retrying:
                tally.retries[read_once(library, day, lambda: None, tally.sentences)] += 1
    publisher.send(tally)


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
        """Publish the version that is ready, and make the next one ready."""
        publish_version(self._next)
        shutil.rmtree(self.place / "runs" / str(self.versions - 1), ignore_errors=True)
        self._next = self._made()


def oracle(
    publisher: Publisher, names: Sequence[str], reads: int, *, ask_every: int = 0, every_seconds: float = math.inf
) -> dict[str, Tally]:
    """Read with each library at once, each in a process of its own, while versions are published.

    Args:
        publisher: of the day.
        names: of the libraries.
        reads: of each library.
        ask_every: one of so many reads has a version published between listing and opening; of 0 none has, and
            each read pauses a little there.
        every_seconds: from publication to publication, beside those that are asked for; 0 for as fast as it goes.

    Returns:
        What each library got.
    """
    tallies: dict[str, Tally] = {}
    # One retry is promised to succeed where versions are some time apart: none is asked for while somebody tries again.
    retrying = _SPAWN.Lock()
    with _readers(publisher.day, names, reads, ask_every, retrying if ask_every else nullcontext()) as ends:
        due = time.monotonic() + every_seconds
        while ends:
            left = None if every_seconds == math.inf else max(0.0, due - time.monotonic())
            for end in multiprocessing.connection.wait(list(ends), timeout=left):
                assert isinstance(end, Connection)
                said = end.recv()
                if said == _ASKS:
                    with retrying:
                        publisher.publish()
                    end.send("published")
                else:
                    tallies[ends.pop(end)] = said
            if time.monotonic() >= due:
                publisher.publish()
                due = time.monotonic() + every_seconds
    return tallies


@contextmanager
def _readers(
    day: str, names: Sequence[str], reads: int, ask_every: int, retrying: AbstractContextManager
) -> Iterator[dict[Connection, str]]:
    """Reader processes; by the connection of each, which asks for publications and gives its tally, its library."""
    ends, processes = {}, []
    for seed, name in enumerate(names):
        ours, theirs = _SPAWN.Pipe()
        given = (name, day, reads, ask_every, theirs, retrying, seed)
        processes.append(_SPAWN.Process(target=_read_on, args=given, daemon=True))
        processes[-1].start()
        theirs.close()  # so that a reader that dies is noticed
        ends[ours] = name
    try:
        yield ends
    finally:
        for process in processes:
            process.join(20)
            process.kill()
