"""The memory benchmark, at a size at which everything fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import memory

pytestmark = pytest.mark.long


@pytest.mark.timeout(280)
def test_the_memory_of_a_run_is_told_apart_by_driver_and_executor(tmp_path: Path) -> None:
    document = memory.measure(tmp_path, scale=0.001)
    few, many = document["lines"]
    assert 800 < few["keys"] <= 1_000
    assert 4_000 < many["keys"] <= 5_000
    for line in document["lines"]:
        assert line["balanced"]
        assert line["driver_gib"] > 0.1
        assert line["executor_gib"] > 0.1, "the executor is a process of its own"
        assert line["peak_gib"] <= line["driver_gib"] + line["executor_gib"]
    assert [verdict["limit"] for verdict in document["verdicts"]] == [6.0, 1.1]
    assert memory.page(document).count("\n| ") == 3
