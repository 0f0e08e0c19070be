"""What B15 makes of its seconds, and what it writes; the nights themselves are those of ``tests/fuzz``."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds

from benchmarks import fresh_nights
from benchmarks.formats import drawn
from benchmarks.fresh_process import PLAIN


def test_each_night_has_a_line_and_an_aim_of_its_medians() -> None:
    seconds = {PLAIN: [10.0, 8.0, 90.0], fresh_nights.OURS: [11.0, 11.6, 2.0]}
    found = {"setting": {}, "rows": 1_000, "seconds": dict.fromkeys(fresh_nights.NIGHTS, seconds)}
    judged = fresh_nights.verdicts(found)
    assert [(one.figure, one.met) for one in judged] == [(1.1, True), (1.1, False), (1.1, False)]
    assert "| first night | 10.0 | 11.0 | 1.10 |" in fresh_nights.page(found)


def test_a_day_has_all_of_its_rows_and_another_one_others(tmp_path: Path) -> None:
    for day in (1, 2):
        fresh_nights._write(drawn(103, seed=day), tmp_path / str(day), 4)
    one, other = (ds.dataset(tmp_path / str(day)).to_table().sort_by("visitor") for day in (1, 2))
    assert one.num_rows == 103
    assert one.equals(drawn(103, seed=1).sort_by("visitor"))
    assert not one.equals(other)
