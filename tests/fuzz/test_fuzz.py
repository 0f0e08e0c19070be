"""Some random runs and sequences of nights; ``make fuzz`` plays as many as are wanted."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.native import SYNONYMS
from skewless_spark.windows import kept_states
from tests.fuzz.aggregates import CONCATENABLE, EXTREMES, MERGEABLE, PAIRS
from tests.fuzz.nights import run_nights
from tests.fuzz.trial import run_trial
from tests.fuzz.values import KINDS
from tests.tiers import mostly_long

SEED, SEQUENCES = 27, 12


@pytest.mark.parametrize("number", mostly_long(range(3), 0, 1))
def test_a_random_run_is_what_plain_python_says(spark: SparkSession, tmp_path: Path, number: int) -> None:
    outcome = run_trial(spark, SEED, number, tmp_path / "run")
    assert not outcome.bad, f"make fuzz SEED={SEED} ONLY={number}\n{outcome}"


@pytest.mark.long
@pytest.mark.parametrize("first", range(3, 39, 4))
def test_many_random_runs_are_what_plain_python_says(spark: SparkSession, tmp_path: Path, first: int) -> None:
    outcomes = [run_trial(spark, SEED, number, tmp_path / "run") for number in range(first, first + 4)]
    bad = [str(outcome) for outcome in outcomes if outcome.bad]
    assert not bad, "\n\n".join(bad)


@pytest.mark.parametrize("number", mostly_long(range(SEQUENCES), 0))
def test_after_each_night_the_result_is_that_of_all_rows(
    spark: SparkSession, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "MOST_ADDITIONS", 1 + number % 3)  # few sequences have more
    outcome = run_nights(spark, SEED, number, tmp_path / "nights", most=7 if number else 2)
    assert not outcome.bad, f"make fuzz SEED={SEED} ONLY=nights-{number}\n{outcome}"


def test_all_aggregates_that_can_be_merged_are_drawn_for_nights() -> None:
    chance, column = random.Random(3), next(iter(KINDS.values()))
    calls = [make("value", column, chance).call for _, make in (MERGEABLE | CONCATENABLE).values()]
    drawn = {call if isinstance(call, str) else call["function"] for call in calls}
    drawn |= {*PAIRS, *EXTREMES.values()}
    mergeable = {name for name in REGISTRY if REGISTRY[name].mergeable and name not in SYNONYMS}
    assert {SYNONYMS[name].name if name in SYNONYMS else name for name in drawn} >= mergeable
