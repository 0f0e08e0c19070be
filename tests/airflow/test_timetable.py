"""Cron expressions and ranges, held to Airflow's own classes."""

from __future__ import annotations

import pendulum
import pytest
from airflow.sdk import CronTriggerTimetable
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import DataInterval, TimeRestriction

from skewless.spec.schedule import cron_fault
from skewless_airflow.dags.timetable import PartTimetable

EARLIEST = TimeRestriction(pendulum.datetime(2026, 1, 1), None, True)
TAKEN = [
    "0 2 * * *", "*/5 * * * *", "0 2 * * mon-fri", "0 0 1 JAN *", "0 0 L * *", "0 0 * * L5", "0 0 15W * *",
    "0 0 * * 1#2", "0 2 * * * *", "  0  2 * * * ", "0 0 29 2 *", "@daily", "@hourly", "@quarterly", "@midnight",
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
    """Whether Airflow's own timetable can be made, is valid and has a next run."""
    try:
        own = CronTriggerTimetable(expression, timezone="UTC")
        own.validate()
        info = coerce_to_core_timetable(own).next_dagrun_info(last_automated_data_interval=None, restriction=EARLIEST)
    except Exception:  # noqa: BLE001  # in whatever way it refuses
        return False
    return info is not None


def test_the_first_day_that_is_computed_is_that_of_the_start() -> None:
    table = PartTimetable("0 2 * * *", timezone="Europe/Zurich", unit="day", offset=-1)
    start = pendulum.datetime(2026, 3, 1, tz="Europe/Zurich")
    info = table.next_dagrun_info(last_automated_data_interval=None, restriction=TimeRestriction(start, None, True))
    assert info is not None
    assert info.logical_date == pendulum.datetime(2026, 3, 2, 2, tz="Europe/Zurich")


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


def test_what_is_stored_is_what_is_read() -> None:
    table = PartTimetable("0 2 * * *", "0 14 * * *", timezone="Asia/Kolkata", unit="hour", offset=-3)
    assert PartTimetable.deserialize(table.serialize()).serialize() == table.serialize()
