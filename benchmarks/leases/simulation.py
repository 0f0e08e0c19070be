"""Both algorithms under load, in virtual time: ``python -m benchmarks.leases.simulation [--json]``.

A loaded worker gets round to what it should do between two pieces of its work; the more partitions it
holds, the longer that takes. The original algorithm renews, answers and races at that pace. Ours only
looks at that pace: its heartbeat is another process. The row between them is ours with a heartbeat at the
worker's own pace, to show what that alone is worth. Same seed, same table.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from benchmarks.leases.agenda import Agenda, Pace
from benchmarks.leases.memory_store import MemoryStore
from benchmarks.leases.reference_algorithm import Cache, ReferenceNode
from benchmarks.result_files import table
from skewless_leases.balancing.member import Member
from skewless_leases.liveness.heartbeat_process import Beat
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant

ORIGINAL, OWN_PACE, LEASES = "original", "ours, heartbeat in the worker", "ours"
ALGORITHMS = (ORIGINAL, OWN_PACE, LEASES)
#: How long a piece of work takes on average, for each partition that the worker holds, in seconds.
PIECES = (0.0, 0.1, 1.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One simulation. Times in seconds; the spans are the library's defaults.

    Attributes:
        piece: how long a piece of work takes on average, for each partition that the worker holds.
        warm_up: what happens before does not count.
        duration: how long is counted; then one worker dies.
    """

    piece: float
    workers: int = 4
    partitions: int = 32
    seed: int = 1
    spans: TimeSpans = field(default_factory=TimeSpans)
    shutdown: float = 1.0
    warm_up: float = 600.0
    duration: float = 3600.0
    after_death: float = 1800.0


@dataclass(frozen=True)
class Outcome:
    """What one simulation has come to.

    Attributes:
        moves_per_hour: how often a partition changed hands although nobody came or went.
        moved_partitions: how many different partitions did.
        doubled: the part of the time in which a partition was worked on by two workers, mean of all.
        idle: the part of the time in which nobody worked on a partition, mean of all.
        uneven: the difference of the largest and the smallest number of partitions of a worker, mean of the time.
        recovered: when all partitions of the dead worker were held by live ones, in seconds after its
            death; None if they were not.
    """

    algorithm: str
    piece: float
    moves_per_hour: float
    moved_partitions: int
    doubled: float
    idle: float
    uneven: float
    recovered: float | None


class Fleet(Protocol):
    """Some workers, of whichever algorithm."""

    def start(self) -> None:
        """Let all of them begin."""

    def working(self) -> Mapping[str, frozenset[str]]:
        """What each live worker works on now."""

    def kill(self, worker: str) -> None:
        """Let one die, without a word."""


class Originals:
    """Workers of the original algorithm."""

    def __init__(self, setting: Setting, agenda: Agenda, rng: random.Random) -> None:
        self.setting, self.rng = setting, rng
        self.cache = Cache(agenda)
        for worker in worker_names(setting):
            ReferenceNode(worker, self.cache, setting.spans, setting.shutdown, setting.piece, rng)

    def start(self) -> None:
        """Each partition is challenged at a moment of its own, and by no two nodes at the same one."""
        names = partition_names(self.setting)
        apart = self.setting.spans.normal_lease / len(names)
        for node in self.cache.nodes:
            node.start({name: (place + self.rng.random() / 2) * apart for place, name in enumerate(names)})

    def working(self) -> Mapping[str, frozenset[str]]:
        """What each live node processes."""
        return {node.name: frozenset(node.active) for node in self.cache.nodes if not node.dead}

    def kill(self, worker: str) -> None:
        """Let one die."""
        node = next(node for node in self.cache.nodes if node.name == worker)
        node.dead = True


class Stopping:
    """Work that takes a while to stop when it is asked back."""

    def __init__(self, agenda: Agenda, seconds: float) -> None:
        self.agenda, self.seconds = agenda, seconds
        self._asked: dict[Grant, float] = {}

    def granted(self, grant: Grant) -> None:
        """Nothing to do: what is held is worked on."""

    def asked_back(self, grant: Grant) -> bool:
        """Stopped after its time."""
        return self.agenda.now - self._asked.setdefault(grant, self.agenda.now) >= self.seconds

    def lost(self, grant: Grant) -> None:
        """Forget it."""
        self._asked.pop(grant, None)


class Leaseholders:
    """Workers of ours, on a store in memory.

    Args:
        own_pace: beat when the worker gets round to it, not on time.
    """

    def __init__(self, setting: Setting, agenda: Agenda, rng: random.Random, *, own_pace: bool) -> None:
        self.setting, self.agenda, self.rng, self.own_pace = setting, agenda, rng, own_pace
        self.store = MemoryStore()
        self.members = {name: self._member(name) for name in worker_names(setting)}
        self.paces = {name: self._pace(member) for name, member in self.members.items()}

    def start(self) -> None:
        """Each one begins at a moment of its own."""
        for name, member in self.members.items():
            begin = self.rng.uniform(0, self.setting.spans.look_every)
            beat = Beat(self.store, name, self.setting.partitions)
            self.agenda.at(begin, self._beats(member, beat))
            self.agenda.at(begin, self._looks(member))

    def working(self) -> Mapping[str, frozenset[str]]:
        """What each live worker holds, as far as it knows."""
        return {name: frozenset(member.grants) for name, member in self.members.items()}

    def kill(self, worker: str) -> None:
        """Let one die, with its heartbeat, as a machine does: nobody is told."""
        del self.members[worker]

    def _member(self, name: str) -> Member:
        names = partition_names(self.setting)
        work = Stopping(self.agenda, self.setting.shutdown)
        return Member(self.store, name, lambda _: names, self.setting.spans, work)

    def _pace(self, member: Member) -> Pace:
        return Pace(self.agenda, self.rng, lambda: self.setting.piece * len(member.grants))

    def _looks(self, member: Member) -> Callable[[], None]:
        def look() -> None:
            if member.name in self.members:
                member.step(self.agenda.now)
                self.paces[member.name].soon(self.agenda.now + self.setting.spans.look_every, look)

        return look

    def _beats(self, member: Member, beat: Beat) -> Callable[[], None]:
        def once() -> None:
            if member.name in self.members:
                beat.once()
                due = self.agenda.now + self.setting.spans.beat_every
                if self.own_pace:
                    self.paces[member.name].soon(due, once)
                else:
                    self.agenda.at(due, once)

        return once


def partition_names(setting: Setting) -> list[str]:
    """The partitions, in order."""
    return [f"p{number:03d}" for number in range(setting.partitions)]


def worker_names(setting: Setting) -> list[str]:
    """The workers, in order."""
    return [f"w{number}" for number in range(setting.workers)]


def simulate(algorithm: str, setting: Setting) -> Outcome:
    """Run one algorithm in one setting."""
    agenda, rng = Agenda(), random.Random(setting.seed)  # noqa: S311 - a seed makes it repeatable
    fleet: Fleet
    if algorithm == ORIGINAL:
        fleet = Originals(setting, agenda, rng)
    else:
        fleet = Leaseholders(setting, agenda, rng, own_pace=algorithm == OWN_PACE)
    fleet.start()
    agenda.run_until(setting.warm_up)
    tally = Tally(partition_names(setting), fleet.working())
    for second in range(1, int(setting.duration) + 1):
        agenda.run_until(setting.warm_up + second)
        tally.add(fleet.working())
    hours = setting.duration / 3600
    return Outcome(
        algorithm,
        setting.piece,
        moves_per_hour=round(tally.moves / hours, 1),
        moved_partitions=len(tally.moved),
        doubled=round(tally.doubled / tally.looked, 4),
        idle=round(tally.idle / tally.looked, 4),
        uneven=round(tally.uneven / setting.duration, 2),
        recovered=_recovery(fleet, agenda, setting),
    )


class Tally:
    """Counts, second by second, who works on what."""

    def __init__(self, partitions: Sequence[str], working: Mapping[str, frozenset[str]]) -> None:
        self.partitions = partitions
        self.moves = self.looked = self.doubled = self.idle = self.uneven = 0
        self.moved: set[str] = set()
        self._last: dict[str, str] = {}
        for partition in partitions:
            for worker, held in working.items():
                if partition in held:
                    self._last[partition] = worker

    def add(self, working: Mapping[str, frozenset[str]]) -> None:
        """Count one second."""
        loads = [len(held) for held in working.values()]
        self.uneven += max(loads) - min(loads)
        for partition in self.partitions:
            at = [worker for worker, held in working.items() if partition in held]
            self.looked += 1
            self.doubled += len(at) > 1
            self.idle += not at
            arrived = [worker for worker in at if worker != self._last.get(partition)]
            if len(at) == 1 and arrived:
                self.moves += 1
                self.moved.add(partition)
                self._last[partition] = at[0]


def _recovery(fleet: Fleet, agenda: Agenda, setting: Setting) -> float | None:
    """How long the partitions of a worker that dies wait for live ones."""
    death = agenda.now
    orphans = fleet.working()["w0"]
    fleet.kill("w0")
    for second in range(1, int(setting.after_death) + 1):
        agenda.run_until(death + second)
        if orphans <= frozenset().union(*fleet.working().values()):
            return float(second)
    return None


def page(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a table of Markdown."""
    titles = (
        "piece of work, s for each partition held", "algorithm", "moves per hour", "partitions that moved",
        "held twice", "held by nobody", "max - min", "back after a death, s",
    )  # fmt: skip
    lines = [
        (
            f"{out.piece:g}", out.algorithm, f"{out.moves_per_hour:,.0f}", str(out.moved_partitions),
            f"{out.doubled:.2%}", f"{out.idle:.2%}", f"{out.uneven:.2f}",
            "never" if out.recovered is None else f"{out.recovered:.0f}",
        )
        for out in outcomes
    ]  # fmt: skip
    return table(titles, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.leases.simulation", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--minutes", type=int, default=60, help="how long is counted, in virtual time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    given = parser.parse_args(arguments)
    logging.getLogger("skewless_leases").setLevel(logging.ERROR)  # what is lost in virtual time is no warning
    setting = Setting(
        piece=0.0, workers=given.workers, partitions=given.partitions, seed=given.seed, duration=60.0 * given.minutes
    )
    outcomes = [simulate(algorithm, replace(setting, piece=piece)) for piece in PIECES for algorithm in ALGORITHMS]
    text = json.dumps([asdict(out) for out in outcomes], indent=1) if given.json else page(outcomes)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
