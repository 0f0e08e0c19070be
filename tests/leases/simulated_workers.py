"""Members on a store in memory, in virtual time: heartbeats that are on time, and a clock of our own."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.leases.agenda import Agenda
from benchmarks.leases.memory_store import MemoryStore
from skewless_leases.fence import Grant, read
from skewless_leases.lease import Beat
from skewless_leases.lease_tables import TimeSpans, look_at
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
    """The steps of a case of ``cases.yaml`` are methods that take one argument."""

    def __init__(self, partitions: Sequence[str], spans: TimeSpans) -> None:
        self.partitions, self.spans = partitions, spans
        self.agenda, self.store = Agenda(), MemoryStore()
        self.members: dict[str, Member] = {}
        self.diaries: dict[str, Diary] = {}
        self.beats: dict[str, Beat] = {}
        self.frozen, self.silent, self.hung = set[str](), set[str](), set[str]()
        self.freeze, self.wake = self.frozen.add, self.frozen.remove
        self.mute, self.unmute, self.hang = self.silent.add, self.silent.remove, self.hung.add
        self.marked = 0

    def join(self, rooms: Mapping[str, int], *, stops: bool = True) -> None:
        for name, room in rooms.items():
            self.diaries[name] = Diary(name, lambda: self.agenda.now, stops)
            self.members[name] = Member(self.store, name, lambda _: self.partitions, self.spans, self.diaries[name])
            self.beats[name] = Beat(self.store, name, room)
            self._beats(name, self.beats[name])
            self._looks(name, self.members[name])

    def join_stubborn(self, rooms: Mapping[str, int]) -> None:
        self.join(rooms, stops=False)

    def kill(self, name: str) -> None:
        del self.members[name]

    def leave(self, name: str) -> None:
        self.beats[name].once(gone=True)
        self.members.pop(name).leave()

    def wait(self, leases: float) -> None:
        self.agenda.run_until(self.agenda.now + leases * self.spans.normal_lease)

    def mark(self, _: None) -> None:
        self.marked = self._grants()

    def held(self, loads: Mapping[str, int]) -> None:
        holders = Counter(read(self.store, partition).holder for partition in self.partitions)
        assert {name: holders[name] for name in self.members} == loads

    def moved(self, count: int) -> None:
        assert self._grants() - self.marked == count

    def lost(self, counts: Mapping[str, int]) -> None:
        assert {name: len(self.diaries[name].lost_grants) for name in counts} == counts

    def grabs(self, count: int) -> None:
        assert len(look_at(self.store, 0.0).grabs) == count

    def _grants(self) -> int:
        return sum(len(diary.granted_to) for diary in self.diaries.values())

    def _beats(self, name: str, beat: Beat) -> None:
        if name in self.members:
            if name not in self.frozen | self.silent:
                beat.once()
            self.agenda.at(self.agenda.now + self.spans.beat_every, lambda: self._beats(name, beat))

    def _looks(self, name: str, member: Member) -> None:
        if self.members.get(name) is member:
            if name not in self.frozen | self.hung:
                member.step(self.agenda.now)
            self.agenda.at(self.agenda.now + self.spans.look_every, lambda: self._looks(name, member))
