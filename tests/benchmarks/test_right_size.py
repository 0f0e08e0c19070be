"""B17: the advice is followed through the cells of a sweep, and judged beside the best of them."""

from __future__ import annotations

from benchmarks.right_size import AIM, Night, Size, document, followed, judged, page
from skewless.run.sizing import Measured
from tests.unit import synthetic
from tests.unit.test_bill import night

SETTING = {"python": "3", "spark": "4"}


def swept() -> dict[Size, list[Night]]:
    """64 reducers have tasks of 0.05 s, and take longest; one core takes a little longer than two."""
    found = {}
    for cores, reducers in ((cores, reducers) for cores in (2, 1) for reducers in (2, 16, 64)):
        bill = night(cores=cores, held_seconds=20.0, used_seconds=12.8, skew_seconds=0.0, tasks=4 * reducers)
        told = Measured(synthetic.spec(reducers=reducers), bill)
        found[Size(cores, reducers)] = [Night(told, 10.0 + reducers / 8 - cores, 13.0, "staged")]
    return found | {Size(2, 8): found[Size(2, 16)]}


def test_the_advice_is_followed_from_cell_to_cell_and_judged_beside_the_best() -> None:
    found = swept()
    assert followed(found, Size(2, 64)) == Size(2, 16), "0.2 s are enough"
    told = judged(found)
    assert (told["best"], told["advised"]) == (Size(2, 2), Size(2, 16))
    assert told["over_best"] == round(10.0 / 8.25, 3)
    assert told["worst_over_best"] == round(17.0 / 8.25, 3)
    whole = document([{"workload": f"w{number}", "setting": SETTING, **told} for number in range(6)])
    first, *others = whole["verdicts"]
    assert (first["figure"], first["limit"], first["met"], len(others)) == (0.0, AIM, False, 6)
    assert "| w5 | staged | 2, 16: 10.0 | 2, 2: 8.2 | 1.21 |" in page(whole)
