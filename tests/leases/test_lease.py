"""One lease on one partition, between real processes: who waits, who takes over, and who writes nothing any more."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skewless_leases import KeyValueStore, Lease, LeaseError, StoreError, Versioned, open_store, read
from skewless_leases.lease_tables import ALLOCATION
from tests.leases.holder import PARTITION, SPANS
from tests.processes import Told, until


class Holder(Told):
    def __init__(self, address: str) -> None:
        super().__init__(Path(__file__).with_name("holder.py"), address)

    def said(self, word: str) -> str:
        until(lambda: self.has_said(word), word)
        return next(line for line in self.lines if line.startswith(word))

    def has_said(self, word: str) -> bool:
        return any(line.startswith(word) for line in self.lines)


Begin = Callable[[], Holder]


@pytest.fixture
def begin(address: str) -> Iterator[Begin]:
    started: list[Holder] = []

    def holder() -> Holder:
        started.append(Holder(address))
        return started[-1]

    yield holder
    for one in started:  # in this order: whoever waits has to be granted it before it can end
        one.end()


def test_a_second_one_waits_until_the_first_is_done_and_goes_on_from_what_it_committed(
    begin: Begin, address: str
) -> None:
    first = begin()
    assert first.said("granted") == "granted 1\n"
    second = begin()
    assert "under fencing number 1" in second.said("waiting")
    first.tell("commit done")
    first.said("committed")
    time.sleep(2 * SPANS.maximum_lease)  # alive, it is left in peace
    assert not second.has_said("granted")
    first.tell("leave")
    assert second.said("granted") == "granted 2\n"
    assert read(open_store(address), PARTITION).value == "done"
    second.tell("leave")
    second.process.wait(30)
    rows = open_store(address).scan()
    assert list(rows) == [ALLOCATION + PARTITION]  # nothing of the workers is left


def test_one_that_was_stopped_and_wakes_writes_nothing(begin: Begin, address: str) -> None:
    first = begin()
    first.said("granted")
    first.process.send_signal(signal.SIGSTOP)
    second = begin()
    assert second.said("granted") == "granted 2\n"
    assert len(open_store(address).scan()) == 2, "the partition, and the one that holds it: the other is forgotten"
    first.tell("commit late")
    first.process.send_signal(signal.SIGCONT)
    assert "expected fencing number 1" in first.said("refused")
    assert read(open_store(address), PARTITION).value is None
    second.tell("commit mine")
    second.said("committed")
    first.tell("commit later")
    until(lambda: sum(line.startswith("refused") for line in first.lines) == 2, "the second refusal")
    assert read(open_store(address), PARTITION).value == "mine"
    first.tell("leave")
    first.process.wait(30)
    assert read(open_store(address), PARTITION).holder is not None  # it did not give back what it did not hold


class AwayFor:
    def __init__(self, store: KeyValueStore, looks: float) -> None:
        self._store, self._looks = store, looks
        self.get, self.put, self.delete = store.get, store.put, store.delete

    def scan(self) -> dict[str, Versioned]:
        self._looks -= 1
        if self._looks >= 0:
            raise StoreError("store", "an answer", "none")
        return self._store.scan()


@pytest.mark.long
def test_a_store_that_is_away_for_a_moment_is_waited_for_and_one_that_is_gone_is_told(address: str) -> None:
    lease = Lease(address, PARTITION, "holder", SPANS)
    real = lease.store
    lease.store = AwayFor(real, 3)
    with lease:
        assert lease.grant.fence == 1
    lease.store = AwayFor(real, math.inf)
    began = time.monotonic()
    with pytest.raises(StoreError, match="expected an answer, but got none"), lease:
        pytest.fail("it is held")
    assert time.monotonic() - began > SPANS.maximum_lease


def test_a_lease_that_was_not_entered_has_no_grant(address: str) -> None:
    with pytest.raises(LeaseError, match="it is not held; enter it first"):
        _ = Lease(address, PARTITION, "holder", SPANS).grant
