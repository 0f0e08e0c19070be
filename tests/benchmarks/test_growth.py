"""What is made of ladders, on short ones."""

from __future__ import annotations

import pytest

from benchmarks import growth

pytestmark = pytest.mark.long


def test_each_subject_climbs_and_the_page_says_what_is_extrapolated_or_refused() -> None:
    short = {name: one._replace(sizes=(10, 100)) for name, one in growth.SUBJECTS.items()}
    document = growth.measure(short, apart=False)
    assert len(document["lines"]) == 2 * len(short)
    assert len(document["verdicts"]) == 3 * len(short)
    page = growth.page(document)
    assert "extrapolated from 100" in page
    assert "specs refuse 10,000,000" in page


def test_slopes_are_those_of_the_largest_sizes() -> None:
    assert growth.slope_of([1, 10, 100, 1000], [5, 1, 10, 100]) == pytest.approx(1.0)
    assert growth.slope_of([10, 100], [1, 100]) == pytest.approx(2.0)
