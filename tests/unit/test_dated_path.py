"""Paths that name the day of a run."""

from __future__ import annotations

import datetime as dt

import pytest

from skewless.errors import SpecError
from skewless.spec.part import Part, resolve_path

DAY = Part(dt.date(2026, 1, 31))
SECOND_TWO = Part(dt.date(2026, 10, 25), "02b")


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/lake/{date}", "/lake/2026-01-31"),
        ("/lake/{date:%Y/%m/%d}/x", "/lake/2026/01/31/x"),
        ("/lake/date={date}/{date:%d}%", "/lake/date=2026-01-31/31%"),
        ("/in put [1]{a,b}/{}/{1}", "/in put [1]{a,b}/{}/{1}"),
        ("/{date:%Y%%}", "/2026%"),
    ],
)
def test_the_day_is_put_in_and_other_braces_stay(path: str, resolved: str) -> None:
    assert resolve_path(path, DAY, "spec") == resolved


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/lake/{date}/{hour}", "/lake/2026-10-25/02b"),
        ("/lake/{date:%Y%m%d}/h{hour:%H}", "/lake/20261025/h02b"),
        ("/lake/{hour:%Y/%m/%d/%H}/x", "/lake/2026/10/25/02b/x"),
    ],
)
def test_the_second_of_two_hours_keeps_its_letter_in_every_form(path: str, resolved: str) -> None:
    assert resolve_path(path, SECOND_TWO, "spec") == resolved


@pytest.mark.parametrize(
    ("part", "path", "words"),
    [
        pytest.param(DAY, "/{hour}", "expected {hour} only in a job of hours", id="job-of-days"),
        pytest.param(SECOND_TWO, "/{hour:%d}", "expected the directive %H in {hour}", id="no-hour-in-it"),
        pytest.param(SECOND_TWO, "/{hour:%H%M}", "got %M in {hour:%H%M}", id="minutes"),
        pytest.param(SECOND_TWO, "/{date:%H}", "got %H in {date:%H}", id="hour-of-a-date"),
    ],
)
def test_an_hour_that_cannot_be_put_in_is_refused(part: Part, path: str, words: str) -> None:
    with pytest.raises(SpecError) as refused:
        resolve_path(path, part, "spec, field input.path")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "path",
    ["/{date.year}", "/{date!r}", "/{ds}", "/{date.__class__}", "/{date[0]}", "/{date:%H}", "/{date:%}", "/{date:}"],
)
def test_other_fields_and_directives_are_refused_in_a_sentence(path: str) -> None:
    with pytest.raises(SpecError, match=r"^spec, field input\.path: expected .* but got .*\.$"):
        resolve_path(path, DAY, "spec, field input.path")
