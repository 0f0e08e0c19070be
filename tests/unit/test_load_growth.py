"""What the soak calls growth: the verdict by itself, on looks made up for it."""

from __future__ import annotations

from dataclasses import replace

from tests.load.footprint import Footprint, growth

FLAT = Footprint(0, {"scheduler": 300.0}, {"scheduler": 40}, 9, 12)


def looks(**by_look: list[float]) -> list[Footprint]:
    """Nine looks; what is given changes from one to the next."""
    found = []
    for number in range(9):
        one = replace(FLAT, runs=10 * number)
        if "mib" in by_look:
            one = replace(one, mib={"scheduler": by_look["mib"][number]})
        if "descriptors" in by_look:
            one = replace(one, descriptors={"scheduler": int(by_look["descriptors"][number])})
        if "files" in by_look:
            one = replace(one, temporary_files=int(by_look["files"][number]))
        found.append(one)
    return found


def test_what_stays_has_not_grown() -> None:
    assert growth(looks()) == []


def test_what_fills_in_the_beginning_has_not_grown() -> None:
    assert (
        growth(looks(mib=[100, 300, 390, 400, 400, 401, 402, 402, 402], files=[0, 40, 60, 60, 60, 60, 60, 60, 60]))
        == []
    )


def test_a_little_with_each_run_has_grown() -> None:
    assert growth(looks(mib=[300.0 + 20 * number for number in range(9)])) == [
        "MiB of the scheduler grew from 380.0 to 440.0"
    ]
    assert growth(looks(descriptors=[40.0 + 5 * number for number in range(9)])) == [
        "descriptors of the scheduler grew from 60.0 to 75.0"
    ]
    assert growth(looks(files=[12.0 + 10 * number for number in range(9)])) == [
        "temporary files grew from 52.0 to 82.0"
    ]
