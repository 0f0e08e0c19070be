"""Some random runs and sequences of nights; ``make fuzz`` plays as many as are wanted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fuzz.nights import run_nights
from tests.fuzz.trial import run_trial
from tests.tiers import mostly_long

SEED = 27


@pytest.mark.parametrize("number", mostly_long(range(3), 0, 1))
def test_a_random_run_is_what_plain_python_says(spark: SparkSession, tmp_path: Path, number: int) -> None:
    outcome = run_trial(spark, SEED, number, tmp_path / "run")
    assert not outcome.bad, f"make fuzz SEED={SEED} ONLY={number}\n{outcome}"


@pytest.mark.long
def test_many_random_runs_and_nights_are_what_plain_python_says(spark: SparkSession, tmp_path: Path) -> None:
    runs = [run_trial(spark, SEED, number, tmp_path / "run") for number in range(3, 90)]
    nights = [run_nights(spark, SEED, number, tmp_path / "nights") for number in range(16)]
    bad = [str(outcome) for outcome in (*runs, *nights) if outcome.bad]
    assert not bad, "\n\n".join(bad)
