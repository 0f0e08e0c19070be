"""The parts on their own: spans, shares, silence, fences, records, and no wall clock anywhere."""

import ast
import itertools
import math
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skewless_leases
from benchmarks.leases.memory_store import MemoryStore
from skewless_leases.decisions import WORTH_A_MOVE, Memory, assign, decide
from skewless_leases.fence import Grant, commit, read
from skewless_leases.lease import Beat
from skewless_leases.lease_tables import (
    Allocation,
    Grab,
    Look,
    Presence,
    Row,
    Silences,
    TimeSpans,
    decode,
    encode,
    look_at,
)
from skewless_leases.store import LeaseError, StoreError
from skewless_leases.worker import Member, Worker
from tests.leases.simulated_workers import Diary

REFUSED_SPANS = [
    ({"normal_lease": 0}, "time span normal_lease: expected more than 0 seconds, but got 0."),
    ({"held_delay": -1}, "time span held_delay: expected more than 0 seconds, but got -1."),
    ({"normal_lease": float("nan")}, "time span normal_lease: expected more than 0 seconds, but got nan."),
    (
        {"maximum_lease": 100},
        "time span maximum_lease: expected at least twice normal_lease (60.0 seconds), but got 100.",
    ),
    (
        {"maximum_shutdown": 300},
        "time span maximum_shutdown: expected less than maximum_lease (300.0 seconds), but got 300.",
    ),
    ({"minimum_grab": 60}, "time span minimum_grab: expected less than normal_lease (60.0 seconds), but got 60."),
    ({"held_delay": 61}, "time span held_delay: expected less than normal_lease (60.0 seconds), but got 61."),
]


@pytest.mark.parametrize(("given_spans", "sentence"), REFUSED_SPANS, ids=[case[1][10:40] for case in REFUSED_SPANS])
def test_spans_that_do_not_fit_together_are_refused(given_spans: dict[str, float], sentence: str) -> None:
    with pytest.raises(LeaseError) as refused:
        TimeSpans(**given_spans)
    assert str(refused.value) == sentence


@given(st.floats(0.001, 1e6))
def test_spans_around_any_lease_time_fit_together(normal_lease: float) -> None:
    spans = TimeSpans.around(normal_lease)
    assert 3 * spans.look_every + spans.patience(0) < spans.normal_lease
    assert spans.beat_every * 4 < spans.maximum_lease
    assert spans.patience(10**9) == spans.normal_lease


WORKERS = st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1)


@given(WORKERS, st.integers(0, 30), st.builds(Random, st.integers(0, 999)), st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_shares_are_even_sticky_and_within_the_room(
    workers: dict[str, tuple[int, int]], free_count: int, chance: Random, spread: float
) -> None:
    held = {worker: [f"{worker}{place}" for place in range(load)] for worker, (load, _) in workers.items()}
    free = [f"free{place}" for place in range(free_count)]
    room = {worker: more for worker, (_, more) in workers.items()}
    raw = {
        name: chance.lognormvariate(0, spread) for name in [*free, *(name for names in held.values() for name in names)]
    }
    weights = {name: weight * len(raw) / sum(raw.values()) for name, weight in raw.items()}

    def loads() -> dict[str, float]:
        return {worker: sum(weights[name] for name in names) for worker, names in held.items()}

    before = loads()
    shares = assign(free, before, room, held, weights)
    assert len(shares.free) == min(free_count, sum(room.values()))
    heaviest_first = sorted((weights[name] for name in free), reverse=True)
    assert [weights[name] for name in shares.free] == heaviest_first[: len(shares.free)]
    for name, receiver in shares.free.items():
        assert loads()[receiver] <= min(load for worker, load in loads().items() if room[worker]) + 1e-9
        held[receiver].append(name)
        room[receiver] -= 1
    given = loads()
    for name, (victim, thief) in shares.moves.items():
        held[victim].remove(name)
        held[thief].append(name)
        room[victim] += 1
        room[thief] -= 1
    after = loads()
    assert all(more >= 0 for more in room.values())
    assert sum(load**2 for load in after.values()) <= sum(load**2 for load in given.values()) + 1e-9
    thieves = [worker for worker, more in room.items() if more]
    settled = {worker: sorted({*names} - {*shares.free} - {*shares.moves}) for worker, names in held.items()}
    for victim, thief in itertools.product(held, thieves):  # nothing is left that is worth a move
        for name in settled[victim]:
            assert (
                after[victim] - after[thief] < max(weights[name] + WORTH_A_MOVE, 2 * WORTH_A_MOVE) + 1e-9
                or victim == thief
            )
    if not spread:
        assert not thieves or max(after.values()) - min(after[thief] for thief in thieves) < 1.001
        assert not {victim for victim, _ in shares.moves.values()} & {thief for _, thief in shares.moves.values()}
    # What is even already stays where it is; what was given is as heavy as it is.
    again = assign([], after, room, settled, weights)
    assert again.moves == {}


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_no_number_is_refused(weight: float) -> None:
    with pytest.raises(LeaseError) as refused:
        decide("me", {"p": 1.0, "q": weight}, look(0.0, {"me": 1}), Memory(), TimeSpans())
    assert str(refused.value) == f"partition q: expected a weight that is a number of 0 or more, but got {weight}."


def look(time_: float, beats: dict[str, int]) -> Look:
    return Look(time_, {worker: Row(Presence(1), str(beat)) for worker, beat in beats.items()}, {}, {})


def test_silence_is_counted_from_the_first_look_at_an_unchanged_beat() -> None:
    silences = Silences().after(look(100.0, {"a": 1, "b": 1}), 5.0)
    silences = silences.after(look(103.0, {"a": 2, "b": 1}), 5.0)
    silences = silences.after(look(104.0, {"a": 2, "b": 1, "c": 9}), 5.0)
    assert {worker: last.silence for worker, last in silences.heard.items()} == {"a": 1.0, "b": 4.0, "c": 0.0}
    assert silences.dead(look(104.0, {}), 4.0) == {"b"}


def test_what_the_observer_has_slept_through_counts_only_a_little() -> None:
    silences = Silences().after(look(100.0, {"a": 1}), 5.0)
    silences = silences.after(look(9000.0, {"a": 1}), 5.0)
    assert silences.heard["a"].silence == 5.0


def test_who_is_named_but_has_no_record_is_dead_in_the_end() -> None:
    allocations = {"p": Row(Allocation(1, "ghost"), "1")}
    silences = Silences()
    for moment in (0.0, 2.0, 4.0, 6.0):
        silences = silences.after(Look(moment, {}, allocations, {}), 5.0)
    assert silences.dead(Look(6.0, {}, allocations, {}), 6.0) == {"ghost"}


class Deaf(MemoryStore):
    loses_answers = True

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        version = super().put(key, value, expected)
        if self.loses_answers and key.startswith("allocation/"):
            self.loses_answers = False
            raise StoreError("store", "an answer", "none")
        return version


def test_a_grant_whose_answer_was_lost_is_found_at_the_next_look() -> None:
    store, diary = Deaf(), Diary("me", lambda: 0.0)
    member = Member(store, "me", lambda _: ["p"], TimeSpans(), diary)
    Beat(store, "me", 1).once()
    with pytest.raises(StoreError):
        member.step(0.0)
    assert not member.grants
    member.step(1.0)
    assert member.grants == {"p": Grant("p", 1, "me")}
    assert [grant for _, grant in diary.granted_to] == [Grant("p", 1, "me")]
    commit(store, member.grants["p"], "mine")


@pytest.mark.parametrize("record", [Presence(2), Presence(0, True), Allocation(1, "ü"), Grab("x", 4)], ids=repr)
def test_records_come_back_as_they_were(record: Presence | Allocation | Grab) -> None:
    assert decode(type(record), encode(record), "here") == record


DAMAGED = [
    b"{", b"[]", b"null", b"{}", b'{"fence":"1","holder":null,"value":null,"kept":false}', b"\xff",
    b'{"fence":-1,"holder":null,"value":null,"kept":false}', b'{"fence":true,"holder":null,"value":null,"kept":false}',
    b'{"fence":1,"holder":null,"value":null,"kept":false,"more":1}',
    b'{"fence":1,"holder":2,"value":null,"kept":false}', b'{"fence":1,"holder":null,"value":null}',
]  # fmt: skip


@pytest.mark.parametrize("stored", DAMAGED)
def test_a_damaged_record_is_refused_by_name(stored: bytes) -> None:
    store = MemoryStore()
    store.put("allocation/p", stored, None)
    with pytest.raises(LeaseError, match="lease record allocation/p: expected the fields of Allocation, but got b"):
        look_at(store, 0.0)


def test_a_record_without_a_value_cannot_be_read_just_now() -> None:
    store = MemoryStore()
    store.put("allocation/p", b"", None)
    with pytest.raises(StoreError, match="lease record allocation/p: it is empty; look again"):
        look_at(store, 0.0)


@pytest.mark.parametrize("stored", [b"torn", b""])
def test_a_damaged_heartbeat_is_nobodys_end(stored: bytes) -> None:
    store = MemoryStore()
    store.put("workers/a", stored, None)
    assert look_at(store, 0.0).presences == {}


def test_who_leaves_gives_back_what_it_can() -> None:
    store = MemoryStore()
    member = Member(store, "me", lambda _: ["p0", "p1", "p2"], TimeSpans(), Diary("me", lambda: 0.0))
    Beat(store, "me", 3).once()
    member.step(0.0)
    assert len(member.grants) == 3
    row = store.get("allocation/p1")
    assert row
    store.put("allocation/p1", b"torn", row.version)
    member.leave()
    assert member.grants == {}
    assert [read(store, partition).holder for partition in ("p0", "p2")] == [None, None]


def test_no_wall_clock_is_read_anywhere() -> None:
    """A clock that jumps cannot matter to what never looks at it."""
    clocks = set()
    for path in Path(str(skewless_leases.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                if isinstance(node.value, ast.Name) and node.value.id == "time":
                    clocks.add(node.attr)
                assert node.attr not in {"st_mtime", "st_ctime"}, path
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {"datetime", "email.utils"} & set(names), path
            assert not (isinstance(node, ast.ImportFrom) and node.module == "time"), path
    assert clocks == {"monotonic", "sleep"}  # Python sleeps by the monotonic one


def test_the_library_imports_no_client_and_no_face() -> None:
    code = (
        "import sys, skewless_leases\n"
        "assert not {'obstore', 'pyspark', 'airflow', 'pyarrow', 'numpy', 'pydantic', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_worker_that_has_room_again_looks_before_it_is_time(tmp_path: Path) -> None:
    diary, asked = Diary("w", time.monotonic), threading.Semaphore(0)

    def partitions(committed: Mapping[str, str]) -> list[str]:
        asked.release()
        return [name for name in ("p0", "p1") if name not in committed]

    spans = TimeSpans.around(4_000)  # a look every 500 s
    with Worker(str(tmp_path), "w", room=1, partitions=partitions, spans=spans, work=diary) as worker:
        assert asked.acquire(timeout=60)
        worker.look_soon()  # at its own beat, which the first look may have missed
        assert asked.acquire(timeout=60)
        began = time.monotonic()
        while "p0" not in worker.grants():
            assert time.monotonic() - began < 60
            time.sleep(0.005)
        commit(worker.store, worker.grants()["p0"], "done")
        worker.look_soon()
        while "p1" not in worker.grants():
            assert time.monotonic() - began < 60
            time.sleep(0.005)
