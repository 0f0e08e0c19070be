"""The memory benchmark, at a size at which everything fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import memory

pytestmark = pytest.mark.long


@pytest.mark.timeout(600)
def test_a_run_s_memory_is_that_of_all_its_processes(tmp_path: Path) -> None:
    document = memory.measure(tmp_path, scale=0.001)
    assert document["balanced"]
    assert 4_000 < document["keys"] <= 5_000
    assert document["peak_of"]["java"] > 0.1
    assert document["peak_gib"] == pytest.approx(sum(document["peak_of"].values()), abs=0.01)
    assert "of 6 allowed: met" in memory.sentence(document)
    # A driver of its own keeps at most its heap and what the JVM and Python take beside; the executor comes on top.
    for keys, line in zip(memory.APART, document["apart"], strict=True):
        assert line["balanced"]
        assert line["keys"] == pytest.approx(keys / 1_000, rel=0.05)
        assert 0.1 < line["driver_gib"] < line["peak_gib"] - 0.1
        assert f"| {line['keys']:,} | 1g | {line['driver_gib']:.2f} |" in memory.page(document)
