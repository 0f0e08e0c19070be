"""What is made of the seconds of ``prepare``, on few files."""

from __future__ import annotations

import pytest

from benchmarks import many_files

pytestmark = pytest.mark.long


def test_both_numbers_of_files_have_a_line_and_an_aim() -> None:
    document = many_files.measure(scale=0.01, rounds=1)
    assert [line["files"] for line in document["lines"]] == [100, 1_000]
    assert [(one["limit"], one["figure"]) for one in document["verdicts"]] == [
        (2.0, document["lines"][0]["prepare_seconds"]),
        (15.0, document["lines"][1]["prepare_seconds"]),
    ]
    assert many_files.page(document).count("\n| ") == 3
