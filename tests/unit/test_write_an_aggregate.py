"""The code of docs/write_an_aggregate.md runs, and is as short as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.aggregates import PythonAggregate
from skewless.testing import check_aggregate

PAGE = (Path(__file__).parents[2] / "docs/write_an_aggregate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """All names that the page's code defines, in its order."""
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(block, names)
    return names


def test_the_first_one_has_fifteen_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 15


def test_the_page_s_test_passes(page: dict[str, Any]) -> None:
    page["test_longest_keeps_the_laws"]()


def test_the_other_aggregates_of_the_page_keep_the_laws(page: dict[str, Any]) -> None:
    numbers = [0.5 * value for value in range(20)]
    check_aggregate(page["TOTAL"], numbers, tolerance=1e-9)
    check_aggregate(page["CHANGES"], ["on", "on", "off", "idle"] * 5)
    pairs = [{"column": value, "weight": value + 1} for value in numbers]
    check_aggregate(page["WEIGHTED_SUM"], pairs, {"weight": "w"}, tolerance=1e-9)


def test_the_longest_is_the_longest(page: dict[str, Any]) -> None:
    longest: PythonAggregate = page["LONGEST"]
    made = longest.accumulator(longest.options())
    made.update(pa.array(["a", "bcd", None, "ef"]), np.array([0, 1, 0, 1]), 3)
    assert made.evaluate().to_pylist() == ["a", "bcd", None]


def test_the_page_names_the_entry_point_group() -> None:
    assert '[project.entry-points."skewless.aggregates"]' in PAGE
