"""Some of the faults of ``make faults``, chosen by a seed; each of a kind, and no wrong result in any."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.catalogue import KINDS, all_trials
from tests.faults.harness import Harness
from tests.faults.nights import NightsHarness
from tests.faults.table import Tried, table
from tests.faults.trial import Trial

#: Which trials are chosen; any number does, and the seed of each trial is told when it fails.
SEED = int(os.environ.get("SKEWLESS_FAULTS_SEED", "6"))
#: Trials without Spark take a fraction of a second, those with it some seconds.
LIGHT = {"kill": 30, "twice": 10, "pause": 20, "full disk": 15, "source": 7, "clock": 4, "damage": 30}
#: What part of them the default run takes.
SHORT = 4
NIGHTS = {"kill": 2, "pause": 1, "twice": 1, "beside": 3, "damage": 2}
HEAVY = {"kill": 2, "kill driver": 2, "kill worker": 1, "damage": 2}


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    one = Harness(tmp_path_factory.mktemp("light"), spark=False)
    yield one
    one.close()


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    one = Harness(tmp_path_factory.mktemp("heavy"), spark=True)
    yield one
    one.close()


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NightsHarness]:
    one = NightsHarness(tmp_path_factory.mktemp("nights"))
    yield one
    one.close()


def outcomes(harness: Harness, trials: list[Trial]) -> Counter[str]:
    found: Counter[str] = Counter()
    for trial in trials:
        try:
            found[trial.act(harness, trial.seed)] += 1
        except Exception as err:
            raise AssertionError(f"{trial.name}: repeat it with python -m tests.faults --seed {trial.seed}") from err
    return found


def some(harness: Harness, kind: str, wanted: int) -> list[Trial]:
    of = [trial for trial in all_trials(harness) if trial.kind == kind]
    return random.Random(SEED).sample(of, min(wanted, len(of)))


@pytest.mark.parametrize("part", [SHORT, pytest.param(1, marks=pytest.mark.long)], ids=["some", "many"])
@pytest.mark.parametrize("kind", LIGHT)
def test_a_run_without_spark_survives(light: Harness, kind: str, part: int) -> None:
    trials = some(light, kind, -(-LIGHT[kind] // part))
    assert trials
    assert sum(outcomes(light, trials).values()) == len(trials)


@pytest.mark.long
@pytest.mark.parametrize("kind", HEAVY)
def test_a_run_on_spark_survives(heavy: Harness, kind: str) -> None:
    trials = some(heavy, kind, HEAVY[kind])
    assert sum(outcomes(heavy, trials).values()) == HEAVY[kind]


@pytest.mark.long
@pytest.mark.parametrize("kind", NIGHTS)
def test_a_run_that_builds_on_kept_states_survives(nights: NightsHarness, kind: str) -> None:
    trials = some(nights, kind, NIGHTS[kind])
    assert sum(outcomes(nights, trials).values()) == NIGHTS[kind]


def test_there_are_trials_enough(light: Harness) -> None:
    trials = all_trials(light)
    assert len({(trial.kind, trial.step, trial.fault) for trial in trials}) >= 60
    assert len(trials) >= 300


def test_the_page_counts_what_was_tried_and_a_repeated_trial_once() -> None:
    page = table([
        Tried("kill", "prepare", "before link job.json", 1, "wrong"),
        Tried("kill", "prepare", "before link job.json", 1, "right"),
        Tried("damage", "publish", "a_b is cut", 2, "stopped"),
    ])  # fmt: skip
    assert "**2 trials of 2 different faults: 1 right, 1 stopped, 0 wrong.**" in page
    assert "| damage | publish | a\\_b is cut | 2 | 1 | 0 | 1 | 0 |" in page
    assert all(f"| {kind} |" in page for kind in KINDS)
