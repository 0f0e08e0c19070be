"""Readers in processes of their own, and a day that is published under their hands."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import pyarrow as pa

from skewless.run_directory import RunDirectory
from tests.publication.libraries import LIBRARIES, Library, Pause
from tests.publication.versions import Outcome, day_of, judged, publish_version, ready, refused

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
        publisher.send("publish")
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


@contextmanager
def reading(
    publisher: Publisher, names: list[str], reads: int, ask_every: int, retrying: AbstractContextManager
) -> Iterator[dict[str, Connection]]:
    """Reader processes, by library, each with a connection that it asks for publications and gives its tally."""
    ends, processes = {}, []
    for seed, name in enumerate(names):
        ours, theirs = _SPAWN.Pipe()
        given = (name, publisher.day, reads, ask_every, theirs, retrying, seed)
        processes.append(_SPAWN.Process(target=_read_on, args=given, daemon=True))
        ends[name] = ours
    for process in processes:
        process.start()
    try:
        yield ends
    finally:
        for process in processes:
            process.join(20)
            process.kill()


def on_request(publisher: Publisher, names: list[str], reads: int, ask_every: int) -> dict[str, Tally]:
    """Read with each library; a version is published whenever a reader asks for one, having listed the day.

    Args:
        publisher: of the day.
        names: of the libraries.
        reads: of each library.
        ask_every: one of so many reads asks.
    """
    tallies: dict[str, Tally] = {}
    # One retry is promised to succeed where versions are some time apart: none comes while somebody tries again.
    retrying = _SPAWN.Lock()
    with reading(publisher, names, reads, ask_every, retrying) as ends:
        while len(tallies) < len(names):
            open_ends = [end for name, end in ends.items() if name not in tallies]
            for end in multiprocessing.connection.wait(open_ends):
                said = cast("Connection", end).recv()
                if said == "publish":
                    with retrying:
                        publisher.publish()
                    cast("Connection", end).send("published")
                else:
                    tallies[next(name for name, one in ends.items() if one is end)] = said
    return tallies


def by_the_clock(publisher: Publisher, names: list[str], reads: int, every_seconds: float) -> dict[str, Tally]:
    """Read with each library, pausing a little after each listing, while the day is published by the clock.

    Args:
        publisher: of the day.
        names: of the libraries.
        reads: of each library.
        every_seconds: from publication to publication; 0 for as fast as it goes.
    """
    tallies: dict[str, Tally] = {}
    with reading(publisher, names, reads, 0, nullcontext()) as ends:
        while len(tallies) < len(names):
            due = time.monotonic() + every_seconds
            open_ends = [end for name, end in ends.items() if name not in tallies]
            while open_ends and (left := due - time.monotonic()) > 0:
                _take(ends, tallies, left)
                open_ends = [end for name, end in ends.items() if name not in tallies]
            _take(ends, tallies, 0)
            if len(tallies) < len(names):
                publisher.publish()
    return tallies


def _take(ends: dict[str, Connection], tallies: dict[str, Tally], seconds: float) -> None:
    waiting = {name: end for name, end in ends.items() if name not in tallies}
    ready_ends = multiprocessing.connection.wait(list(waiting.values()), timeout=seconds)
    for name, end in waiting.items():
        if end in ready_ends:
            tallies[name] = end.recv()
