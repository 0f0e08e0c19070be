"""All trials there are."""

from __future__ import annotations

import random

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
    # Those with Spark in a mixed order: of a run that is broken off there are some of each kind.
    heavy = [trial for trial in found if trial.spark]
    random.Random(0).shuffle(heavy)
    return [trial for trial in found if not trial.spark] + heavy
