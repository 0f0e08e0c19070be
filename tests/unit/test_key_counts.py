"""How many keys there are, by a sample of the rows: against inputs whose keys are known."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.key_sample import KeyCounts
from tests.tiers import mostly_long
from tests.unit import synthetic

SAMPLED = 262_144
#: Exponent and keys of Zipf's law; 0 is uniform.
LAWS = [(0.0, 10_000), (0.0, 1_000_000), *((z, keys) for z in (0.8, 1.2, 1.6, 2.0) for keys in (100_000, 1_000_000))]


def sampled(exponent: float, keys: int, rows: int) -> tuple[KeyCounts, int]:
    """A sample of an input, and how many keys the input has."""
    draw = np.random.default_rng(7)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    counts = draw.multinomial(rows, weights / weights.sum())
    seen = draw.binomial(counts, SAMPLED / rows)
    return KeyCounts(seen[seen > 0].astype(np.float64)), int((counts > 0).sum())


@pytest.mark.parametrize(
    ("rows", "least", "most"), [(1_000_000, 0.88, 1.12), (5_000_000, 0.7, 1.45), (20_000_000, 0.4, 2.6)]
)
@pytest.mark.parametrize(("exponent", "keys"), mostly_long(LAWS, (0.0, 10_000), (1.2, 100_000)))
def test_keys_are_found_from_a_sample_with_an_error_that_grows_with_what_was_not_sampled(
    exponent: float, keys: int, rows: int, least: float, most: float
) -> None:
    counts, true = sampled(exponent, keys, rows)
    assert least * true < counts.keys_in(rows) < most * true


def test_the_keys_of_a_part_of_the_sample_are_those_that_it_is_expected_to_show() -> None:
    counts = KeyCounts(np.full(1000, 8.0))
    assert counts.keys_in(8.0) == pytest.approx(8.0, rel=0.01)
    assert counts.keys_in(8000.0) == pytest.approx(1000.0, rel=0.001)
    assert counts.keys_in(16_000.0) == pytest.approx(1000.0, rel=0.001), "every key has been seen"


@pytest.mark.parametrize("counts", [np.zeros(0), np.ones(1), np.ones(1000), np.full(1000, 1.3), np.full(3, 1e9)])
def test_there_are_at_least_the_keys_of_the_sample_and_at_most_the_rows(counts: np.ndarray) -> None:
    rows = 10.0 * counts.sum() + 1.0
    found = KeyCounts(counts).keys_in(rows)
    assert len(counts) * 0.999 <= found <= rows if len(counts) else found == 0.0


def test_the_keys_of_a_report_are_those_of_its_histogram_not_its_states() -> None:
    """A key that was split has a state in each of its tasks. Of keys that are named, the counts are known."""
    plan = first_plan(synthetic.job([100], reducers=4))
    report = synthetic.report(plan, {"hot": 60, **{f"cold-{at}": 1 for at in range(40)}}, head=["hot"])
    tasks = tuple(one.model_copy(update={"states": 30}) for one in report.tasks)
    split = report.model_copy(update={"tasks": tasks})
    known = split.model_copy(update={"histogram": report.histogram.model_copy(update={"keys": 41})})
    assert [len(KeyCounts.of_report(one).counts) for one in (known, split)] == [41, 120]
    assert sorted(KeyCounts.of_report(known).counts.tolist())[-2:] == [1.0, 60.0]
    assert KeyCounts.of_report(known).rows == 100
