"""How late the parts of a window are."""

from __future__ import annotations

import datetime as dt

from skewless.documents.window import JobWindow, WindowPart, WindowSpan
from skewless.spec.part import Part, part_place, parts_until


def test_a_part_is_late_by_the_parts_after_it_also_where_an_hour_comes_twice() -> None:
    hours = parts_until(Part(dt.date(2026, 10, 25), "03"), 5, "Europe/Zurich")
    assert [hour.hour for hour in hours] == ["00", "01", "02", "02b", "03"]
    units = ((0, 0), (0, 1), (1, 1), (1, 1), (1, 1))
    parts = [
        WindowPart(name=one.name, place=part_place(one), base=1, before_rows=9, units=span, ranks=(0,) * (at == 1))
        for at, (one, span) in enumerate(zip(hours, units, strict=True))
    ]
    window = JobWindow(
        store="/s", fingerprint="f", shapes={}, windows=(WindowSpan(),), parts=(*parts[:2], *parts[3:]),
        missing=(hours[2].name,),
    )  # fmt: skip
    ((late, delay),) = window.late()
    assert (late.name, late.way, delay) == ("2026-10-25T01", "added to", 3)
