"""Paths that name the day of a run."""

from __future__ import annotations

import datetime as dt

import pytest

from skewless.dated_path import resolve_date
from skewless.errors import SpecError

DAY = dt.date(2026, 1, 31)


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
    assert resolve_date(path, DAY, "spec") == resolved


@pytest.mark.parametrize(
    "path",
    ["/{date.year}", "/{date!r}", "/{ds}", "/{date.__class__}", "/{date[0]}", "/{date:%H}", "/{date:%}", "/{date:}"],
)
def test_other_fields_and_directives_are_refused_in_a_sentence(path: str) -> None:
    with pytest.raises(SpecError, match=r"^spec, field input\.path: required .* but came .*\.$"):
        resolve_date(path, DAY, "spec, field input.path")
