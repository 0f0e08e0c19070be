"""Cron expressions, ranges and partition keys, held to Airflow's own classes."""

import datetime as dt

import pendulum
import pytest
from airflow.partition_mappers.base import is_rollup
from airflow.sdk import CronPartitionTimetable, CronTriggerTimetable, RollupMapper, StartOfWeekMapper, WeekWindow
from airflow.serialization.decoders import decode_partition_mapper
from airflow.serialization.encoders import coerce_to_core_timetable, encode_partition_mapper
from airflow.timetables.base import DataInterval, TimeRestriction

from skewless.spec.part import Part
from skewless.spec.schedule import cron_fault
from skewless_airflow.partitions import PartMapper, PartTimetable
from tests import airflow_setting

EARLIEST = TimeRestriction(pendulum.datetime(2026, 1, 1), None, True)
TAKEN = [
    "0 2 * * *", "*/5 * * * *", "0 2 * * mon-fri", "0 0 1 JAN *", "0 0 L * *", "0 0 * * L5", "0 0 15W * *",
    "0 0 * * 1#2", "  0  2 * * * ", "0 0 29 2 *", "@daily", "@hourly", "@quarterly", "@midnight",
    "0 0 * * 7", "5-1 * * * *", "0 0 ? * *",
]  # fmt: skip
REFUSED = [
    "", " ", "daily", "@once", "@continuous", "@reboot", "0 2 * *", "0 2 * * * * * *", "0 99 * * *", "60 0 * * *",
    "0 0 0 1 *", "0 0 1 13 *", "0 0 * * 8", "0 0 * * L", "*/0 * * * *", "1- * * * *", "-1 * * * *", "x * * * *",
    "0 0 30 2 *", "0 0 31 4 *", "H 2 * * *", "? ? * * *", "0 2 * * * * 2030",
    "0 2 * * * * 2020", "\u0660 2 * * *",
]  # fmt: skip


@pytest.mark.parametrize("expression", [*TAKEN, *REFUSED], ids=repr)
def test_a_cron_expression_is_refused_where_airflow_refuses_it(expression: str) -> None:
    assert bool(cron_fault(expression)) == (not _airflow_takes(expression)) == (expression in REFUSED)


def _airflow_takes(expression: str) -> bool:
    try:
        own = CronTriggerTimetable(expression, timezone="UTC")
        own.validate()
        info = coerce_to_core_timetable(own).next_dagrun_info(last_automated_data_interval=None, restriction=EARLIEST)
    except Exception:  # noqa: BLE001  # in whatever way it refuses
        return False
    return info is not None


def test_nights_follow_each_other_and_end_with_the_last_day() -> None:
    table = PartTimetable("0 2 * * *", timezone="Europe/Zurich", unit="day", offset=-2)
    end = TimeRestriction(None, pendulum.datetime(2026, 3, 1, tz="Europe/Zurich"), True)
    nights = []
    last = DataInterval.exact(pendulum.datetime(2026, 3, 1, 2, tz="Europe/Zurich"))
    while info := table.next_dagrun_info(last_automated_data_interval=last, restriction=end):
        assert info.data_interval is not None
        last = info.data_interval
        nights.append(info.run_after.in_timezone("Europe/Zurich").to_datetime_string())
    assert nights == ["2026-03-02 02:00:00", "2026-03-03 02:00:00"]


def test_a_range_of_days_has_all_hours_of_its_last_day() -> None:
    table = PartTimetable("5 * * * *", timezone="Europe/Zurich", unit="hour", offset=-1)
    days = TimeRestriction(pendulum.datetime(2026, 3, 1), pendulum.datetime(2026, 3, 3), True)
    last, moments = None, []
    while info := table.next_dagrun_info(last_automated_data_interval=last, restriction=days):
        assert info.data_interval is not None
        last = info.data_interval
        moments.append(info.run_after.in_timezone("Europe/Zurich").to_datetime_string())
    assert len(moments) == 3 * 24
    assert (moments[0], moments[-1]) == ("2026-03-01 01:05:00", "2026-03-04 00:05:00")


pytestmark = airflow_setting.IN_PROCESS

UTC = dt.UTC
DAYS = PartMapper(unit="day", timezone="Europe/Zurich")
HOURS = PartMapper(unit="hour", timezone="Europe/Zurich")


@pytest.mark.parametrize(
    ("mapper", "key", "parts"),
    [
        pytest.param(DAYS, "2026-11-21", ["2026-11-21"], id="day"),
        pytest.param(DAYS, "2026-11-21T05", ["2026-11-21"], id="day-of-an-hour"),
        pytest.param(DAYS, "2026-10-25T02b", ["2026-10-25"], id="day-of-an-hour-that-comes-twice"),
        pytest.param(HOURS, "2026-11-21T05", ["2026-11-21T05"], id="hour"),
        pytest.param(HOURS, "2026-10-25T02b", ["2026-10-25T02b"], id="hour-that-comes-twice"),
        pytest.param(HOURS, "2026-11-21T05:00:00", ["2026-11-21T05"], id="hour-as-airflow-writes-it"),
        pytest.param(HOURS, "2026-11-21T05:30", ["2026-11-21T05"], id="hour-of-a-minute"),
        pytest.param(HOURS, "2026-03-29", [f"2026-03-29T{n:02d}" for n in range(24) if n != 2], id="hours-of-a-day"),
    ],
)
def test_a_key_names_the_parts_of_a_job(mapper: PartMapper, key: str, parts: list[str]) -> None:
    assert mapper.to_downstream(key) == parts
    again = decode_partition_mapper(encode_partition_mapper(mapper))
    assert again.to_downstream(key) == parts


@pytest.mark.parametrize(
    ("mapper", "key"),
    [
        pytest.param(DAYS, "us", id="no-day"),
        pytest.param(DAYS, "2026-02-30", id="no-such-day"),
        pytest.param(DAYS, "2026-11-21T5", id="no-such-hour"),
        pytest.param(HOURS, "2026-03-29T02", id="hour-that-is-skipped"),
        pytest.param(HOURS, "2026-11-21T05b", id="hour-that-comes-once"),
        pytest.param(DAYS, "2026-11-21|05", id="a-key-of-segments"),
        pytest.param(HOURS, "2026-11-21T23:00:00+00:00", id="offset"),
        pytest.param(DAYS, "2026-11-21T23:00:00Z", id="utc"),
        pytest.param(HOURS, "2026-11-21T05:", id="no-minutes"),
        pytest.param(HOURS, "2026-11-21T05:60", id="no-such-minute"),
        pytest.param(HOURS, "2026-11-21T05:00:00:00", id="more-than-seconds"),
        pytest.param(DAYS, "2026-11-21T05:us", id="junk"),
    ],
)
def test_a_key_that_names_no_part_starts_no_run(mapper: PartMapper, key: str) -> None:
    with pytest.raises(ValueError, match=r"partition key.* expected"):
        mapper.to_downstream(key)


@pytest.mark.parametrize(
    ("part", "begin"),
    [
        pytest.param("2026-11-21", dt.datetime(2026, 11, 20, 23, tzinfo=UTC), id="day"),
        pytest.param("2026-10-25T02", dt.datetime(2026, 10, 25, 0, tzinfo=UTC), id="first-of-two"),
        pytest.param("2026-10-25T02b", dt.datetime(2026, 10, 25, 1, tzinfo=UTC), id="second-of-two"),
    ],
)
def test_the_date_of_a_run_is_when_its_part_begins(part: str, begin: dt.datetime) -> None:
    mapper = HOURS if Part.named(part).hour else DAYS
    assert mapper.to_partition_date(part) == begin


def test_airflows_own_mappers_make_weeks_of_the_days_of_results() -> None:
    given = RollupMapper(upstream_mapper=StartOfWeekMapper(input_format="%Y-%m-%d"), window=WeekWindow())
    weeks = decode_partition_mapper(encode_partition_mapper(given))
    assert is_rollup(weeks)
    days = [Part(dt.date(2026, 11, day)).name for day in range(16, 23)]
    (week,) = {str(weeks.to_downstream(day)) for day in days}
    assert sorted(weeks.to_upstream(week)) == days


def test_the_keys_of_airflows_own_timetable_are_understood() -> None:
    table = coerce_to_core_timetable(CronPartitionTimetable("0 2 * * *", timezone="UTC"))
    start = TimeRestriction(pendulum.datetime(2026, 11, 21, 1), None, True)
    info = table.next_dagrun_info_v2(last_dagrun_info=None, restriction=start)
    assert info is not None
    assert info.partition_key is not None
    assert DAYS.to_downstream(info.partition_key) == ["2026-11-21"]
    assert HOURS.to_downstream(info.partition_key) == ["2026-11-21T02"]
