"""What B15 makes of its seconds; that nights are right is in ``tests/fuzz``."""

from __future__ import annotations

from benchmarks import fresh_nights
from benchmarks.formats import drawn
from benchmarks.fresh_process import PLAIN


def test_each_night_has_a_line_and_an_aim_of_its_medians() -> None:
    seconds = {PLAIN: [10.0, 8.0, 90.0], fresh_nights.OURS: [11.0, 11.6, 2.0]}
    found = {"setting": {}, "rows": 1_000, "seconds": dict.fromkeys(fresh_nights.NIGHTS, seconds)}
    judged = fresh_nights.verdicts(found)
    assert [(one.figure, one.met) for one in judged] == [(1.1, True), (1.1, False), (1.1, False)]
    assert "| first night | 10.0 | 11.0 | 1.10 |" in fresh_nights.page(found)
    assert not drawn(103, seed=1).equals(drawn(103, seed=2)), "days have rows of their own"
