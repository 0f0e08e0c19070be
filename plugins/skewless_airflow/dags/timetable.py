"""The timetable of a job: cron expressions for when it runs, and ranges that mean what it computes."""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.trigger import MultipleCronTriggerTimetable
from pendulum import DateTime, datetime, instance
from pendulum.tz.timezone import FixedTimezone, Timezone

from skewless.spec.part import PartUnit, covered_words
from skewless.spec.schedule import Schedule

_INSTANT = dt.timedelta(microseconds=1)


class PartTimetable(MultipleCronTriggerTimetable):
    """Runs at the moments of cron expressions, each of which computes a part of the input: a day, or an hour.

    The logical date of a run is its moment, as with Airflow's own cron timetables: two runs of one day stay
    two. What differs is a range, of a backfill or between the start and the end of the DAG: it names the parts
    that are computed. With the day before, the backfill of 1 to 3 March is that of the runs of 2 to 4 March.

    Airflow turns a day without a time into midnight in UTC. So a bound at that moment names the day, in the
    schedule's time zone, with all its hours. Any other bound is a moment, and names the part that it is in.

    Args:
        crons: the expressions.
        timezone: of the expressions, and of days and hours.
        unit: what a run computes.
        offset: the part that it computes, counted from that of its moment.
    """

    def __init__(
        self, *crons: str, timezone: str | Timezone | FixedTimezone, unit: PartUnit = "day", offset: int = -1
    ) -> None:
        super().__init__(*crons, timezone=timezone)
        self._unit, self._offset = unit, offset
        # Where people look: in the list of DAGs, and on the page of one.
        self.description = f"{self.description}; computes {covered_words(unit, offset)}"

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> PartTimetable:
        """As it was serialized."""
        crons, zone = data["expressions"], data["timezone"]
        return cls(*crons, timezone=zone, unit=data["unit"], offset=data["offset"])

    def serialize(self) -> dict[str, Any]:
        """With what it computes."""
        return {**super().serialize(), "unit": self._unit, "offset": self._offset}

    @property
    def covered(self) -> Schedule:
        """What runs compute, as a spec would say it."""
        zone = str(self.serialize()["timezone"])
        return Schedule.model_validate({"timezone": zone, self._unit: self._offset})

    def validate(self) -> None:
        """Refuse expressions that are none."""
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
        """The first and the last moment of runs that compute the part, or all hours of the day, which a bound names."""
        zone = self._timetables[0]._timezone  # noqa: SLF001  # all have the same
        given = instance(bound).in_timezone("UTC")
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
        """The first moment of runs that compute the part which begins at a moment."""
        if self._unit == "day":
            return part.subtract(days=self._offset)
        return part.in_timezone("UTC") - dt.timedelta(hours=self._offset)


def registered() -> list[Any]:
    """As ``AirflowPlugin.timetables`` takes it: Airflow stores a timetable by name, and reads only those it knows."""
    return [PartTimetable]
