"""Sequences of nights on Spark, with all aggregates that can be merged: after each step the result is the right one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.native import SYNONYMS
from skewless_spark.windows import merge
from tests.spark.nights import JOBS, Nights
from tests.tiers import mostly_long

#: How many sequences the long form has, and how many steps each.
SEQUENCES, STEPS, FEW_STEPS = 30, 5, 2


@pytest.mark.parametrize("seed", mostly_long(range(SEQUENCES), 0))
def test_after_each_step_the_result_is_that_of_all_rows(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "MOST_ADDITIONS", 1 + seed % 3)  # few sequences have more
    nights = Nights(spark, tmp_path, seed)
    try:
        nights.play(STEPS if seed else FEW_STEPS)
    finally:
        sys.stdout.write("\n  ".join([f"seed {seed}:", *nights.told]) + "\n")


def test_the_sequences_have_all_aggregates_that_can_be_merged() -> None:
    calls = [case.call for one in JOBS for case in one.values()]
    called = {call if isinstance(call, str) else call["function"] for call in calls}
    mergeable = {name for name in REGISTRY if REGISTRY[name].mergeable and name not in SYNONYMS}
    assert {SYNONYMS[name].name if name in SYNONYMS else name for name in called} == mergeable
