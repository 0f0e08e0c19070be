"""Turns are drawn once and finished in order, whoever comes late or comes again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from skewless_leases.errors import LeaseError
from skewless_leases.memory_store import MemoryStore
from skewless_leases.turns import Turns


def test_what_is_finished_late_does_not_count() -> None:
    turns = Turns(MemoryStore())
    first, second = turns.draw("day"), turns.draw("day")
    assert (first, second) == (1, 2)
    assert turns.finished("day") == 0
    assert turns.finish("day", second)
    assert not turns.finish("day", first)
    assert turns.finished("day") == second


def test_the_last_one_may_finish_again() -> None:
    turns = Turns(MemoryStore())
    turn = turns.draw("day")
    assert turns.finish("day", turn)
    assert turns.finish("day", turn)


def test_names_have_turns_of_their_own() -> None:
    turns = Turns(MemoryStore())
    assert [turns.draw("monday"), turns.draw("monday"), turns.draw("tuesday")] == [1, 2, 1]


@pytest.mark.parametrize("turn", [0, -1, 2])
def test_a_turn_that_was_never_drawn_is_refused(turn: int) -> None:
    turns = Turns(MemoryStore())
    turns.draw("day")
    with pytest.raises(LeaseError, match="turn of day: required one of the 1 that were drawn, but came"):
        turns.finish("day", turn)


def test_turns_edited_by_hand_are_refused() -> None:
    store = MemoryStore()
    store.put("turns/day", b"drawn 3", None)
    with pytest.raises(LeaseError, match="turns of day: required two numbers, but came b'drawn 3'"):
        Turns(store).draw("day")


DRAWING = """
import sys
from skewless_leases.address import open_store
from skewless_leases.turns import Turns
turns = Turns(open_store(sys.argv[1]))
print(*[turns.draw("day") for _ in range(50)])
"""


def test_no_two_processes_draw_the_same_turn(address: str) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", DRAWING, address], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    drawn = [int(turn) for process in processes for turn in process.communicate(timeout=60)[0].split()]
    assert sorted(drawn) == list(range(1, 151))
