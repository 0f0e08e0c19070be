"""Writes that only the holder of the last grant makes, whoever comes in between its look and its write."""

from collections.abc import Callable

import pytest

from benchmarks.leases.memory_store import MemoryStore
from skewless_leases import fence
from skewless_leases.fence import LONGEST_VALUE_CHARACTERS, Grant, Standing, Turns
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


# Turns are drawn once, claimed and finished in order, whoever comes late or comes again.


def test_turns_are_numbered_from_one_and_above_one_that_is_known() -> None:
    turns = Turns(MemoryStore())
    assert [turns.draw(), turns.draw(), turns.draw(above=7), turns.draw(above=3)] == [1, 2, 8, 9]
    assert Turns(MemoryStore()).draw(above=4) == 5


def test_an_earlier_turn_is_not_claimed_once_a_later_one_is() -> None:
    turns = Turns(MemoryStore())
    assert turns.claim("day", 2, "b") == Standing(claimed=2, claimant="b")
    assert turns.claim("day", 1, "a") == Standing(claimed=2, claimant="b")
    assert turns.claim("day", 3, "c") == Standing(claimed=3, claimant="c")


def test_the_first_who_claims_a_turn_has_it() -> None:
    turns = Turns(MemoryStore())
    turns.claim("day", 1, "a")
    assert turns.claim("day", 1, "b").claimant == "a"
    assert turns.claim("day", 1, "a").claimant == "a"


class _Between(MemoryStore):
    """A store in which somebody else claims turn 5 between a read and the write that follows it."""

    came = False

    def get(self, key: str) -> Versioned | None:
        read = super().get(key)
        if not self.came:
            self.came = True
            Turns(self).claim("day", 5, "b")
        return read


def test_a_claim_that_somebody_came_between_looks_again() -> None:
    assert Turns(_Between()).claim("day", 4, "a") == Standing(claimed=5, claimant="b")


def test_what_is_finished_late_does_not_count() -> None:
    turns = Turns(MemoryStore())
    turns.claim("day", 1, "a")
    turns.claim("day", 2, "b")
    assert turns.finish("day", 2, "b") == Standing(2, "b", 2, "b")
    assert turns.finish("day", 1, "a") == Standing(2, "b", 2, "b")
    assert turns.look("day") == Standing(2, "b", 2, "b")


def test_an_earlier_turn_may_be_finished_while_a_later_one_is_under_way_and_twice() -> None:
    turns = Turns(MemoryStore())
    turns.claim("day", 1, "a")
    turns.claim("day", 2, "b")
    for _ in range(2):
        assert turns.finish("day", 1, "a") == Standing(2, "b", 1, "a")


def test_a_turn_whose_claim_was_lost_with_the_store_is_claimed_as_it_is_finished() -> None:
    turns = Turns(MemoryStore())
    assert turns.finish("day", 5, "a") == Standing(5, "a", 5, "a")


def test_names_stand_apart() -> None:
    turns = Turns(MemoryStore())
    turns.claim("monday", 3, "a")
    assert turns.look("tuesday") == Standing()


@pytest.mark.parametrize(
    "value",
    [
        b"", b"3", b"[]", b'{"claimed":1}', b'{"claimed":1,"claimant":"a","finished":2,"finisher":"a"}',
        b'{"claimed":"1","claimant":"a","finished":0,"finisher":""}',
        b'{"claimed":1,"claimant":"a","finished":-1,"finisher":""}',
    ],
)  # fmt: skip
def test_turns_edited_by_hand_are_refused(value: bytes) -> None:
    store = MemoryStore()
    store.put("turns/day", value, None)
    with pytest.raises(LeaseError, match="turns of day: expected two numbers and two names, but got b'"):
        Turns(store).claim("day", 3, "a")


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1" * 19])
def test_a_counter_edited_by_hand_is_refused(value: bytes) -> None:
    store = MemoryStore()
    store.put("turns-drawn", value, None)
    with pytest.raises(LeaseError, match="turns that were drawn: expected a number, but got b'"):
        Turns(store).draw()
