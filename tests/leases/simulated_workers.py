"""Members on a store in memory, in virtual time: heartbeats that are on time, and a clock of our own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.leases.agenda import Agenda
from benchmarks.leases.memory_store import MemoryStore
from skewless_leases.decisions import Action
from skewless_leases.fence import Grant, read
from skewless_leases.lease import Beat
from skewless_leases.lease_tables import TimeSpans
from skewless_leases.worker import Member


@dataclass
class Diary:
    """Work that writes down what it is told; it stops at once, unless it is told not to."""

    worker: str
    now: Callable[[], float]
    stops: bool = True
    granted_to: list[tuple[float, Grant]] = field(default_factory=list)
    lost_grants: list[Grant] = field(default_factory=list)

    def granted(self, grant: Grant) -> None:
        self.granted_to.append((self.now(), grant))

    def asked_back(self, grant: Grant) -> bool:
        assert grant.holder == self.worker
        return self.stops

    def lost(self, grant: Grant) -> None:
        self.lost_grants.append(grant)


class SimulatedWorkers:
    def __init__(self, partitions: Sequence[str], spans: TimeSpans) -> None:
        self.partitions, self.spans = partitions, spans
        self.agenda, self.store = Agenda(), MemoryStore()
        self.members: dict[str, Member] = {}
        self.diaries: dict[str, Diary] = {}
        self.rooms: dict[str, int] = {}
        self.beats: dict[str, Beat] = {}
        self.frozen: set[str] = set()
        self.silent: set[str] = set()
        self.hung: set[str] = set()
        self.actions: list[tuple[float, str, Action]] = []

    def join(self, name: str, room: int = 1000, *, stops: bool = True) -> None:
        diary = Diary(name, lambda: self.agenda.now, stops)
        member = Member(self.store, name, lambda _: self.partitions, self.spans, diary)
        self.members[name], self.diaries[name], self.rooms[name] = member, diary, room
        self.beats[name] = beat = Beat(self.store, name, room)
        self._beats(name, beat)
        self._looks(name, member)

    def kill(self, name: str) -> None:
        del self.members[name]

    def leave(self, name: str) -> None:
        self.beats[name].once(gone=True)
        self.members.pop(name).leave()

    def run(self, seconds: float) -> None:
        self.agenda.run_until(self.agenda.now + seconds)

    def held(self) -> dict[str, list[str]]:
        holders = {partition: read(self.store, partition).holder for partition in self.partitions}
        return {name: [partition for partition, by in holders.items() if by == name] for name in self.members}

    def loads(self) -> dict[str, int]:
        return {name: len(grants) for name, grants in self.held().items()}

    def grants(self) -> list[tuple[float, Grant]]:
        return sorted(
            (entry for diary in self.diaries.values() for entry in diary.granted_to), key=lambda entry: entry[0]
        )

    def _beats(self, name: str, beat: Beat) -> None:
        if name in self.members:
            if name not in self.frozen | self.silent:
                beat.once()
            self.agenda.at(self.agenda.now + self.spans.beat_every, lambda: self._beats(name, beat))

    def _looks(self, name: str, member: Member) -> None:
        if self.members.get(name) is member:
            if name not in self.frozen | self.hung:
                self.actions += [(self.agenda.now, name, action) for action in member.step(self.agenda.now)]
            self.agenda.at(self.agenda.now + self.spans.look_every, lambda: self._looks(name, member))
