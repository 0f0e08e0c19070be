"""Writes that only the holder of the last grant makes, whoever comes in between its look and its write."""

from collections.abc import Callable

import pytest

from benchmarks.leases.memory_store import MemoryStore
from skewless_leases import fence
from skewless_leases.fence import LONGEST_VALUE_CHARACTERS, Grant
from skewless_leases.lease import Beat
from skewless_leases.lease_tables import WORKERS, look_at
from skewless_leases.store import FencedOutError, LeaseError, Versioned

PARTITION = "p"


class OvertakenOnce(MemoryStore):
    """A store in which somebody else is served between a worker's read and whatever it does with it."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def get(self, key: str) -> Versioned | None:
        read = super().get(key)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        return read


@pytest.fixture
def store() -> OvertakenOnce:
    return OvertakenOnce()


def take(store: MemoryStore, worker: str) -> Grant:
    granted = fence.take(store, PARTITION, worker, look_at(store, 0.0).allocations.get(PARTITION))
    assert granted
    return granted


WRITES: dict[str, Callable[[MemoryStore, Grant], None]] = {
    "commit": lambda store, grant: fence.commit(store, grant, "late"),
    "release": fence.release,
    "keep": fence.keep,
}


@pytest.mark.parametrize("successor", ["second", "first"], ids=["by another one", "by itself"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_holder_that_is_succeeded_between_its_look_and_its_write_writes_nothing(
    store: OvertakenOnce, write: Callable[[MemoryStore, Grant], None], successor: str
) -> None:
    mine = take(store, "first")
    fence.commit(store, mine, "early")
    store.meanwhile = lambda: take(store, successor)
    with pytest.raises(FencedOutError, match=rf"expected fencing number 1 of first .* but got 2, held by {successor}"):
        write(store, mine)
    record = fence.read(store, PARTITION)
    assert (record.fence, record.holder, record.value, record.kept) == (2, successor, "early", False)


def test_two_processes_under_one_grant_lose_none_of_their_writes(store: OvertakenOnce) -> None:
    mine = take(store, "first")
    store.meanwhile = lambda: fence.keep(store, mine)
    fence.commit(store, mine, "done")
    record = fence.read(store, PARTITION)
    assert (record.value, record.kept) == ("done", True)


def test_of_two_that_have_seen_the_same_record_one_becomes_the_holder(store: OvertakenOnce) -> None:
    seen = look_at(store, 0.0).allocations.get(PARTITION)
    take(store, "second")
    assert fence.take(store, PARTITION, "first", seen) is None
    assert fence.read(store, PARTITION).holder == "second"


def test_each_grant_has_a_higher_number_also_after_a_release(store: OvertakenOnce) -> None:
    numbers = []
    for _ in range(3):
        grant = take(store, "same")
        numbers.append(grant.fence)
        fence.keep(store, grant)
        fence.release(store, grant)
        assert not fence.read(store, PARTITION).kept, "what was asked under a grant ends with it"
    assert numbers == [1, 2, 3]
    fence.keep(store, take(store, "dies"))
    take(store, "heir")
    assert not fence.read(store, PARTITION).kept


@pytest.mark.parametrize(
    "other", [Grant(PARTITION, 1, "second"), Grant(PARTITION, 2, "first"), Grant("q", 1, "first")],
    ids=["another holder", "another number", "another partition"],
)  # fmt: skip
def test_a_grant_that_was_never_given_writes_nothing(store: OvertakenOnce, other: Grant) -> None:
    take(store, "first")
    for write in (*WRITES.values(), fence.check):
        with pytest.raises(FencedOutError, match="nothing was written"):
            write(store, other)


def test_a_value_is_a_pointer_and_not_the_data(store: OvertakenOnce) -> None:
    mine = take(store, "first")
    fence.commit(store, mine, "x" * LONGEST_VALUE_CHARACTERS)
    with pytest.raises(LeaseError, match="expected a value of at most 65536 characters, but got 65537"):
        fence.commit(store, mine, "y" * (LONGEST_VALUE_CHARACTERS + 1))
    assert fence.read(store, PARTITION).value == "x" * LONGEST_VALUE_CHARACTERS


def test_a_beat_whose_record_somebody_changed_or_removed_writes_over_what_is_there(store: OvertakenOnce) -> None:
    beat, key = Beat(store, "one", 1), f"{WORKERS}one"
    assert beat.once()
    for meddle in (lambda version: store.put(key, b"other", version), lambda version: store.delete(key, version)):
        seen = store.get(key)
        assert seen
        assert meddle(seen.version)
        assert [beat.once(), beat.once()] == [False, True]
