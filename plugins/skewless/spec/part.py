"""The part of the input that a run computes: a day, or an hour of a day, in the time zone of the schedule."""

from __future__ import annotations

import datetime as dt
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from skewless.errors import SpecError

PartUnit = Literal["day", "hour"]

#: Behind the name of an hour that the clock shows a second time, in the night that summer time ends.
SECOND = "b"
#: No time zone moves its clock by less.
_CLOCK_STEP = dt.timedelta(minutes=15)


class Part(NamedTuple):
    """One value of the partitioning; later parts are greater.

    Attributes:
        date: the day.
        hour: of a job of hours, as the clock shows it: ``00`` to ``23``. In the night that summer time ends, the
            hour that comes a second time is ``02b`` (or whatever hour it is). None for a job of days.
    """

    date: dt.date
    hour: str | None = None

    def __str__(self) -> str:
        """As people read it.

        >>> str(Part(dt.date(2026, 10, 25), "02b"))
        '2026-10-25, hour 02b'
        """
        return self.date.isoformat() + (f", hour {self.hour}" if self.hour else "")

    @property
    def folder(self) -> str:
        """Where its result is published, below the output path.

        >>> Part(dt.date(2026, 10, 25), "02b").folder
        'date=2026-10-25/hour=02b'
        """
        return f"date={self.date.isoformat()}" + (f"/hour={self.hour}" if self.hour else "")


def part_at(moment: dt.datetime, timezone: str, unit: PartUnit, offset: int = 0) -> Part:
    """The part that lies ``offset`` parts from the one of a moment.

    Days are counted on the calendar, whatever their length; hours on the line of time, so that none is
    left out or taken twice in the nights that the clock is changed.

    Args:
        moment: with its time zone.
        timezone: IANA name of the zone whose days or hours they are.
        unit: of the part.
        offset: -1 for the part before, 0 for the one that the moment is in.
    """
    zone = ZoneInfo(timezone)
    if unit == "day":
        return Part(moment.astimezone(zone).date() + dt.timedelta(days=offset))
    there = (moment.astimezone(dt.UTC) + dt.timedelta(hours=offset)).astimezone(zone)
    return Part(there.date(), _clock_hour(there))


def part_named(date: str, hour: str | None, timezone: str, unit: PartUnit, where: str) -> Part:
    """The part that somebody has named.

    Args:
        date: as ``2026-01-31``.
        hour: as ``Part.hour`` has it; none for a job of days.
        timezone: see ``part_at``.
        unit: of the job.
        where: what stands before the name of a field in messages, such as ``--``.

    Raises:
        SpecError: it is no such part, or that day has no such hour.
    """
    try:
        day = dt.date.fromisoformat(date)
    except ValueError:
        raise SpecError(f"{where}date", "a day like 2026-01-31", repr(date)[:80]) from None
    if unit == "day":
        if hour:
            raise SpecError(f"{where}hour", "none for a job of days", repr(hour)[:80], "or set schedule.hour")
        return Part(day)
    if not hour:
        raise SpecError(f"{where}hour", "one like 02 for a job of hours, beside its date", "none")
    known = hours_of(day, timezone)
    if hour not in known:
        required = f"an hour of {day} in {timezone}, from {known[0]} to {known[-1]}"
        raise SpecError(f"{where}hour", required, repr(hour)[:80], f"one that comes twice is 02 and then 02{SECOND}")
    return Part(day, hour)


def covered_words(unit: PartUnit, offset: int) -> str:
    """Which part a run computes, in words.

    >>> covered_words("day", -1), covered_words("hour", 0), covered_words("day", -2)
    ('the day before', 'the hour of the run', 'the day 2 days before')
    """
    if offset in {0, -1}:
        return f"the {unit} before" if offset else f"the {unit} of the run"
    count = f"{abs(offset)} {unit}{'' if abs(offset) == 1 else 's'}"
    return f"the {unit} {count} {'before' if offset < 0 else 'after'}"


def hours_of(day: dt.date, timezone: str) -> tuple[str, ...]:
    """The names of the hours of a day, in order.

    >>> hours_of(dt.date(2026, 10, 25), "Europe/Zurich")[:4]
    ('00', '01', '02', '02b')
    """
    zone = ZoneInfo(timezone)
    # From before midnight: there are zones where it is left out, or comes twice.
    begin = dt.datetime.combine(day, dt.time(), zone).astimezone(dt.UTC) - dt.timedelta(hours=2)
    steps = (begin + step * _CLOCK_STEP for step in range(4 * 29))
    there = (moment.astimezone(zone) for moment in steps)
    return tuple(dict.fromkeys(_clock_hour(moment) for moment in there if moment.date() == day))


def _clock_hour(there: dt.datetime) -> str:
    return f"{there.hour:02d}{SECOND if there.fold else ''}"
