"""Real workers, real signals, both back ends: what a lease must survive, and what it must not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skewless_leases.balancing.worker import Worker
from skewless_leases.lease_errors import LeaseError, StoreError
from skewless_leases.ownership.fence import Grant, read
from skewless_leases.stores import open_store
from skewless_leases.stores.file_store import FileStore
from skewless_leases.stores.lease_tables import look_at
from skewless_leases.stores.store import KeyValueStore
from tests.leases.player import PARTITIONS, SPANS, spans_at
from tests.leases.simulated_workers import Diary
from tests.processes import PATIENCE_SECONDS, Told, until


class Player(Told):
    """A worker; what it says are documents of JSON."""

    def __init__(self, address: str, name: str) -> None:
        self.store: KeyValueStore = open_store(address)
        super().__init__(Path(__file__).with_name("player.py"), address, name)

    @property
    def name(self) -> str:
        return str(self.wait_for("begun")["name"])

    def all(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in map(json.loads, list(self.lines)) if entry["event"] == event]

    def wait_for(self, event: str) -> dict[str, Any]:
        until(lambda: bool(self.all(event)), event)
        return self.all(event)[-1]

    def commit(self, partition: str, value: str) -> None:
        """Commit under the last grant, once it has been told of it: it may have held the partition before."""
        last = (partition, read(self.store, partition).fence)
        until(
            lambda: last in [(entry["partition"], entry["fence"]) for entry in self.all("granted")], f"{last} granted"
        )
        before = len(self.all("committed"))
        self.tell(f"commit {partition} {value}")
        until(lambda: len(self.all("committed")) > before, f"{partition} committed")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


class Scene:
    """Two workers that share the partitions, and the store that they share them by."""

    def __init__(self, address: str) -> None:
        # Who looks on, beside processes that take all of the machine.
        self.store: KeyValueStore = open_store(address, answer_seconds=PATIENCE_SECONDS)
        self.spans = spans_at(address)
        self.players = [Player(address, "one"), Player(address, "other")]
        self.one, self.other = self.players

    def loads(self) -> dict[str | None, int]:
        loads: dict[str | None, int] = {player.name: 0 for player in self.players}
        for partition in PARTITIONS:
            holder = read(self.store, partition).holder
            loads[holder] = loads.get(holder, 0) + 1
        return loads

    def fences(self) -> dict[str, int]:
        return {partition: read(self.store, partition).fence for partition in PARTITIONS}

    def held_by(self, player: Player) -> list[str]:
        return [partition for partition in PARTITIONS if read(self.store, partition).holder == player.name]

    def settle(self) -> dict[str, int]:
        before: dict[str, int] = {}
        while before != self.fences() or self.store.scan("grab/"):
            before = self.fences()
            time.sleep(2 * self.spans.normal_lease)
        return before


@contextlib.contextmanager
def played_at(address: str) -> Iterator[Scene]:
    scene = Scene(address)
    try:
        until(lambda: scene.loads() == {scene.one.name: 3, scene.other.name: 3}, "three partitions each")
        yield scene
    finally:
        for player in scene.players:
            player.end()


@pytest.fixture
def scene(address: str) -> Iterator[Scene]:
    with played_at(address) as scene:
        yield scene


def longest_pauses(store: KeyValueStore, seconds: float) -> dict[str, float]:
    """For how long each heartbeat did not change, at the longest, while we looked."""
    began = time.monotonic()
    changed: dict[str, tuple[int, float]] = {}
    pauses: dict[str, float] = {}
    while (now := time.monotonic()) - began < seconds:
        for worker, row in look_at(store, now).presences.items():
            beat, since = changed.get(worker, (-1, now))
            pauses[worker] = max(pauses.get(worker, 0.0), now - since)
            if row.record.beat != beat:
                changed[worker] = (row.record.beat, now)
        time.sleep(0.01)
    return pauses


@pytest.mark.long
def test_a_worker_at_full_load_for_ten_lease_times_keeps_its_leases(scene: Scene) -> None:
    fences = scene.settle()
    scene.one.tell(f"burn {10 * scene.spans.maximum_lease}")
    pauses = longest_pauses(scene.store, 10 * scene.spans.maximum_lease)
    scene.one.wait_for("burnt")
    assert scene.fences() == fences
    assert pauses[scene.one.name] < scene.spans.maximum_lease
    scene.one.commit(scene.held_by(scene.one)[0], "after")


def test_a_worker_that_is_stopped_in_the_middle_of_its_writes_cannot_end_them(scene: Scene) -> None:
    scene.settle()
    late = scene.held_by(scene.one)[0]
    scene.one.tell(f"commit_on {late}")
    until(lambda: (read(scene.store, late).value or "0") != "0", "some writes")
    scene.one.signal(signal.SIGSTOP)
    until(lambda: late in scene.held_by(scene.other), "the other one to hold it")
    scene.other.commit(late, "successor")
    scene.one.signal(signal.SIGCONT)
    scene.one.wait_for("refused")
    assert read(scene.store, late).value == "successor"


def test_a_worker_that_is_killed_is_replaced_after_the_maximum_lease_time(scene: Scene) -> None:
    fences = scene.settle()
    kept = scene.held_by(scene.other)
    scene.one.signal(signal.SIGKILL)
    died = time.monotonic()
    until(lambda: len(scene.held_by(scene.other)) == 6, "the other one to hold all")
    assert time.monotonic() - died >= scene.spans.maximum_lease - 2 * scene.spans.beat_every
    assert {partition: scene.fences()[partition] for partition in kept} == {
        partition: fences[partition] for partition in kept
    }


class Failing:
    def granted(self, grant: Grant) -> None:
        raise ZeroDivisionError(grant.partition)

    def asked_back(self, grant: Grant) -> bool:
        return bool(grant)

    def lost(self, grant: Grant) -> None:
        assert grant


def test_work_that_fails_ends_the_taking_part_and_says_so(address: str) -> None:
    def take_part() -> None:
        with Worker(address, "failing", room=1, partitions=lambda _: ["p0"], spans=SPANS, work=Failing()) as worker:
            while True:
                worker.grants()
                time.sleep(0.005)

    with pytest.raises(LeaseError, match="ZeroDivisionError: p0"):
        take_part()
    assert read(open_store(address), "p0").holder is None


def begun(address: str, name: str, partitions: list[str]) -> Worker:
    work = Diary(name, time.monotonic)
    return Worker(address, name, room=9, partitions=lambda _: partitions, spans=SPANS, work=work)


def test_a_value_that_is_out_of_sight_for_some_looks_ends_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partitions, store = ["p0", "p1"], FileStore(str(tmp_path))
    with begun(str(tmp_path), "one", partitions) as worker:
        until(lambda: len(worker.grants()) == 2, "both to be held")
        row = store.get("allocation/p0")
        assert row
        # As with a listing that is older than the last write: it names a value that is gone.
        value, hidden = tmp_path / "values" / row.version, tmp_path / "hidden"
        value.rename(hidden)
        with pytest.raises(StoreError, match="it is empty"):
            look_at(store, 0.0)
        until(lambda: bool(worker.grants()) and caplog.text.count("and tries again") > 1, "two looks in vain")
        hidden.rename(value)
        partitions.append("p2")
        until(lambda: len(worker.grants()) == 3, "the third one to be held, too")
        worker.commit(worker.grants()["p0"], "after")
    assert read(store, "p0").value == "after"


@pytest.mark.long
def test_a_name_that_the_store_can_never_hold_is_refused_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(LeaseError, match="expected a key of at most 200 bytes, quoted, but got 'workers/nnn"):
        begun(str(tmp_path), "n" * 300, ["p0"]).__enter__()
    assert time.monotonic() - began < PATIENCE_SECONDS
    with pytest.raises(LeaseError, match="got 'allocation/qqq"), begun(str(tmp_path), "one", ["q" * 300]) as worker:
        until(lambda: bool(worker.grants()), "its refusal")


def test_what_went_wrong_in_the_work_is_not_hidden_by_what_goes_wrong_in_leaving(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))

    def take_part() -> None:
        with begun(str(tmp_path), "one", ["p0", "p1"]) as worker:
            until(lambda: len(worker.grants()) == 2, "both to be held")
            row = store.get("allocation/p0")
            assert row
            store.put("allocation/p0", b"torn", row.version)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_part()
    assert read(store, "p1").holder is None
