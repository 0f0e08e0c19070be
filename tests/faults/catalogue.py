"""All trials there are."""

from __future__ import annotations

from tests.faults import damaged, kills, races, surroundings
from tests.faults.harness import Harness
from tests.faults.table import KINDS
from tests.faults.trial import Trial

__all__ = ["KINDS", "all_trials"]


def all_trials(h: Harness) -> list[Trial]:
    """Those that cost little first, as what is wrong is told sooner then."""
    found = [*kills.trials(h), *races.trials(h), *surroundings.trials(h), *damaged.trials(h)]
    names = [trial.name for trial in found]
    assert len(set(names)) == len(names)
    assert {trial.kind for trial in found} <= set(KINDS)
    return sorted(found, key=lambda trial: trial.spark)
