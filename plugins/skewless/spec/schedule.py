"""When a job runs, and which part of the input a run computes.

Nothing of it shapes what a run computes, so it is no part of a run's documents: it may change while a run goes on.
"""

import datetime as dt
import re
from difflib import get_close_matches
from typing import Annotated, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from croniter import CroniterBadCronError, CroniterBadDateError, croniter
from pydantic import Field, WithJsonSchema, field_validator, model_validator

from skewless.document import Section, shortened, unmet
from skewless.spec.part import Part, PartUnit, part_at

#: A name that Airflow accepts and croniter does not.
_NAMES = {"@quarterly": "0 0 1 */3 *"}
#: Before the name of a job: the name of the asset that its published results are.
RESULT_ASSET = "skewless:"
#: Behind it: the name of the asset whose events have the parts as their partition keys.
PARTS_ASSET = "/parts"
#: The same, of the days that are final.
FINAL_ASSET = "/final"
#: Any day serves: whether there is a next moment does not depend on it.
_BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
#: What a run computes: a day or an hour, counted from the day or the hour of its moment.
_PART = "^(day|hour)([+-][0-9]{1,4})?$"


class Schedule(Section):
    """When Airflow starts the job: by cron expressions, or after assets; with neither, only by hand.

    And which part of the input a run computes: a day, or an hour.
    """

    cron: str | tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1, examples=["0 2 * * *", ["0 2 * * 1-5", "0 6 * * 0"]]
    )
    """Cron expression, five fields, or a list of them."""
    asset: str | tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1, examples=["skewless:clicks_by_page"]
    )
    """Instead of cron: the name of an asset, such as skewless:NAME, after each event of which the job runs; of several,
    after an event of each."""
    partitioned: bool = Field(default=False, examples=[True])
    """With asset: events name a day or an hour by their partition key, and the job runs once for each that all assets
    have. What it publishes then starts only what waits for its skewless:NAME/parts, such as jobs that are partitioned,
    too."""
    timezone: str = Field(default="UTC", examples=["Europe/Zurich"])
    """IANA time zone the cron expression is read in; days and hours are those of this zone."""
    part: Annotated[str, WithJsonSchema({"type": "string", "pattern": _PART})] | None = Field(
        default=None, examples=["day-1", "hour-1"]
    )
    """What a run computes: day, the day of the run; day-1, the day before it; hour, hour-1 and so on, an hour, which
    {hour} in paths is then. By default day-1 where the DAG has a schedule, else day."""

    @field_validator("cron")
    @classmethod
    def _known_cron(cls, cron: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for expression in _several(cron):
            fault = cron_fault(expression)
            if fault:
                raise unmet("a cron expression that Airflow takes", f"{shortened(expression)}: {fault}"[:200])
        return cron

    @field_validator("part")
    @classmethod
    def _known_part(cls, part: str | None) -> str | None:
        if part is not None and not re.fullmatch(_PART, part):
            raise unmet("day or hour, alone or with an offset of at most four digits, like day-1", shortened(part))
        return part

    @field_validator("asset")
    @classmethod
    def _waits_for_results(cls, asset: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for name in _several(asset):
            if name.startswith(RESULT_ASSET) and name.endswith(PARTS_ASSET):
                result = shortened(name.removesuffix(PARTS_ASSET))
                raise unmet(f"asset: {result} with partitioned: true, to run for each of its parts", shortened(name))
        return asset

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # an OSError is a folder of zones, or too long a name
            cities = (one for one in available_timezones() if "/" in one)
            like = get_close_matches(zone, cities, n=1) or ["Europe/Zurich"]
            raise ValueError(f"should be an IANA time zone like {like[0]!r}") from None
        return zone

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.cron is not None and self.asset is not None:
            raise unmet("either cron or asset", "both")
        if self.partitioned and self.asset is None:
            raise unmet("partitioned beside asset, whose events have the partition keys", "partitioned alone")
        of_final = [name for name in self.assets if name.startswith(RESULT_ASSET) and name.endswith(FINAL_ASSET)]
        if of_final and not self.partitioned:
            raise unmet("partitioned: true, as events of final days have partition keys", shortened(of_final[0]))
        return self

    @property
    def unit(self) -> PartUnit:
        """What a run computes: a day, or an hour."""
        return "hour" if self.part is not None and self.part.startswith("hour") else "day"

    @property
    def offset(self) -> int:
        """The part that a run computes, counted from the part of its moment: -1 for the one before."""
        if self.part is None:
            return -1 if self.crons or self.assets else 0
        return int(self.part.removeprefix(self.unit) or 0)

    def of_dag(self, *, scheduled: bool) -> "Schedule":
        """This schedule in a DAG of somebody's own, whose cron expression or asset it does not know."""
        return self.model_copy(update={"part": "day-1"}) if self.part is None and scheduled else self

    def part_of(self, moment: dt.datetime) -> Part:
        """The part that a run of a moment computes."""
        return part_at(moment, self.timezone, self.unit, self.offset)

    def has_run_for(self, part: Part) -> bool:
        """Whether a moment of the cron expressions is that of a run which computes a part; without any, it may be."""
        if not self.crons:
            return True
        # By the clock on the wall: it does not matter here which of two equal hours it shows.
        step = dt.timedelta(days=1) if part.hour is None else dt.timedelta(hours=1)
        begin = dt.datetime.combine(part.date, dt.time(int(part.hour[:2]) if part.hour else 0)) - self.offset * step
        before = begin - dt.timedelta(seconds=1)
        return any(croniter(_NAMES.get(one, one), before).get_next(dt.datetime) < begin + step for one in self.crons)

    @property
    def crons(self) -> tuple[str, ...]:
        """All cron expressions."""
        return _several(self.cron)

    @property
    def assets(self) -> tuple[str, ...]:
        """The names of all assets that are waited for."""
        return _several(self.asset)


def _several(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else given


def cron_fault(expression: str) -> str:
    """What is wrong with a cron expression; "" if Airflow takes it and such a moment ever comes.

    >>> cron_fault("0 0 30 2 *"), cron_fault("0 0 2 * * ?")
    ('there is no such moment', 'it should have five fields: minute, hour, day, month, day of week')
    """
    if not expression.startswith("@") and len(expression.split()) != 5:
        return "it should have five fields: minute, hour, day, month, day of week"
    try:
        moments = croniter(_NAMES.get(expression, expression), _BEGIN)
        moments.get_next()
        moments.get_prev()  # Airflow looks from one to the other
    except CroniterBadDateError:
        return "there is no such moment"
    except CroniterBadCronError as err:
        return str(err).rstrip(".") if expression[0] != "@" else "there is no such name"
    return ""


class AirflowSettings(Section):
    """What Airflow knows of the DAG of the job and of its tasks; `default_args` of a DAG in Python go before it."""

    owner: str | None = Field(default=None, min_length=1, max_length=100, examples=["team-data"])
    """Owner of the tasks; by default skewless, in a DAG of your own the DAG's."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(
        default=(), max_length=50, examples=[["clicks", "nightly"]]
    )
    """Tags of the DAG, beside skewless."""
    retries: int = Field(default=2, ge=0, le=100, examples=[5])
    """How often a failed task is tried again."""
