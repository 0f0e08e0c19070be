"""Workers that share partitions under leases and commit under them, and processes that draw turns, in one store."""

from functools import partial
from typing import NamedTuple

from skewless_leases import FencedOutError, LeaseError, StoreError, Turns, open_store
from skewless_leases.fence import Grant, commit, read
from skewless_leases.lease import Heartbeat
from skewless_leases.lease_tables import TimeSpans
from skewless_leases.worker import Member
from tests.simulation.scenario import Scenario

SPANS = TimeSpans(normal_lease=8.0, maximum_lease=20.0, maximum_shutdown=4.0, minimum_grab=2.0, held_delay=0.1)
PARTITIONS = ("a", "b", "c")


class Write(NamedTuple):
    fence: int
    value: str
    began: int
    ended: float


class Leases(Scenario):
    """A store in a folder, in one of a network that loses answers, or in a bucket."""

    def begin(self) -> None:
        self.address = self.draws.choice(["/sim/leases", "/sim/leases", "s3://lake/leases"])
        self.machine.disk.remote = self.draws.random() < 0.5
        self.grants: dict[tuple[str, int], tuple[str, int]] = {}
        self.writes: dict[str, list[Write]] = {partition: [] for partition in PARTITIONS}
        self.drawn: list[tuple[int, int, int]] = []
        open_store(self.address)
        for number in range(self.draws.randint(2, 3)):
            after = self.draws.choice([0.0, 0.0, 30.0])
            self.world.begin(f"worker {number}", partial(self.work, number), after=after)
        for number in range(3):
            self.world.begin(f"drawer {number}", self.draw)

    def work(self, number: int) -> None:
        _Worker(self, number).work()

    def draw(self) -> None:
        turns = Turns(open_store(self.address))
        for _ in range(self.draws.choice([8, 20])):
            began = self.world.calls
            try:
                self.drawn.append((turns.draw(), began, self.world.calls))
            except StoreError:
                self.world.sleep(1.0)

    def end(self) -> None:
        """Turns are in order; a fence is passed by nobody; what was committed last is there."""
        for turn, _, ended in self.drawn:
            for other, later, _ in self.drawn:
                if ended < later:
                    self.require(turn < other, f"turn {other} was drawn after turn {turn}")
        turns = [turn for turn, _, _ in self.drawn]
        self.require(len(turns) == len(set(turns)), f"turns: {sorted(turns)}")
        store = open_store(self.address)
        for partition in PARTITIONS:
            for write in self.writes[partition]:
                passed = [
                    at for (name, fence), (_, at) in self.grants.items() if name == partition and fence > write.fence
                ]
                late = write.ended < float("inf") and any(at < write.began for at in passed)
                self.require(not late, f"{partition}: {write} after {passed}")
            self._last(partition, read(store, partition).value)

    def _last(self, partition: str, value: str | None) -> None:
        writes = self.writes[partition]
        done = [one for one in writes if one.ended < float("inf")]
        found = [one for one in writes if one.value == value]
        self.require(bool(found) or not done, f"{partition} has {value}, and nobody wrote it")
        for one in found:
            lost = [other for other in done if other.began > one.ended]
            self.require(not lost, f"{partition} has {value}, which was written before {lost}")


class _Worker:
    """One life of a worker."""

    def __init__(self, leases: Leases, number: int) -> None:
        self.leases, self.world = leases, leases.world
        self.name, self._writes = f"{number}-{self.world.calls}", 0

    def work(self) -> None:
        store = open_store(self.leases.address)
        beats = Heartbeat(self.leases.address, self.name, 9, SPANS.beat_every)
        member = Member(store, self.name, lambda _: PARTITIONS, SPANS, self)
        try:
            beats.begin()
        except LeaseError:
            return
        for _ in range(self.leases.draws.choice([8, 60])):  # 20 are a maximum lease
            try:
                member.step(self.world.now)
            except StoreError:
                continue
            for grant in member.grants.values():
                if self.leases.draws.random() < 0.5:
                    self._commit(member, grant)
            self.world.sleep(SPANS.look_every)
        beats.stop()
        member.leave()

    def _commit(self, member: Member, grant: Grant) -> None:
        self._writes += 1
        value, began, writes = f"{self.name}-{self._writes}", self.world.calls, self.leases.writes[grant.partition]
        writes.append(Write(grant.fence, value, began, float("inf")))
        at = len(writes) - 1
        try:
            commit(member.store, grant, value)
            writes[at] = Write(grant.fence, value, began, self.world.calls)
        except FencedOutError:
            writes[at] = Write(grant.fence, "nothing", began, float("inf"))
        except StoreError:
            return

    def granted(self, grant: Grant) -> None:
        holder, _ = self.leases.grants.setdefault((grant.partition, grant.fence), (grant.holder, self.world.calls))
        self.leases.require(holder == grant.holder, f"{grant} was granted to {holder}, too")

    def asked_back(self, _: Grant) -> bool:
        return True

    def lost(self, _: Grant) -> None:
        return None
