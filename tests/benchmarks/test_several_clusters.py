"""What is made of the seconds of clusters alone and together; the measurement itself is run by ``make bench``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.several_clusters import WAYS, page, plot, ratios, sentence

SECONDS = dict(zip(WAYS, (9.0, 10.0, 30.0, 8.0), strict=True))


def test_ratios_are_those_to_both_together() -> None:
    assert ratios(SECONDS, 6.4) == {
        "fast_over_together": 1.25,
        "slow_over_together": 3.75,
        "together_over_ideal": 1.25,
        "not_shared_over_together": 1.125,
        "shared_over_not": pytest.approx(10 / 9, abs=1e-3),
    }


def test_the_page_has_a_line_for_each_way_and_the_plot_is_the_same_each_time(tmp_path: Path) -> None:
    ways = {
        way: {"seconds": seconds, "tasks": dict.fromkeys(WAYS[way][0], 3), "routed_by": WAYS[way][0][0]}
        for way, seconds in SECONDS.items()
    }
    document = {
        "rows": 1, "reducers": 6, "row_seconds": 5e-4, "slowdown": 2.5, "lease_seconds": 2.0,
        "setting": {"cores": 2}, "ideal_seconds": 6.4, "aim": 1.15, "ways": ways, "ratios": ratios(SECONDS, 6.4),
    }  # fmt: skip
    assert "1.25 of the ideal (at most 1.15: NOT MET)" in sentence(document)
    assert "3 tasks on the fast cluster and 3 on the slow one" in sentence(document)
    assert [line.split("|")[1].strip() for line in page(document).splitlines() if line.startswith("| ")][1:] == [*WAYS]
    for name in ("one", "two"):
        plot(document, tmp_path / f"{name}.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
