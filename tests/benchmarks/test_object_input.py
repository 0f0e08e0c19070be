"""B1 in a bucket at its smallest: each way is measured, their answers are alike, and the page has a line for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import object_input


@pytest.mark.long
def test_every_way_is_measured_and_gives_the_same_answer(tmp_path: Path) -> None:
    document = object_input.measure(rows=12_000, repetitions=1, root=tmp_path)
    ways = {object_input.READING, object_input.PEER, object_input.OURS, object_input.NEAR}
    assert document["seconds"].keys() == ways
    assert object_input.page(document).count("\n| ") == len(ways) + 1
