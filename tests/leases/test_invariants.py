"""Whatever workers do, and in whatever order: one holder at a time, numbers that grow, and all held in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from benchmarks.leases.memory_store import MemoryStore
from skewless_leases.balancing.member import Member
from skewless_leases.errors import FencedOutError
from skewless_leases.liveness.heartbeat import Beat
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant, commit, read
from skewless_leases.stores.tables import Look, look_at

SPANS = TimeSpans.around(8)
PARTITIONS = [f"p{number}" for number in range(6)]
WHO = st.integers(0, 99)


@dataclass
class Someone:
    """A worker, with the look that it has not acted on yet. It may be slow to stop."""

    name: str
    room: int
    stops: bool
    store: MemoryStore
    ever: list[Grant] = field(default_factory=list)
    look: Look | None = None

    def __post_init__(self) -> None:
        self.member = Member(self.store, self.name, lambda _: PARTITIONS, SPANS, self)
        self.beat = Beat(self.store, self.name, self.room)

    def granted(self, grant: Grant) -> None:
        self.ever.append(grant)

    def asked_back(self, grant: Grant) -> bool:  # noqa: ARG002
        return self.stops

    def lost(self, grant: Grant) -> None:
        assert grant in self.ever


class Leases(RuleBasedStateMachine):
    """Workers join, look, act on looks that are out of date, beat, are silent for long, die, leave, write late."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.store = MemoryStore()
        self.alive: list[Someone] = []
        self.ever: list[Someone] = []
        self.fences = dict.fromkeys(PARTITIONS, 0)

    @precondition(lambda self: len(self.alive) < 5)
    @rule(room=st.integers(0, 7), stops=st.booleans())
    def join(self, room: int, stops: bool) -> None:
        someone = Someone(f"w{len(self.ever)}", room, stops, self.store)
        someone.beat.once()
        self.alive.append(someone)
        self.ever.append(someone)

    @precondition(lambda self: self.alive)
    @rule(who=WHO)
    def look(self, who: int) -> None:
        someone = self.alive[who % len(self.alive)]
        someone.look = look_at(self.store, self.time)

    @precondition(lambda self: self.alive)
    @rule(who=WHO)
    def act(self, who: int) -> None:
        someone = self.alive[who % len(self.alive)]
        look, someone.look = someone.look, None
        if look:
            someone.member.act(look)

    @precondition(lambda self: self.alive)
    @rule(who=WHO)
    def beat(self, who: int) -> None:
        self.alive[who % len(self.alive)].beat.once()

    @precondition(lambda self: self.alive)
    @rule(who=WHO)
    def die(self, who: int) -> None:
        del self.alive[who % len(self.alive)]

    @precondition(lambda self: self.alive)
    @rule(who=WHO)
    def leave(self, who: int) -> None:
        someone = self.alive.pop(who % len(self.alive))
        someone.beat.once(gone=True)
        someone.member.leave()

    @rule(seconds=st.sampled_from([SPANS.look_every, SPANS.normal_lease, SPANS.maximum_lease]))
    def wait(self, seconds: float) -> None:
        self.time += seconds

    @rule(looks=st.integers(1, 12))
    def run_on_time(self, looks: int) -> None:
        for _ in range(looks):
            self.time += SPANS.look_every
            for someone in self.alive:
                someone.beat.once()
            for someone in self.alive:
                someone.look = None
                someone.member.step(self.time)

    @rule(seconds=st.sampled_from([SPANS.look_every, SPANS.normal_lease]))
    def all_look_and_then_act(self, seconds: float) -> None:
        """Every one but the first acts on what is no longer so."""
        self.time += seconds
        for someone in self.alive:
            someone.beat.once()
            someone.look = look_at(self.store, self.time)
        for place in range(len(self.alive)):
            self.act(place)

    @precondition(lambda self: any(someone.ever for someone in self.ever))
    @rule(who=WHO)
    def write_late_or_not(self, who: int) -> None:
        """Under any grant there ever was, also one of the dead."""
        grants = [grant for someone in self.ever for grant in someone.ever]
        grant = grants[who % len(grants)]
        now = read(self.store, grant.partition)
        valid = (now.fence, now.holder) == (grant.fence, grant.holder)
        value = f"{grant.holder} {grant.fence}"
        try:
            commit(self.store, grant, value)
        except FencedOutError:
            assert not valid
            assert read(self.store, grant.partition) == now
        else:
            assert valid
            assert read(self.store, grant.partition).value == value

    @invariant()
    def fencing_numbers_only_grow(self) -> None:
        for partition in PARTITIONS:
            fence = read(self.store, partition).fence
            assert fence >= self.fences[partition]
            self.fences[partition] = fence

    @invariant()
    def no_number_is_granted_twice(self) -> None:
        granted = [(grant.partition, grant.fence) for someone in self.ever for grant in someone.ever]
        assert len(granted) == len(set(granted))

    @invariant()
    def nobody_holds_more_than_it_has_room_for(self) -> None:
        for someone in self.ever:
            assert sum(read(self.store, partition).holder == someone.name for partition in PARTITIONS) <= someone.room

    def teardown(self) -> None:
        """Left in peace, all that there is room for is held, evenly, and then nothing moves any more."""
        self.run_on_time(int(8 * (SPANS.maximum_lease + SPANS.normal_lease) / SPANS.look_every / 2))
        held = self._held()
        rooms = {someone.name: someone.room for someone in self.alive}
        assert sum(held.values()) == min(len(PARTITIONS), sum(rooms.values()))
        for poor, load in held.items():
            if load < rooms[poor]:
                assert max(held.values()) - load <= 1
        fences = {partition: read(self.store, partition).fence for partition in PARTITIONS}
        self.run_on_time(200)
        assert {partition: read(self.store, partition).fence for partition in PARTITIONS} == fences

    def _held(self) -> dict[str, int]:
        holders = [read(self.store, partition).holder for partition in PARTITIONS]
        return {someone.name: holders.count(someone.name) for someone in self.alive}


TestLeases = Leases.TestCase
