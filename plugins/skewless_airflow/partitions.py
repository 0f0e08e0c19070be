"""When a job's DAG runs and which parts of the input its runs and asset events name: timetable and partition keys."""

import datetime as dt
import re
from typing import Any
from zoneinfo import ZoneInfo

from airflow.partition_mappers.base import PartitionMapper
from airflow.sdk import Asset
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.trigger import MultipleCronTriggerTimetable
from pendulum import DateTime, datetime, instance
from pendulum.tz.timezone import FixedTimezone, Timezone

from skewless.errors import SpecError
from skewless.spec.part import SECOND, Part, PartUnit, covered_words, hours_of, part_named
from skewless.spec.schedule import FINAL_ASSET, PARTS_ASSET, Schedule

#: A day, or an hour; Airflow's own timetables write minutes and seconds, too. An offset from UTC would be another hour.
_KEY = re.compile(rf"(\d{{4}}-\d\d-\d\d)(?:T(\d\d{SECOND}?)(?::[0-5]\d){{0,2}})?", re.ASCII)


def parts_asset(name: str) -> Asset:
    """The asset of the parts of a result: each of its events has a part's name as its partition key.

    It is an asset of its own, as an event with a key starts no DAG that waits for an asset alone, and an event
    without one starts no partitioned DAG (``airflow.assets.manager``).
    """
    return Asset(name=f"{name}{PARTS_ASSET}")


def final_asset(name: str) -> Asset:
    """The asset of the days of a result that are final: each of its events has such a day as its partition key."""
    return Asset(name=f"{name}{FINAL_ASSET}")


def parts_of_key(key: str, timezone: str, unit: PartUnit) -> tuple[Part, ...]:
    """The parts of a job that a key names: a day has all its hours, and an hour is of a day.

    >>> [part.name for part in parts_of_key("2026-11-21T05", "UTC", "day")]
    ['2026-11-21']
    >>> len(parts_of_key("2026-10-25", "Europe/Zurich", "hour"))
    25

    Raises:
        SpecError: it names none.
    """
    found = _KEY.fullmatch(key)
    if found is None:
        raise SpecError("partition key", "a day like 2026-01-31 or an hour like 2026-01-31T05", repr(key)[:80])
    day = part_named(found[1], None, timezone, "day", "partition key's ")
    if unit == "day":
        return (day,)
    hours = (found[2],) if found[2] else hours_of(day.date, timezone)
    return tuple(part_named(found[1], hour, timezone, unit, "partition key's ") for hour in hours)


class PartMapper(PartitionMapper):
    """From the partition key of an event to those of the runs of a job: one run for each part.

    Airflow writes a key that names no part into its audit log, and starts no run for it.
    """

    def __init__(self, *, unit: PartUnit, timezone: str) -> None:
        super().__init__()
        self._unit, self._timezone = unit, timezone

    def to_downstream(self, key: str) -> list[str]:
        """The names of the parts."""
        return [part.name for part in self._parts(key)]

    def to_partition_date(self, downstream_key: str) -> dt.datetime | None:
        """When the part of a run begins."""
        part = self._parts(downstream_key)[0]
        hour = part.hour or "00"
        clock = dt.time(int(hour[:2]), fold=int(hour.endswith(SECOND)))
        return dt.datetime.combine(part.date, clock, ZoneInfo(self._timezone)).astimezone(dt.UTC)

    def _parts(self, key: str) -> tuple[Part, ...]:
        try:
            return parts_of_key(key, self._timezone, self._unit)
        except SpecError as err:
            raise ValueError(str(err)) from None  # what Airflow expects of a mapper

    def serialize(self) -> dict[str, Any]:
        """The arguments."""
        return {"unit": self._unit, "timezone": self._timezone}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "PartMapper":
        """A mapper from what ``serialize`` returned."""
        return cls(unit=data["unit"], timezone=data["timezone"])


_INSTANT = dt.timedelta(microseconds=1)


class PartTimetable(MultipleCronTriggerTimetable):
    """Runs at the moments of cron expressions in a time zone; each run computes a part: a day, or an hour.

    The logical date of a run is its moment, as with Airflow's own cron timetables: two runs of one day stay two. What
    differs is a date range, that of a backfill or from the start to the end of the DAG: it names the parts to compute.
    If a run computes the day before, the backfill of 1 to 3 March has the runs of 2 to 4 March.

    Airflow turns a day without a time into midnight in UTC. So a bound at that moment names the day, in the
    schedule's time zone, with all its hours. Any other bound names the part that its moment is in.

    Args:
        timezone: of the expressions, and of days and hours.
        offset: of the part that a run computes, counted from the part of its moment.
    """

    def __init__(
        self, *crons: str, timezone: str | Timezone | FixedTimezone, unit: PartUnit = "day", offset: int = -1
    ) -> None:
        super().__init__(*crons, timezone=timezone)
        self._unit, self._offset = unit, offset
        # Airflow shows it in the list of DAGs and on the page of a DAG.
        self.description = f"{self.description}, {self.covered.timezone}; computes {covered_words(unit, offset)}"

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "PartTimetable":
        """A timetable from what ``serialize`` returned."""
        crons, zone = data["expressions"], data["timezone"]
        return cls(*crons, timezone=zone, unit=data["unit"], offset=data["offset"])

    def serialize(self) -> dict[str, Any]:
        """Airflow's fields, and the part that runs compute."""
        return {**super().serialize(), "unit": self._unit, "offset": self._offset}

    @property
    def covered(self) -> Schedule:
        """The part that runs compute, as the schedule of a spec."""
        return Schedule(timezone=self._zone, part=f"{self._unit}{self._offset:+d}")

    @property
    def _zone(self) -> str:
        return str(self.serialize()["timezone"])

    def validate(self) -> None:
        """Refuse invalid expressions."""
        for one in self._timetables:
            one.validate()

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next run, between the runs of the first and of the last part that are asked for."""
        first = None if restriction.earliest is None else self._moments(restriction.earliest)[0]
        last = None if restriction.latest is None else self._moments(restriction.latest)[1]
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval,
            restriction=TimeRestriction(first, last, restriction.catchup),
        )

    def _moments(self, bound: dt.datetime) -> tuple[DateTime, DateTime]:
        """The first and the last moment of the runs that compute what a bound names: a part, or all hours of a day."""
        zone, given = self._zone, instance(bound).in_timezone("UTC")
        there = given.in_timezone(zone)
        whole_day = self._unit == "day"
        if given == given.start_of("day"):
            there, whole_day = datetime(given.year, given.month, given.day, tz=zone), True
        if whole_day:
            begin, end = there.start_of("day"), there.start_of("day").add(days=1)
        else:
            past = dt.timedelta(minutes=there.minute, seconds=there.second, microseconds=there.microsecond)
            begin = there.in_timezone("UTC") - past
            end = begin + dt.timedelta(hours=1)
        first, after = (self._moment(one).in_timezone("UTC") for one in (begin, end))
        return first, after - _INSTANT

    def _moment(self, part: DateTime) -> DateTime:
        if self._unit == "day":
            return part.subtract(days=self._offset)
        return part.in_timezone("UTC") - dt.timedelta(hours=self._offset)
