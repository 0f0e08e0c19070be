"""Some of the faults of ``make faults``, chosen by a seed; each of a kind, and no wrong result in any."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.catalogue import KINDS, all_trials
from tests.faults.harness import Harness
from tests.faults.nights import NightsHarness
from tests.faults.table import ALL, KINDS_OF_TABLES, Tried, counted
from tests.faults.trial import Trial

#: Which trials are chosen; any number does, and the seed of each trial is told when it fails.
SEED = int(os.environ.get("SKEWLESS_FAULTS_SEED", "6"))
#: Trials without Spark take a fraction of a second, those with it some seconds.
LIGHT = {"kill": 30, "twice": 10, "pause": 20, "full disk": 15, "source": 7, "clock": 4, "damage": 30}
HEAVY = {"kill": 2, "kill driver": 2, "kill worker": 1, "damage": 8}
NIGHTS = {"kill": 2, "pause": 1, "twice": 1, "beside": 3, "damage": 2}
#: What part of those without Spark the default run takes.
SHORT = 8
PAGE, DAY = Path(__file__).parents[2] / "docs" / "faults.md", dt.date(2026, 11, 24)


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


def some(harness: Harness, kind: str, wanted: int) -> list[Trial]:
    of = [trial for trial in all_trials(harness) if trial.kind == kind]
    return random.Random(SEED).sample(of, min(wanted, len(of)))


@pytest.mark.parametrize(
    ("which", "kind", "wanted"),
    [
        *(("light", kind, -(-wanted // SHORT)) for kind, wanted in LIGHT.items()),
        *(
            pytest.param(which, kind, wanted, marks=pytest.mark.long)
            for which, kinds in (("light", LIGHT), ("heavy", HEAVY), ("nights", NIGHTS))
            for kind, wanted in kinds.items()
        ),
    ],
)
def test_a_run_survives(request: pytest.FixtureRequest, which: str, kind: str, wanted: int) -> None:
    """Without Spark, on Spark, and on states that nights before have kept."""
    harness: Harness = request.getfixturevalue(which)
    trials = some(harness, kind, wanted)
    assert trials
    for trial in trials:
        try:
            trial.act(harness, trial.seed)
        except Exception as err:
            raise AssertionError(f"{trial.name}: repeat it with python -m tests.faults --seed {trial.seed}") from err


def test_there_are_trials_enough(light: Harness) -> None:
    trials = all_trials(light)
    assert len({(trial.kind, trial.step, trial.fault) for trial in trials}) >= 60
    assert len(trials) >= 300


def test_the_page_gets_the_counts_of_the_kinds_that_were_tried_and_a_repeated_trial_once() -> None:
    tried = [
        Tried("kill", "prepare", "before link job.json", 1, "wrong"),
        Tried("kill", "prepare", "before link job.json", 1, "right"),
        Tried("kill", "prepare", "before link job.json", 2, "right"),
    ]
    table = "wire | a proxy | 2026-01-02 | 1,000 | 1,000 | 999 | 1 | 0 |"
    page = counted(
        f"| kill | a signal | | | | | | |\n| {table}\n| beside |  |  |  |\n| all | | | | | | | |\nEnd.", tried, DAY
    )
    assert page.splitlines() == [
        "| kill | a signal | 2026-11-24 | 1 | 2 | 2 | 0 | 0 |",
        f"| {table}",
        "| beside |  |  |  |",
        "| all |  |  | 1,001 | 1,002 | 1,001 | 1 | 0 |",
        "End.",
    ]


def test_the_page_has_a_row_for_each_kind_and_their_sums() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")][1:] == [
        f"| {kind}" for kind in (*KINDS, *KINDS_OF_TABLES, ALL)
    ]
    assert counted(page, [], DAY) == page
