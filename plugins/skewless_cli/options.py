"""Arguments and options that several commands take."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part, part_at, part_named
from skewless.spec.spec import JobSpec

Spec = Annotated[Path, typer.Argument(help="The job spec, a YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH.TO.FIELD=VALUE", help="Override a field of the spec; may be repeated."),
]
Root = Annotated[
    str,
    typer.Option("--root", envvar="SKEWLESS_ROOT", help="Where relative paths of the spec start: a folder or a URL."),
]
Date = Annotated[
    str | None,
    typer.Option(
        help="The day to compute, YYYY-MM-DD. The result is published under it.",
        show_default="the day that the spec's schedule would compute now, or that of the resumed run",
    ),
]
Hour = Annotated[
    str | None, typer.Option(help="The hour of --date, for an hourly job: 00 to 23, or 02b.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def chosen_part(spec: JobSpec, date: str | None, hour: str | None, resumed: RunDirectory | None = None) -> Part:
    """The part of the input to compute.

    It is the one that the options name; else that of the resumed run; else the one that the schedule would compute now.

    Raises:
        SpecError: the options name no part of this job.
    """
    schedule = spec.schedule
    if date is not None:
        return part_named(date, hour, schedule.timezone, schedule.unit, "--")
    if hour is not None:
        raise SpecError("--hour", "a --date beside it", repr(hour)[:80])
    if resumed is not None and resumed.exists("job.json"):
        return resumed.job().part
    return schedule.part_of(dt.datetime.now(tz=dt.UTC))


def chosen_days(spec: JobSpec, first: str, last: str | None) -> tuple[dt.date, dt.date]:
    """The first and the last day that the options name; the last is today where none is named.

    Raises:
        SpecError: one is no day, or they are in the wrong order.
    """
    zone = spec.schedule.timezone
    begin = part_named(first, None, zone, "day", "--from, a ").date
    today = part_at(dt.datetime.now(tz=dt.UTC), zone, "day").date
    end = today if last is None else part_named(last, None, zone, "day", "--to, a ").date
    if end < begin:
        raise SpecError("--to", f"a day from {begin} on", str(end))
    return begin, end
