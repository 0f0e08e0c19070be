"""A history of one of the protocols, from its seed: played, and shrunk if it breaks a promise."""

import random
import traceback
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.simulation.leases import Leases
from tests.simulation.machine import Machine
from tests.simulation.nights import Nights
from tests.simulation.publications import Day
from tests.simulation.scenario import Scenario
from tests.simulation.steps import Steps
from tests.simulation.world import Chances, Decision, World

SCENARIOS: Mapping[str, type[Scenario]] = {"publication": Day, "steps": Steps, "leases": Leases, "nights": Nights}
#: Of ten histories: those of leases and nights take twice as long.
_TURNS = (
    "publication",
    "steps",
    "publication",
    "nights",
    "steps",
    "publication",
    "leases",
    "steps",
    "publication",
    "nights",
)
#: A failure is played again so often to find which of its decisions matter.
MOST_PLAYS = 60


class Played(NamedTuple):
    """What came of a history.

    Attributes:
        told: the calls, in order, each with who made it.
    """

    seed: str
    faults: list[str]
    decisions: dict[str, Decision]
    digest: str
    told: list[tuple[int, str, str]]


def seeds(first: int, count: int) -> Iterator[str]:
    for number in range(first, first + count):
        yield f"{_TURNS[number % len(_TURNS)]} {number}"


def play(
    seed: str, given: dict[str, Decision] | None = None, scenarios: Mapping[str, type[Scenario]] = SCENARIOS
) -> Played:
    """Play the history of a seed; with other decisions than it draws, if they are given."""
    scenario = scenarios[seed.partition(" ")[0]]
    draws = random.Random(f"chances {seed}")
    chances = Chances(
        calls=draws.choice([2.0, 8.0, 30.0, 120.0]),
        kill=draws.choice([0.0, 0.1, 0.3]),
        stop=draws.choice([0.0, 0.1, 0.3]),
        power=draws.choice([0.0, 0.0, 0.05]) if scenario.lasts else 0.0,
        lose=draws.choice([0.0, 0.02, 0.1]),
        seconds=draws.choice([1.0, 20.0, 60.0]),
    )
    world = World(seed, chances, given)
    machine = Machine(world)
    with machine.on():
        try:
            history = scenario(machine)
            history.begin()
            world.run()
            if not world.faults:
                history.end()
        except Exception:  # noqa: BLE001  # whatever the product raises is looked for
            world.fault(traceback.format_exc()[-1500:])
    return Played(seed, world.faults, world.decisions, world.digest, world.told)


def shrunk(failed: Played, scenarios: Mapping[str, type[Scenario]] = SCENARIOS) -> Played:
    """The same failure by as few decisions as can be found: pieces of them are left out, the large ones first."""
    plays, size = 0, max(1, len(failed.decisions) // 2)
    while plays < MOST_PLAYS:
        names = list(failed.decisions)
        for at in range(0, len(names), size):
            left = set(names[at : at + size])
            plays += 1
            found = play(
                failed.seed, {name: one for name, one in failed.decisions.items() if name not in left}, scenarios
            )
            if found.faults:
                failed = found
                break
        else:
            if size == 1:
                break
            size //= 2
    return failed
