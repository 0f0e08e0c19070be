"""Which day or hour a run computes: the day before, on every night of the year; and the paths that name it."""

import datetime as dt
import fnmatch
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.documents.job import Job
from skewless.errors import DocumentError, SpecError
from skewless.publication.records import published_path
from skewless.spec.part import DatedPath, Part, hours_of, part_at, part_named, parts_between, parts_until, resolve_path
from skewless.spec.schedule import Schedule
from tests.unit.synthetic import job

ZURICH = "Europe/Zurich"
NIGHTLY: dict[str, Any] = {"cron": "0 2 * * *", "timezone": ZURICH}
HOURLY: dict[str, Any] = {"cron": "5 * * * *", "timezone": ZURICH, "part": "hour-1"}


def _utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("schedule", "moment", "part"),
    [
        # What a night is for: the day that has ended.
        pytest.param(NIGHTLY, "2026-11-22T01:00", "2026-11-21", id="night"),
        pytest.param({**NIGHTLY, "cron": "0 0 * * *"}, "2026-11-21T23:00", "2026-11-21", id="midnight"),
        pytest.param({**NIGHTLY, "part": "day"}, "2026-11-22T01:00", "2026-11-22", id="current"),
        pytest.param({**NIGHTLY, "part": "day-2"}, "2026-11-22T01:00", "2026-11-20", id="two-days-before"),
        pytest.param({**NIGHTLY, "part": "day+1"}, "2026-11-22T01:00", "2026-11-23", id="the-day-after"),
        pytest.param({"asset": "orders"}, "2026-11-22T01:00", "2026-11-21", id="asset"),
        pytest.param({}, "2026-11-22T01:00", "2026-11-22", id="by-hand"),
        # 23:30 in UTC is after midnight in Zurich: the day is the schedule's.
        pytest.param(NIGHTLY, "2026-11-21T23:30", "2026-11-21", id="after-midnight-there"),
        # 29 March has 23 hours in Zurich, and no 02:00: cron runs at 03:00, which is 01:00 in UTC.
        pytest.param(NIGHTLY, "2026-03-29T01:00", "2026-03-28", id="spring-night"),
        pytest.param(NIGHTLY, "2026-03-30T00:00", "2026-03-29", id="night-after-spring"),
        pytest.param({**NIGHTLY, "cron": "30 0 * * *"}, "2026-03-29T22:30", "2026-03-29", id="after-23-hours"),
        # 25 October has 25 hours, and 02:00 twice.
        pytest.param(NIGHTLY, "2026-10-25T00:00", "2026-10-24", id="autumn-night"),
        pytest.param({**NIGHTLY, "cron": "30 23 * * *"}, "2026-10-25T22:30", "2026-10-24", id="before-midnight"),
        # In Santiago summer time begins at midnight: 6 September begins at 01:00.
        pytest.param(
            {"cron": "0 1 * * *", "timezone": "America/Santiago"}, "2026-09-06T04:00", "2026-09-05", id="no-midnight"
        ),
        pytest.param(HOURLY, "2026-11-22T01:05", "2026-11-22, hour 01", id="hour"),
        pytest.param({**HOURLY, "part": "hour"}, "2026-11-22T01:05", "2026-11-22, hour 02", id="current-hour"),
        pytest.param({**HOURLY, "part": "hour-3"}, "2026-11-22T01:05", "2026-11-21, hour 23", id="three-hours-before"),
        pytest.param(HOURLY, "2026-10-25T02:05", "2026-10-25, hour 02b", id="autumn-hour-again"),
    ],
)
def test_a_run_computes_what_its_schedule_says(schedule: dict[str, Any], moment: str, part: str) -> None:
    assert str(Schedule(**schedule).part_of(_utc(moment))) == part


@pytest.mark.parametrize(
    ("day", "first_utc", "count"), [("2026-03-29", "2026-03-28T23", 23), ("2026-10-25", "2026-10-24T22", 25)]
)
def test_hourly_runs_of_a_night_of_daylight_saving_compute_each_hour_once(day: str, first_utc: str, count: int) -> None:
    begin = _utc(f"{first_utc}:05") + dt.timedelta(hours=1)
    schedule = Schedule(**HOURLY)
    parts = [schedule.part_of(begin + dt.timedelta(hours=number)) for number in range(count)]
    assert [part.hour for part in parts] == list(hours_of(dt.date.fromisoformat(day), ZURICH))
    assert {part.date.isoformat() for part in parts} == {day}
    assert len({part.folder() for part in parts}) == count
    assert parts == sorted(parts)


@given(st.integers(0, 15 * 365 * 24 * 60), st.sampled_from([ZURICH, "America/New_York"]))
def test_hours_that_follow_each_other_have_names_of_their_own(minutes: int, zone: str) -> None:
    moment = _utc("2020-01-01") + dt.timedelta(minutes=minutes)
    assert part_at(moment, zone, "hour", -1) == part_at(moment - dt.timedelta(hours=1), zone, "hour")
    assert part_at(moment, zone, "hour", -1) < part_at(moment, zone, "hour")
    assert part_at(moment, zone, "hour").hour in hours_of(moment.astimezone(ZoneInfo(zone)).date(), zone)


def test_the_results_of_two_hours_have_folders_of_their_own() -> None:
    daily = job([10], output_path="/out")
    hourly = daily.spec.model_copy(update={"schedule": Schedule(**HOURLY)})
    first, second = (
        daily.model_copy(update={"spec": hourly, "date": dt.date(2026, 10, 25), "hour": hour}) for hour in ("02", "02b")
    )
    assert published_path(first) == "/out/date=2026-10-25/hour=02"
    assert published_path(second) == "/out/date=2026-10-25/hour=02b"
    assert published_path(daily) == f"/out/date={daily.date}"
    assert Job.from_json(second.to_json()).part == Part(dt.date(2026, 10, 25), "02b")


def test_a_job_of_days_has_no_hour_and_one_of_hours_has() -> None:
    daily = job([10])
    with pytest.raises(DocumentError, match="a part of the unit day"):
        Job.from_json(daily.model_copy(update={"hour": "02"}).to_json())


def test_a_part_can_be_named() -> None:
    assert part_named("2026-10-25", "02b", ZURICH, "hour", "--") == Part(dt.date(2026, 10, 25), "02b")
    assert part_named("2026-10-25", None, ZURICH, "day", "--") == Part(dt.date(2026, 10, 25))


@pytest.mark.parametrize(
    ("date", "hour", "unit", "words"),
    [
        pytest.param(
            "31.1.2026", None, "day", "--date: expected a day like 2026-01-31, but got '31.1.2026'", id="date"
        ),
        pytest.param("2026-01-31", "02", "day", "--hour: a job of days has no hours", id="hour-of-days"),
        pytest.param("2026-01-31", None, "hour", "--hour: a job of hours needs an hour", id="no-hour"),
        pytest.param("2026-01-31", "02b", "hour", "expected an hour of 2026-01-31 in Europe/Zurich", id="not-twice"),
        pytest.param("2026-03-29", "02", "hour", "expected an hour of 2026-03-29 in Europe/Zurich", id="left-out"),
        pytest.param("2026-01-31", "2", "hour", "from 00 to 23, but got '2'", id="one-digit"),
    ],
)
def test_a_part_that_is_none_is_refused_in_a_sentence(date: str, hour: str | None, unit: Any, words: str) -> None:
    with pytest.raises(SpecError) as refused:
        part_named(date, hour, ZURICH, unit, "--")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "wrong", [{"part": one} for one in ("yesterday", "day-", "day-1.5", "hour -1", "day-1000000", -1, True)]
)
def test_what_a_run_covers_is_one_of_few(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"day or hour, alone or with an offset|valid string"):
        Schedule(**wrong)


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (Part(dt.date(1, 1, 1)), 2),
        (Part(dt.date(1, 1, 27)), 28),
        (Part(dt.date(1, 1, 2), "00"), 28),
        (Part(dt.date.max, "00"), 2),
    ],
)
def test_a_window_beyond_the_calendar_is_a_sentence(part: Part, count: int) -> None:
    with pytest.raises(
        SpecError, match=r"^part [\dT-]+: expected .*, but got one at an end of the calendar; compute another"
    ):
        parts_until(part, count, "Europe/Zurich")
    assert parts_until(Part(dt.date(1, 1, 2)), 2, "UTC")[0].date == dt.date.min


DAY = Part(dt.date(2026, 1, 31))
SECOND_TWO = Part(dt.date(2026, 10, 25), "02b")
REFUSED = "(expected .*, but got|there is no field)"


@pytest.mark.parametrize(
    ("part", "path", "resolved"),
    [
        (DAY, "/lake/{date}", "/lake/2026-01-31"),
        (DAY, "/lake/{date:%Y/%m/%d}/x", "/lake/2026/01/31/x"),
        (DAY, "/lake/date={date}/{date:%d}%", "/lake/date=2026-01-31/31%"),
        (DAY, "/in put [1]{a,b}/{}/{1}", "/in put [1]{a,b}/{}/{1}"),
        (DAY, "/{date:%Y%%}", "/2026%"),
        (SECOND_TWO, "/lake/{date}/{hour}", "/lake/2026-10-25/02b"),
        (SECOND_TWO, "/lake/{date:%Y%m%d}/h{hour:%H}", "/lake/20261025/h02b"),
        (SECOND_TWO, "/lake/{hour:%Y/%m/%d/%H}/x", "/lake/2026/10/25/02b/x"),
    ],
)
def test_a_part_is_put_into_a_path_and_other_braces_stay(part: Part, path: str, resolved: str) -> None:
    assert resolve_path(path, part, "spec") == resolved


@pytest.mark.parametrize(
    ("part", "path", "words"),
    [
        (DAY, "/{hour}", r"a job of days has no \{hour\}"),
        (SECOND_TWO, "/{hour:%d}", r"the directive %H is missing in \{hour"),
        (SECOND_TWO, "/{hour:%H%M}", r"got %M in \{hour:%H%M\}"),
        (SECOND_TWO, "/{date:%H}", r"got %H in \{date:%H\}"),
        *((DAY, f"/{{{field}}}", REFUSED) for field in ("date.year", "date!r", "ds", "date.__class__", "date[0]")),
        (DAY, "/{date:%Y/x", r"the brace of a field is not closed; write \{date\}"),
        *((DAY, f"/{{date:{form}}}", REFUSED) for form in ("%H", "%", "")),
    ],
)
def test_other_fields_and_directives_are_refused_in_a_sentence(part: Part, path: str, words: str) -> None:
    with pytest.raises(SpecError, match=rf"^spec, field input\.path: .*{words}.*\.$"):
        resolve_path(path, part, "spec, field input.path")


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/lake/date={date}", "day"),
        ("/lake/{date:%Y/%m/%d}/*.parquet", "day"),
        ("lake/x-{date:%y%j}-?[ab].csv", "day"),
        ("s3://lake/100%%/{date:%G-W%V}/{date:%u}", "day"),
        ("/lake/{date}/{hour}", "hour"),
        ("/lake/{date:%Y}/{date:%m-%d}/h{hour:%H}z", "hour"),
    ],
)
def test_a_path_tells_of_which_part_it_is(path: str, unit: str) -> None:
    dated = DatedPath(path, "spec")
    last = Part(dt.date(2026, 10, 25), "02b" if unit == "hour" else None)  # an hour that comes twice
    for part in parts_between(Part(dt.date(2026, 10, 24), last.hour and "23"), last, "Europe/Zurich"):
        found = resolve_path(path, part, "spec").replace("?[ab]", "xb")
        found = "/".join(found.split("/")[: dated.pattern.count("/") + 1])
        assert dated.part_at(found, "Europe/Zurich") == part
        assert fnmatch.fnmatch(found, dated.pattern)
    assert "**" not in dated.pattern


def test_a_path_that_is_no_part_is_of_none() -> None:
    dated = DatedPath("/lake/{date}/{date:%Y}-{hour}", "spec")
    for other in ("2026-02-30/2026-00", "2026-02-03/2025-00", "2026-3-04/2026-00", "2026-02-03/2026-02b", "x/y", ""):
        assert dated.part_at(f"/lake/{other}", "Europe/Zurich") is None
    for path in ("/lake/{date:%Y-%m}/**/{date:%d}", "/lake/{date:%G%m%d}"):
        with pytest.raises(SpecError, match="with window: all, but got"):
            DatedPath(path, "spec")
