"""Leases under load, in virtual time, beside the original algorithm: ``make bench ONLY=leases``.

A loaded worker gets round to what it should do between two pieces of its work; the more it holds, the longer that
takes. The original algorithm renews, answers and races at that pace. Ours only looks at that pace: its heartbeat is
another process. Two rows show what either half of that is worth: ours with a heartbeat at the worker's own pace, and
ours when it counts partitions instead of adding up what they weigh. Same seed, same table.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol

from benchmarks.leases.agenda import Agenda, Pace
from benchmarks.leases.memory_store import MemoryStore
from benchmarks.leases.reference_algorithm import Cache, ReferenceNode
from benchmarks.result_files import Verdict, as_documents, machine, page_of, table
from skewless_leases.fence import Grant
from skewless_leases.lease import Beat
from skewless_leases.lease_tables import Look, TimeSpans, look_at
from skewless_leases.worker import Member

NAME = "leases"
ORIGINAL, OWN_PACE, COUNTED, LEASES = "original", "ours, heartbeat in the worker", "ours, by count", "ours, by load"
ALGORITHMS = (ORIGINAL, OWN_PACE, COUNTED, LEASES)
#: A load of so many times the least possible one is even.
EVEN = 1.1
#: Weights that workers read with so small an error move nothing.
SMALL_NOISE = 0.03
#: Each worker of the original hears of each challenge by each other one: of fifty, that takes hours.
MOST_ORIGINALS = 10


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One simulation. Times in seconds; the spans are the library's defaults.

    Attributes:
        piece: how long a piece of work takes on average, for each average partition that the worker holds.
        skew: the exponent of Zipf's law that the weights of the partitions follow.
        noise: by what part, as a standard deviation, each worker at each look takes a weight for another one.
        slow: how long the store takes to answer.
        warm_up: what happens before does not count.
        duration: how long is counted; then a worker comes, and then one dies.
        after: how long at most is waited until the newcomer has its part, and the partitions of the dead are held.
    """

    piece: float
    workers: int = 4
    partitions: int = 32
    skew: float = 0.0
    noise: float = 0.0
    slow: float = 0.001
    seed: int = 1
    spans: TimeSpans = field(default_factory=TimeSpans)
    shutdown: float = 1.0
    warm_up: float = 1800.0
    duration: float = 3600.0
    after: float = 1800.0

    @cached_property
    def weights(self) -> dict[str, float]:
        """What each partition weighs, in average partitions."""
        raw = [1 / (rank + 1) ** self.skew for rank in range(self.partitions)]
        return {f"p{rank:04d}": weight * len(raw) / sum(raw) for rank, weight in enumerate(raw)}

    def seconds(self, held: Collection[str]) -> float:
        """How long a piece of work takes on average, of a worker that holds some partitions."""
        return self.piece * sum(map(self.weights.__getitem__, held)) if self.piece else 0.0

    def largest(self, working: Mapping[str, Collection[str]]) -> float:
        """The largest load of a worker over the least possible: a fair share, or the heaviest partition."""
        weights = self.weights
        loads = [sum(map(weights.__getitem__, held)) for held in working.values()]
        return max(loads) / max(sum(weights.values()) / len(loads), *weights.values())


#: What is simulated: pieces of work, skewed claims, errors in weights, slow stores, and fleets of each size.
SETTINGS = {
    "idle": Setting(piece=0.0),
    "pieces of 1 s": Setting(piece=1.0),
    "10 s": Setting(piece=10.0),
    "skew 0.4": Setting(piece=1.0, skew=0.4),
    "skew 0.8": Setting(piece=1.0, skew=0.8),
    "errors of 3 %": Setting(piece=1.0, skew=0.8, noise=0.03),
    "of 10 %": Setting(piece=1.0, skew=0.8, noise=0.1),
    "store of 2 s": Setting(piece=1.0, skew=0.8, slow=2.0),
    "of 10 s": Setting(piece=1.0, skew=0.8, slow=10.0),
    "2 workers": Setting(piece=1.0, skew=0.8, workers=2, partitions=16),
    "10 workers": Setting(piece=1.0, skew=0.8, workers=10, partitions=80),
    "50 workers": Setting(piece=1.0, skew=0.8, workers=50, partitions=400, warm_up=900.0, duration=300.0, after=600.0),
}


@dataclass(frozen=True)
class Outcome:
    """What one simulation has come to.

    Attributes:
        moves_per_hour: how often a partition changed hands although nobody came or went.
        moved_partitions: how many different partitions did.
        doubled: the part of the time in which a partition was worked on by two workers, mean of all.
        idle: the part of the time in which nobody worked on a partition, mean of all.
        largest: the largest load of a worker over the least possible one, mean of the time.
        joined: when the loads were even with that of a newcomer, in seconds after it came; None if they were not.
        recovered: when all partitions of a worker that dies then were held by live ones, in seconds after its
            death; None if they were not.
    """

    algorithm: str
    moves_per_hour: float
    moved_partitions: int
    doubled: float
    idle: float
    largest: float
    joined: float | None
    recovered: float | None


class Fleet(Protocol):
    """Some workers, of whichever algorithm."""

    def working(self) -> Mapping[str, frozenset[str]]:
        """What each live worker works on now."""

    def kill(self, worker: str) -> None:
        """Let one die, without a word."""

    def join(self, worker: str) -> None:
        """Let one begin."""


class Originals:
    """Workers of the original algorithm."""

    def __init__(self, setting: Setting, agenda: Agenda, rng: random.Random) -> None:
        self.setting, self.rng = setting, rng
        self.cache = Cache(agenda, setting.slow)

    def join(self, worker: str) -> None:
        """Each partition is challenged at a moment of its own, and by no two nodes at the same one."""
        setting, names = self.setting, self.setting.weights
        node = ReferenceNode(worker, self.cache, setting.spans, setting.shutdown, setting.seconds, self.rng)
        apart = setting.spans.normal_lease / len(names)
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
        algorithm: with a heartbeat at the worker's own pace, by count, or neither.
    """

    def __init__(self, setting: Setting, agenda: Agenda, rng: random.Random, algorithm: str) -> None:
        self.setting, self.agenda, self.rng = setting, agenda, rng
        self.own_pace = algorithm == OWN_PACE
        self.by_load = algorithm != COUNTED
        self.store = MemoryStore()
        self.members: dict[str, Member] = {}
        self.paces: dict[str, Pace] = {}

    def join(self, worker: str) -> None:
        """Each one begins at a moment of its own."""
        work = Stopping(self.agenda, self.setting.shutdown)
        member = Member(self.store, worker, lambda _: self._partitions(), self.setting.spans, work)
        self.members[worker] = member
        self.paces[worker] = Pace(self.agenda, self.rng, lambda: self.setting.seconds(member.grants))
        begin = self.agenda.now + self.rng.uniform(0, self.setting.spans.look_every)
        self.agenda.at(begin, self._beats(member, Beat(self.store, worker, self.setting.partitions)))
        self.agenda.at(begin, self._looks(member))

    def working(self) -> Mapping[str, frozenset[str]]:
        """What each live worker holds, as far as it knows."""
        return {name: frozenset(member.grants) for name, member in self.members.items()}

    def kill(self, worker: str) -> None:
        """Let one die, with its heartbeat, as a machine does: nobody is told."""
        del self.members[worker]

    def _partitions(self) -> Collection[str]:
        weights, noise = self.setting.weights, self.setting.noise
        if not self.by_load:
            return tuple(weights)
        return {name: weight * self.rng.lognormvariate(0, noise) for name, weight in weights.items()}

    def _looks(self, member: Member) -> Callable[[], None]:
        def look() -> None:
            if member.name in self.members:
                seen = look_at(self.store, self.agenda.now)
                # A slow store answers when others have written already.
                self.agenda.at(self.agenda.now + self.setting.slow, lambda: act(seen))

        def act(seen: Look) -> None:
            if member.name in self.members:
                member.act(seen)
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


def simulate(algorithm: str, setting: Setting) -> Outcome:
    """Run one algorithm in one setting."""
    agenda, rng = Agenda(), random.Random(setting.seed)  # noqa: S311 - a seed makes it repeatable
    fleet: Fleet = (
        Originals(setting, agenda, rng) if algorithm == ORIGINAL else Leaseholders(setting, agenda, rng, algorithm)
    )
    for number in range(setting.workers):
        fleet.join(f"w{number:02d}")
    agenda.run_until(setting.warm_up)
    tally = Tally(setting, fleet.working())
    for second in range(1, int(setting.duration) + 1):
        agenda.run_until(setting.warm_up + second)
        tally.add(fleet.working())
    fleet.join("newcomer")
    joined = _until(lambda held: setting.largest(held) <= EVEN, fleet, agenda, setting)
    orphans = fleet.working()["w00"]
    fleet.kill("w00")
    recovered = _until(lambda held: orphans <= frozenset().union(*held.values()), fleet, agenda, setting)
    return Outcome(
        algorithm,
        moves_per_hour=round(tally.moves / setting.duration * 3600, 1),
        moved_partitions=len(tally.moved),
        doubled=round(tally.doubled / tally.looked, 4),
        idle=round(tally.idle / tally.looked, 4),
        largest=round(tally.largest / setting.duration, 3),
        joined=joined,
        recovered=recovered,
    )


class Tally:
    """Counts, second by second, who works on what."""

    def __init__(self, setting: Setting, working: Mapping[str, frozenset[str]]) -> None:
        self.setting, self.partitions = setting, tuple(setting.weights)
        self.moves = self.looked = self.doubled = self.idle = 0
        self.largest = 0.0
        self.moved: set[str] = set()
        self._last = {partition: worker for worker, held in working.items() for partition in held}

    def add(self, working: Mapping[str, frozenset[str]]) -> None:
        """Count one second."""
        self.largest += self.setting.largest(working)
        at: dict[str, list[str]] = {partition: [] for partition in self.partitions}
        for worker, held in working.items():
            for partition in held:
                at[partition].append(worker)
        self.looked += len(at)
        for partition, workers in at.items():
            self.doubled += len(workers) > 1
            self.idle += not workers
            if len(workers) == 1 and workers[0] != self._last.get(partition):
                self.moves += 1
                self.moved.add(partition)
                self._last[partition] = workers[0]


def _until(
    reached: Callable[[Mapping[str, frozenset[str]]], bool], fleet: Fleet, agenda: Agenda, setting: Setting
) -> float | None:
    """After how many seconds it is so; None if it does not come to it."""
    begin = agenda.now
    for second in range(1, int(setting.after) + 1):
        agenda.run_until(begin + second)
        if reached(fleet.working()):
            return float(second)
    return None


def measure(settings: Mapping[str, Setting] = SETTINGS) -> dict[str, Any]:
    """All algorithms in all settings."""
    logging.getLogger("skewless_leases").setLevel(logging.ERROR)  # what is lost in virtual time is no warning
    lines = []
    for name, setting in settings.items():
        algorithms = ALGORITHMS if setting.workers <= MOST_ORIGINALS else (COUNTED, LEASES)
        found = {algorithm: asdict(simulate(algorithm, setting)) for algorithm in algorithms}
        lines.append({"name": name, **asdict(setting), "found": found})
        sys.stderr.write(f"leases, {name}: {found[LEASES]}\n")
    return {"lines": lines, "setting": machine(), "verdicts": as_documents(_verdicts(lines))}


def _verdicts(lines: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    ours = [{**line, **line["found"][LEASES]} for line in lines]
    exact = [line for line in ours if line["noise"] <= SMALL_NOISE]
    prompt = [line for line in ours if line["piece"] <= 1]  # of others, one look alone may take minutes
    spans = TimeSpans()
    aims = (
        ("moves per hour where the workers stay the same", exact, "moves_per_hour", 0.0),
        ("part of the time in which a partition is held twice", exact, "doubled", 0.0),
        ("largest load over the least possible", ours, "largest", EVEN),
        ("seconds until a newcomer has its part", prompt, "joined", 2 * spans.normal_lease),
        ("seconds until a dead worker's partitions are held", prompt, "recovered",
         spans.maximum_lease + spans.normal_lease),
    )  # fmt: skip
    return [
        Verdict(words, "leases by load", _worst([line[name] for line in some]), aim) for words, some, name, aim in aims
    ]


def _worst(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return max(known) if len(known) == len(figures) else None


def page(document: Mapping[str, Any]) -> str:
    """The outcomes as a table of Markdown."""
    columns = {
        "moves: original": (ORIGINAL, "moves_per_hour"), "ours": (LEASES, "moves_per_hour"),
        "twice: original": (ORIGINAL, "doubled"), "own pace": (OWN_PACE, "doubled"),
        "largest: original": (ORIGINAL, "largest"), "by count": (COUNTED, "largest"), "ours ": (LEASES, "largest"),
        "newcomer": (LEASES, "joined"), "dead": (LEASES, "recovered"),
    }  # fmt: skip
    words = (
        "Virtual time, four workers, eight partitions for each. A piece of work takes a second for each average "
        "partition that its worker holds; in the row *idle* it takes no time, in the row *10 s* ten seconds. From "
        "*skew 0.4* on, weights of partitions follow Zipf's law, from *skew 0.8* on with the exponent 0.8. *Errors* "
        "are made by a worker that reads a weight. *Moves* are those of an hour with the same workers. *Twice* is the "
        "share of time in which two workers hold a partition; *own pace* is ours with the heartbeat in the worker. "
        "*Largest* is the largest load over the least possible. *Newcomer*: seconds until loads are within 1.1 of "
        "that. *Dead*: seconds until a dead worker's partitions have another."
    )
    lines = [
        [line["name"], *(_cell(line["found"], *column) for column in columns.values())] for line in document["lines"]
    ]
    return page_of("Leases under load", words, table(("", *columns), lines))


def _cell(found: Mapping[str, Mapping[str, float | None]], algorithm: str, name: str) -> str:
    if algorithm not in found:
        return ""
    value = found[algorithm][name]
    return "never" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
