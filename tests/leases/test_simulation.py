"""Under load the original fails as its author says, and ours does not; the same seed gives the same table."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.leases.simulation import LEASES, ORIGINAL, OWN_PACE, Setting, simulate
from tests.tiers import mostly_long

HOUR = 3600.0


def brief(piece: float, seed: int) -> Setting:
    return Setting(piece=piece, seed=seed, duration=HOUR / 4, partitions=16)


@pytest.mark.parametrize("seed", mostly_long([1, 2, 3], 1))
def test_idle_the_original_is_even_and_sticky_and_replaces_the_dead_as_its_author_saw_it(seed: int) -> None:
    outcome = simulate(ORIGINAL, brief(0.0, seed))
    assert (outcome.moves_per_hour, outcome.idle, outcome.doubled, outcome.uneven) == (0, 0, 0, 0)
    assert outcome.recovered is not None
    assert 300 <= outcome.recovered <= 420  # "after roughly maximum lease time"


@pytest.mark.parametrize("seed", mostly_long([1, 2, 3], 1))
def test_under_load_the_original_lets_partitions_jump_between_hosts(seed: int) -> None:
    outcome = simulate(ORIGINAL, brief(0.2, seed))
    assert outcome.moves_per_hour > 100
    assert outcome.moved_partitions == 16


@pytest.mark.parametrize("seed", mostly_long([1, 2, 3], 1))
@pytest.mark.parametrize("piece", [0.0, 0.2, 1.0, 10.0])
def test_ours_moves_nothing_under_any_load(piece: float, seed: int) -> None:
    outcome = simulate(LEASES, brief(piece, seed))
    assert (outcome.moves_per_hour, outcome.idle, outcome.doubled, outcome.uneven) == (0, 0, 0, 0)
    assert outcome.recovered is not None


@pytest.mark.long
def test_a_heartbeat_at_the_workers_own_pace_would_lose_leases_under_load() -> None:
    setting = Setting(piece=20.0, duration=HOUR, partitions=16)
    assert simulate(OWN_PACE, setting).moves_per_hour > 0
    assert simulate(LEASES, setting).moves_per_hour == 0


def test_the_same_seed_gives_the_same_outcome() -> None:
    setting = brief(0.2, 5)
    assert simulate(ORIGINAL, setting) == simulate(ORIGINAL, setting)
    assert simulate(LEASES, setting) == simulate(LEASES, setting)


@pytest.mark.long
def test_the_table_is_printed() -> None:
    command = [sys.executable, "-m", "benchmarks.leases.simulation", "--partitions", "8", "--minutes", "5"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert table[0].startswith("| piece of work")
    assert len(table) == 2 + 4 * 3
    outcomes = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [outcome["algorithm"] for outcome in outcomes[:3]] == [ORIGINAL, OWN_PACE, LEASES]
