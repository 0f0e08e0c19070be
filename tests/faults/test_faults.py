"""Some of the faults of ``make faults``, chosen by a seed; each of a kind, and no wrong result in any."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.catalogue import KINDS, all_trials
from tests.faults.harness import Harness
from tests.faults.table import Tried, table
from tests.faults.trial import Trial

#: Which trials are chosen; any number does, and the seed of each trial is told when it fails.
SEED = int(os.environ.get("SKEWLESS_FAULTS_SEED", "6"))
#: Trials without Spark cost a tenth of a second, those with it some seconds.
LIGHT, HEAVY = 12, {"kill": 3, "kill driver": 2, "kill worker": 1, "source": 2, "full disk": 1, "damage": 2}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    one = Harness(tmp_path_factory.mktemp("faults"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def trials(harness: Harness) -> list[Trial]:
    return all_trials(harness)


def chosen(trials: list[Trial], kind: str, count: int, *, spark: bool) -> list[Trial]:
    of = [trial for trial in trials if trial.kind == kind and trial.spark is spark]
    return random.Random(SEED).sample(of, min(count, len(of)))


def outcomes(harness: Harness, trials: list[Trial]) -> Counter[str]:
    found: Counter[str] = Counter()
    for trial in trials:
        try:
            found[trial.act(harness, trial.seed)] += 1
        except Exception as err:
            raise AssertionError(f"{trial.name}: repeat it with python -m tests.faults --seed {trial.seed}") from err
    return found


@pytest.mark.parametrize("kind", ["kill", "twice", "pause", "full disk", "clock", "damage"])
def test_steps_without_spark_survive(harness: Harness, trials: list[Trial], kind: str) -> None:
    some = chosen(trials, kind, LIGHT, spark=False)
    assert some
    assert sum(outcomes(harness, some).values()) == len(some)


@pytest.mark.parametrize("kind", HEAVY)
def test_steps_on_spark_survive(harness: Harness, trials: list[Trial], kind: str) -> None:
    some = chosen(trials, kind, HEAVY[kind], spark=True)
    assert sum(outcomes(harness, some).values()) == HEAVY[kind] or kind == "full disk"


@pytest.mark.parametrize("resealed", [False, True], ids=["by its checksum", "by the ledger when checksums are right"])
def test_what_was_changed_on_purpose_is_noticed(harness: Harness, trials: list[Trial], resealed: bool) -> None:
    words = "with all checksums made right again" if resealed else "as it is"
    some = [one for one in trials if one.kind == "tampering" and one.fault.endswith(words)]
    assert outcomes(harness, some) == {"stopped": len(some)}


def test_there_are_trials_enough(trials: list[Trial]) -> None:
    assert len({(trial.kind, trial.step, trial.fault) for trial in trials}) >= 60
    assert len(trials) >= 300
    assert len({trial.seed for trial in trials}) == len(trials)


def test_the_page_counts_what_was_tried_and_a_repeated_trial_once() -> None:
    page = table([
        Tried("kill", "prepare", "before link job.json", 1, "wrong"),
        Tried("kill", "prepare", "before link job.json", 1, "right"),
        Tried("damage", "publish", "a_b is cut", 2, "stopped"),
    ])  # fmt: skip
    assert "**2 trials of 2 different faults: 1 right, 1 stopped, 0 wrong.**" in page
    assert "| damage | publish | a\\_b is cut | 2 | 1 | 0 | 1 | 0 |" in page
    assert all(f"| {kind} |" in page for kind in KINDS)
