"""What the leases are for: workers of different speed share tasks, the faster does more, a dead one's are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from benchmarks.leases.agenda import Agenda
from benchmarks.leases.memory_store import MemoryStore
from skewless_leases.balancing.member import Member
from skewless_leases.errors import FencedOutError
from skewless_leases.liveness.heartbeat_process import Beat
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant, commit, keep
from skewless_leases.stores.tables import look_at

SPANS = TimeSpans.around(4)
TASKS = [f"task{number:02d}" for number in range(40)]


class Cluster:
    """Does the tasks that it is granted one after the other, and holds one more so that it does not wait."""

    def __init__(self, name: str, seconds: float, agenda: Agenda, store: MemoryStore) -> None:
        self.name, self.seconds, self.agenda, self.store = name, seconds, agenda, store
        self.member = Member(store, name, todo, SPANS, self)
        self.waiting: list[Grant] = []
        self.doing: Grant | None = None
        self.dead = False
        self.refused = 0
        self._beat = Beat(store, name, 2)
        self._beats()
        self._looks()

    def granted(self, grant: Grant) -> None:
        self.waiting.append(grant)
        self._begin()

    def asked_back(self, grant: Grant) -> bool:
        assert grant != self.doing
        self.waiting.remove(grant)
        return True

    def lost(self, grant: Grant) -> None:
        self.waiting = [other for other in self.waiting if other != grant]

    def _begin(self) -> None:
        if self.doing is None and self.waiting:
            self.doing = self.waiting.pop(0)
            keep(self.store, self.doing)
            self.agenda.at(self.agenda.now + self.seconds, self._end)

    def _end(self) -> None:
        assert self.doing
        if self.dead:
            return
        try:
            commit(self.store, self.doing, f"{self.name} at {self.agenda.now}")
        except FencedOutError:
            self.refused += 1
        self.doing = None
        self._begin()

    def _beats(self) -> None:
        if not self.dead:
            self._beat.once()
            self.agenda.at(self.agenda.now + SPANS.beat_every, self._beats)

    def _looks(self) -> None:
        if not self.dead:
            self.member.step(self.agenda.now)
            self.agenda.at(self.agenda.now + SPANS.look_every, self._looks)


def todo(committed: Mapping[str, str]) -> list[str]:
    return [task for task in TASKS if task not in committed]


def finish(agenda: Agenda, store: MemoryStore) -> dict[str, str]:
    while len(look_at(store, 0.0).committed()) < len(TASKS):
        agenda.run_until(agenda.now + 1)
        assert agenda.now < 10_000
    return look_at(store, 0.0).committed()


def shares(done: Mapping[str, str]) -> Counter[str]:
    return Counter(value.split()[0] for value in done.values())


def test_the_faster_does_more_and_both_together_are_faster_than_either() -> None:
    agenda, store = Agenda(), MemoryStore()
    fast, slow = Cluster("fast", 10, agenda, store), Cluster("slow", 40, agenda, store)
    done = finish(agenda, store)
    assert shares(done)["fast"] in range(30, 35)
    # Alone the fast one needs 400 s; together 320 s is the least there can be, and the slow one's last task more.
    assert agenda.now < 320 + 40
    assert fast.refused == slow.refused == 0


def test_what_a_dead_one_held_is_done_by_the_other_and_nothing_twice() -> None:
    agenda, store = Agenda(), MemoryStore()
    fast, slow = Cluster("fast", 10, agenda, store), Cluster("slow", 40, agenda, store)
    agenda.run_until(100)
    fast.dead = True
    before = look_at(store, 0.0).committed()
    done = finish(agenda, store)
    assert {task: done[task] for task in before} == before
    assert shares(done)["fast"] == shares(before)["fast"]
    assert slow.refused == 0


def test_one_that_is_silent_for_too_long_has_its_task_done_by_another_and_its_own_refused() -> None:
    agenda, store = Agenda(), MemoryStore()
    one, other = Cluster("one", 60, agenda, store), Cluster("other", 10, agenda, store)
    agenda.run_until(30)
    task = one.doing
    assert task
    one._beat.key += "-unheard"  # its machine has lost the network to the store, then finds it again
    done = finish(agenda, store)
    agenda.run_until(agenda.now + 100)
    assert done[task.partition].startswith("other")
    assert one.refused >= 1
    assert look_at(store, 0.0).committed() == done
    assert other.refused == 0
