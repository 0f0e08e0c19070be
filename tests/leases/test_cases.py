"""The tables of cases.yaml: what one worker decides, and what comes of several."""

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from skewless_leases.decisions import Action, Challenge, Memory, Surrender, Take, decide
from skewless_leases.lease_tables import Allocation, Grab, Look, Presence, Row, TimeSpans
from tests.leases.simulated_workers import SimulatedWorkers

CASES = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))
SPANS = TimeSpans.around(60)


def looks(case: Mapping[str, Any]) -> list[Look]:
    """The tables that a case describes, at each look of some normal lease times; only the living beat."""
    loads: dict[str, int] = case["loads"]
    holders = [worker for worker, load in loads.items() for _ in range(load)]
    names = [f"p{number:03d}" for number in range(len(holders))]
    kept = case.get("kept", ())
    allocations: dict[str, Row[Allocation]] = {
        name: Row(Allocation(1, holder, kept=name in kept), "1") for name, holder in zip(names, holders, strict=True)
    }
    room, dead, gone = case.get("room", {}), case.get("dead", ()), case.get("gone", ())
    # The silence of a dead worker reaches the maximum lease time when the case begins.
    first = -SPANS.maximum_lease if dead else 0.0
    last = case.get("leases", 1) * SPANS.normal_lease
    times = [first + step * SPANS.look_every for step in range(int((last - first) / SPANS.look_every) + 1)]
    return [
        Look(
            time,
            {
                worker: Row(Presence(room.get(worker, 100), worker in gone), "0" if worker in dead else str(beat))
                for worker in loads
            },
            allocations,
            {partition: Row(Grab(**grab), "1") for partition, grab in case.get("grabs", {}).items()},
        )
        for beat, time in enumerate(times, start=1)
    ]


def decided(case: Mapping[str, Any]) -> list[Action]:
    """All that is decided after time zero, each once: nothing is enacted, so it is decided again and again."""
    partitions = [f"p{number:03d}" for number in range(sum(case["loads"].values()) + case.get("free", 0))]
    found: dict[Action, None] = {}
    memory = Memory()
    for look in looks(case):
        actions, memory = decide("me", partitions, look, memory, SPANS)
        if look.time >= 0:
            found.update(dict.fromkeys(actions))
    return list(found)


@pytest.mark.parametrize("case", CASES["decisions"], ids=lambda case: case["case"])
def test_what_one_worker_decides(case: dict[str, Any]) -> None:
    actions = decided(case)
    assert Counter(action.victim for action in actions if isinstance(action, Challenge)) == case["challenges"]
    if "surrenders" in case:
        assert [action.partition for action in actions if isinstance(action, Surrender)] == case["surrenders"]
    if "takes" in case:
        assert len({action.partition for action in actions if isinstance(action, Take)}) == case["takes"]


def test_challenges_are_made_once_in_a_normal_lease_time() -> None:
    times, memory = [], Memory()
    for look in looks({"loads": {"a": 9, "me": 0}, "leases": 3}):
        actions, memory = decide("me", [f"p{number:03d}" for number in range(9)], look, memory, SPANS)
        times += [look.time] if any(isinstance(action, Challenge) for action in actions) else []
    assert len(times) == 3
    assert all(later - earlier >= SPANS.normal_lease for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize("case", CASES["courses"], ids=lambda case: case["case"])
def test_what_comes_of_several_workers(case: dict[str, Any]) -> None:
    course = SimulatedWorkers([f"p{number:03d}" for number in range(case["partitions"])], SPANS)
    for step in case["steps"]:
        ((name, argument),) = step.items()
        getattr(course, name)(argument)
