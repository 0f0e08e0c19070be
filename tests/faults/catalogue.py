"""All trials there are."""

from __future__ import annotations

import random

from tests.faults import damaged, kills, nights, races, shared, surroundings
from tests.faults.harness import Harness
from tests.faults.nights import NightsHarness
from tests.faults.table import KINDS
from tests.faults.trial import Trial

__all__ = ["KINDS", "all_trials"]


def all_trials(h: Harness) -> list[Trial]:
    found = list(nights.trials(h)) if isinstance(h, NightsHarness) else _of_any_run(h)
    assert len({trial.seed for trial in found}) == len(found)
    assert {trial.kind for trial in found} <= set(KINDS)
    random.Random(0).shuffle(found)
    return found


def _of_any_run(h: Harness) -> list[Trial]:
    return [*kills.trials(h), *races.trials(h), *shared.trials(h), *surroundings.trials(h), *damaged.trials(h)]
