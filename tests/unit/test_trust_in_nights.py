"""What is measured of a run with a window, which published results are stale, and when two sketches agree."""

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.aggregates.shipped.streaming_histogram import STREAMING_HISTOGRAM, StreamingHistogramOptions
from skewless.documents.window import JobWindow, SeenFile, WindowPart, WindowSpan
from skewless.spec.part import Part, part_place, parts_between, parts_until
from skewless.standing.parts import FoundFile, Listed, changed_parts, covered_parts

DAY = Part(dt.date(2026, 11, 20))


def _file(name: str, version: str = "stat:5000000000:0:0", size: int = 10) -> SeenFile:
    return SeenFile(path=name, size_bytes=size, version=version, ranks=(1,))


def test_of_thousands_of_parts_without_files_a_few_are_told_and_all_are_counted() -> None:
    stray = WindowPart(name="1970-01-01", place=0)
    for count, words in {
        0: "",
        2: "2000-01-01, 2000-01-02",
        7: "2000-01-01, 2000-01-02, 2000-01-03, ..., 2000-01-05, 2000-01-06, 2000-01-07 (7 in all)",
        1000: "2000-01-01, 2000-01-02, 2000-01-03, ..., 2002-09-24, 2002-09-25, 2002-09-26 (1,000 in all)",
        20000: "2000-01-01, 2000-01-02, 2000-01-03, ..., 2054-10-01, 2054-10-02, 2054-10-03 (20,000 in all)",
    }.items():
        days = [dt.date(2000, 1, 1) + dt.timedelta(days=number) for number in range(count)]
        window = _window(stray, _part(20)).with_missing(map(str, reversed(days)))
        assert (window.missing_count, window.missing_words) == (count, words)
        assert len(window.missing) == min(count, 1000)
        assert window.missing == tuple(map(str, days if count <= 1000 else [*days[:3], *days[-997:]]))
    hours = parts_between(Part(dt.date(2026, 1, 1), "00"), Part(dt.date(2026, 4, 30), "05"), "Europe/Zurich")
    found = [WindowPart(name=one.name, place=part_place(one)) for one in (hours[0], hours[-2], hours[-1])]
    window = _window(*found).with_missing(one.name for one in hours[1:-2])
    assert window.missing_unnamed
    assert list(window.delays().values()) == [len(hours), 1, 0], "a clock was changed, so one hour too many"


def _window(*parts: WindowPart, missing: tuple[str, ...] = ()) -> JobWindow:
    return JobWindow(store="store", fingerprint="f", shapes={}, windows=(WindowSpan(),), parts=parts, missing=missing)


def _part(day: int, *files: SeenFile, late_rows: int | None = 0) -> WindowPart:
    return WindowPart(name=f"2026-11-{day}", place=day, files=files, base=1, late_rows=late_rows)


def test_a_part_is_as_new_as_its_newest_file_where_the_file_system_says_when_it_was_modified() -> None:
    tagged = _part(18, _file("a", "tag:1"), _file("b"))
    local = _part(19, _file("c", "stat:1764000000000000001:7:8"), _file("d", "stat:1764000001999999999:7:8"))
    assert (
        _window(tagged, local, _part(20)).newest_file == "newest file of 2026-11-19: modified 2025-11-24 16:00:01 UTC"
    )
    assert _window(tagged).newest_file == _window(_part(18, _file("a", "stat:x"))).newest_file == ""


@pytest.mark.parametrize(
    ("units", "ranks", "firsts", "required"),
    [
        (((0, 2), (3, 4)), ((1, 2), (1,)), (0,), "units follow each other"),
        (((0, 2), (1, 2)), ((1, 2), (1,)), (0,), "units follow each other"),
        (((0, 2), (2, 1)), ((1, 2), ()), (0,), "units follow each other"),
        (((0, 2), (2, 3)), ((1, 2), (1, 2)), (0,), "each with its rank"),
        (((0, 2), (2, 3)), ((1, 2), (1,)), (1,), "the last has all parts"),
        (((0, 2), (2, 3)), ((1, 2), (1,)), (0, 1, 0), "each is an end of the next"),
    ],
    ids=["a gap", "an overlap", "backwards", "a unit without a place", "a part in no window", "windows side by side"],
)
def test_a_window_whose_parts_do_not_fit_is_refused(
    units: Sequence[tuple[int, int]], ranks: Sequence[tuple[int, ...]], firsts: Sequence[int], required: str
) -> None:
    parts = [
        WindowPart(name=f"2026-11-{at}", place=at, units=span, ranks=of_units)
        for at, (span, of_units) in enumerate(zip(units, ranks, strict=True), start=19)
    ]
    windows = tuple(WindowSpan(first=first) for first in firsts)
    with pytest.raises(ValidationError, match=required):
        JobWindow(store="s", fingerprint="f", shapes={}, parts=tuple(parts), windows=windows)
    assert [_window(*parts[:1]).of_part(name).units for name in ("2026-11-19", "2026-11-20")] == [(0, 2), (0, 0)]


def _listed(*files: tuple[str, int]) -> Listed:
    found = [FoundFile(name, size, "") for name, size in files]
    return Listed(found, lambda seen, now: "" if seen.size_bytes == now.size_bytes else "other bytes")


def test_a_result_is_stale_if_a_part_of_its_window_is_not_as_it_was() -> None:
    window = _window(
        _part(18, _file("a")), _part(19, _file("b"), _file("c")), _part(20, _file("d")), missing=("2026-11-17",)
    )
    assert covered_parts(window) == ["2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20"]
    now = {
        "2026-11-17": _listed(), "2026-11-18": _listed(("a", 10)), "2026-11-19": _listed(("b", 10), ("c", 10)),
        "2026-11-20": _listed(("d", 10)),
    }  # fmt: skip
    assert changed_parts(window, now) == {}
    now |= {
        "2026-11-17": _listed(("y", 1), ("z", 1)),
        "2026-11-18": _listed(),
        "2026-11-19": _listed(("b", 11), ("late", 1)),
    }
    assert changed_parts(window, now) == {
        "2026-11-17": ("y came, the first of 2 files",),
        "2026-11-18": ("a was removed",),
        "2026-11-19": ("b was replaced: other bytes", "c was removed", "late was added"),
    }


def test_a_result_of_all_parts_is_stale_if_an_older_part_came_that_nobody_knew_of() -> None:
    of_all = _window(_part(19, _file("a")), _part(20, _file("b")))
    of_some = of_all.model_copy(update={"windows": (WindowSpan(length=2),)})
    now = {"2026-11-19": _listed(("a", 10)), "2026-11-20": _listed(("b", 10)), "2026-11-21": _listed(("c", 1))}
    assert changed_parts(of_all, now) == {}
    now["2026-11-01"] = _listed(("old", 1))
    assert changed_parts(of_some, now) == {}
    assert changed_parts(of_all, now) == {"2026-11-01": ("old came, the first of 1 files",)}


def _results(aggregate: Any, options: Any, values: list[int], cuts: list[int]) -> list[Any]:
    """The result of values that are reduced in one piece, and of the same in pieces that are merged."""
    found = []
    for bounds in ([0, len(values)], sorted({0, len(values), *(cut % (len(values) + 1) for cut in cuts)})):
        whole = aggregate.accumulator(options, ("bigint",))
        for first, end in pairwise(bounds):
            part = aggregate.accumulator(options, ("bigint",))
            kind = part.types.argument
            part.update(pa.array(values[first:end], kind), np.zeros(end - first, np.int64), 1)
            whole.merge(part.state(), np.zeros(1, np.int64), 1)
        found.append(whole.evaluate().to_pylist()[0])
    return found


def test_sketches_of_the_same_rows_agree_and_sketches_of_others_do_not() -> None:
    aggregate, options = cast("Any", STREAMING_HISTOGRAM), StreamingHistogramOptions(bins=3)

    @given(values=st.lists(st.integers(0, 9), min_size=1, max_size=80), cuts=st.lists(st.integers(0, 90), max_size=4))
    def check(values: list[int], cuts: list[int]) -> None:
        one, other = _results(aggregate, options, values, cuts)
        assert aggregate.agrees(one, other, options, len(values))

    check()
    (few, _), (more, _) = (_results(aggregate, options, values, []) for values in ([1, 2], [1, 2, 2]))
    assert not aggregate.agrees(few, more, options, 2)


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
