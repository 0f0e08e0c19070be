"""The timetable of a job: cron expressions say when it runs, and date ranges mean the days that it computes."""

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
        self.description = f"{self.description}; computes {covered_words(unit, offset)}"

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> PartTimetable:
        """A timetable from what ``serialize`` returned."""
        crons, zone = data["expressions"], data["timezone"]
        return cls(*crons, timezone=zone, unit=data["unit"], offset=data["offset"])

    def serialize(self) -> dict[str, Any]:
        """Airflow's fields, and the part that runs compute."""
        return {**super().serialize(), "unit": self._unit, "offset": self._offset}

    @property
    def covered(self) -> Schedule:
        """The part that runs compute, as the schedule of a spec."""
        zone = str(self.serialize()["timezone"])
        return Schedule(timezone=zone, part=f"{self._unit}{self._offset:+d}")

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
        """The first moment of the runs that compute the part which begins at ``part``."""
        if self._unit == "day":
            return part.subtract(days=self._offset)
        return part.in_timezone("UTC") - dt.timedelta(hours=self._offset)
