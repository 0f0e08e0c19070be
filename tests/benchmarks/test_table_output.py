"""B13 at its smallest: each way publishes, and the page has a line for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import table_output

pytestmark = pytest.mark.long


def test_every_way_is_measured_beside_pyarrow(tmp_path: Path) -> None:
    document = table_output.measure(files=8, repetitions=1, root=tmp_path)
    ways = [f"{way}, {place}" for place, of in table_output.PLACES.items() for way in of]
    assert [verdict["cell"] for verdict in document["verdicts"]] == ways
    assert table_output.page(document).count("\n| ") == len(ways) + len(table_output.PLACES) + 1
