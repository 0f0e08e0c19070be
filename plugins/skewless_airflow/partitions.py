"""Partition keys of asset events: which parts they name, and the asset whose events have them."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any
from zoneinfo import ZoneInfo

from airflow.partition_mappers.base import PartitionMapper
from airflow.sdk import Asset

from skewless.errors import SpecError
from skewless.spec.part import SECOND, Part, PartUnit, hours_of, part_named
from skewless.spec.schedule import FINAL_ASSET, PARTS_ASSET

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
    def deserialize(cls, data: dict[str, Any]) -> PartMapper:
        """A mapper from what ``serialize`` returned."""
        return cls(unit=data["unit"], timezone=data["timezone"])
