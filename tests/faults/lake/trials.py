"""All trials of tables."""

from __future__ import annotations

import random

from tests.faults.lake import kills, wires
from tests.faults.lake.harness import KINDS, LakeHarness
from tests.faults.trial import Trial

#: Where the seeds of each scene begin: those of kills, and behind them those of wires.
_SEEDS, _WIRES, _APART = 60_000, 1_000, 3_000


def all_trials(h: LakeHarness) -> list[Trial]:
    found = list[Trial]()
    for number, kind in enumerate(KINDS):
        found += trials_of(h, kind, bucket=False, first_seed=_SEEDS + 2 * number * _APART)
        found += trials_of(h, kind, bucket=True, first_seed=_SEEDS + (2 * number + 1) * _APART)
    assert len({trial.seed for trial in found}) == len(found)
    random.Random(0).shuffle(found)
    return found


def trials_of(h: LakeHarness, kind: str, *, bucket: bool, first_seed: int = _SEEDS) -> list[Trial]:
    stage = h.stage(kind, bucket=bucket)
    found = list(kills.trials(stage, first_seed))
    return [*found, *wires.trials(stage, first_seed + _WIRES)] if bucket else found
