"""The trigger form of a job: Airflow params that are made from the spec's own model.

Its defaults are those of the spec, so a scheduled run, and an untouched form, run what was reviewed. A form chooses
options of ``skewless.spec.reading`` and a date; nothing in it can name code, SQL or a path.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from airflow.sdk import Param
from pydantic import JsonValue

from skewless.errors import SkewlessError, SpecError, nearest
from skewless.spec.part import SECOND, Part, covered_words, part_named
from skewless.spec.reading import load_spec, option_schema, option_values
from skewless.spec.schedule import Schedule
from skewless.spec.spec import JobSpec

DATE, HOUR = "date", "hour"

_SECTIONS = {"Run": (DATE, HOUR, "accept"), "Routing": ("policy", "reducers", "budget"), "Window": ("late", "missing")}
#: No code in backticks: Airflow's form draws padding around it that covers the lines above and below.
_MORE = {
    "policy": "docs/policies describes each; another one than the spec's has its defaults. How a run would have gone "
    "under another one is shown on its page *What if* and by the command *skewless replay*."
}
_TITLES = {
    "accept": "Keys that are published although they fail",
    "budget": "Budget (times the fair share)",
    "late": "Late files",
    "missing": "Parts without files",
}


class Choice(NamedTuple):
    """What a run's conf chooses instead of the spec's values: option values by their short names, and a part.

    Without a part the run computes what follows from it.
    """

    part: Part | None
    options: dict[str, JsonValue]


def form_params(spec: JobSpec | str | Path) -> dict[str, Param]:
    """The params of a DAG that runs a spec, by name, in the order of the form; of a spec, or of its file."""
    spec, _ = read_spec(spec)
    defaults = option_values(spec)
    fields: dict[str, Param] = {}
    for section, names in _SECTIONS.items():
        for name in names:
            if name == DATE:
                fields[name] = _date(section, spec.schedule)
            elif name in defaults:
                fields[name] = _field(name, section, defaults[name])
            elif name == HOUR and spec.schedule.unit == "hour":
                fields[name] = _hour(section, spec.schedule)
    return fields


def chosen(given: Mapping[str, JsonValue], known: Iterable[str], spec: JobSpec, where: str) -> Choice:
    """The values in a run's conf that differ from the spec.

    Args:
        given: the conf of the run, from the form, a command or a call of the API.
        known: the names of all params that the DAG declares, also those that are not ours.
        where: who gave the conf, for messages.

    Raises:
        SpecError: a name that the DAG does not declare, or an invalid date or hour.
    """
    declared = set(known)
    unknown = next((name for name in given if name not in declared), None)
    if unknown is not None:
        raise SpecError(where, "fields of the trigger form", repr(unknown), nearest(unknown, declared))
    defaults = option_values(spec)
    options = {
        name: value
        for name, value in given.items()
        # An emptied field counts as the default where that is None.
        if name in defaults and value != defaults[name] and (value != "" or defaults[name] is not None)
    }
    date, hour = (None if given.get(name) in {None, ""} else str(given[name]) for name in (DATE, HOUR))
    if date is None and hour is None:
        return Choice(None, options)
    zone, unit = spec.schedule.timezone, spec.schedule.unit
    return Choice(part_named(date or "", hour, zone, unit, f"{where}, field "), options)


def _date(section: str, schedule: Schedule) -> Param:
    covered, nightly = (
        f"**{covered_words(one.unit, one.offset)}**" for one in (schedule, schedule.of_dag(scheduled=True))
    )
    if covered != nightly:
        covered = f"{nightly} where its DAG has a schedule, else {covered}"
    # It names a rule and no day: the form is part of the DAG, and a text that changes every day would make a new
    # version of the DAG each time.
    return Param(
        None,
        title="Day to compute (instead of the schedule's)",
        description_md="The day whose input is computed and under which the result is published. Left empty, a run "
        f"computes {covered}, counted from its logical date, or without one "
        f"from the moment it is triggered, in {schedule.timezone}. A run that was started by another job's result "
        "computes the day of that result.",
        section=section,
        type=["string", "null"],
        format="date",
    )


def _hour(section: str, schedule: Schedule) -> Param:
    return Param(
        None,
        title="Hour",
        description_md=f"The hour of that day, as clocks in {schedule.timezone} show it: *00* to *23*; in the night "
        f"that summer time ends, *02* and then *02{SECOND}*. Give it with a date; leave it empty without one.",
        section=section,
        type=["string", "null"],
        pattern="^([01][0-9]|2[0-3])b?$",
    )


def _field(name: str, section: str, default: JsonValue) -> Param:
    schema = option_schema(name)
    words = "\n\n".join(filter(None, (schema.pop("description"), _MORE.get(name))))
    title = _TITLES.get(name) or name.replace("_", " ").capitalize()
    for made in ("title", "default", "examples"):
        schema.pop(made, None)
    extra: dict[str, Any] = {"title": title, "description_md": words, "section": section}
    return Param(default, **extra, **schema)


def beside_caller(path: str | Path) -> Path:
    """A path as a DAG file means it: a relative one starts in the folder of the file that calls Skewless.

    Airflow's processes start anywhere, so their own folder says nothing. Where no file calls, as in a shell, a relative
    path starts in the folder of the process.
    """
    package = __name__.partition(".")[0]
    callers = (one.f_globals for one in _frames() if one.f_globals.get("__name__", "").partition(".")[0] != package)
    file = next(callers, {}).get("__file__")
    return (Path(file).parent / path if file else Path(path)).resolve()


def read_spec(given: JobSpec | str | Path) -> tuple[JobSpec, Path | None]:
    """A spec, and the path of its file; None if the spec itself was given."""
    if isinstance(given, JobSpec):
        return given, None
    path = beside_caller(given)
    return load_spec(path), path


def list_import_errors(faults: Mapping[Path, SkewlessError]) -> None:
    """List each broken file as an import error under its own path, beside the sound DAGs of the file that is read.

    Airflow keeps import errors by path, and an error of a DAG file makes all DAGs of that file stale. It has no call to
    report one for another path, so the errors are added to those of the bag that reads the file; the DAG processor
    stores whatever is in it.

    Raises:
        SkewlessError: no bag reads the file, as when Python runs it: then the errors would be lost.
    """
    module = sys.modules.get("airflow.dag_processing.dagbag")
    held = (one.f_locals.get("self") for one in _frames())
    bag: Any = next((one for one in held if isinstance(one, module.DagBag)), None) if module else None
    if faults and bag is None:
        first, *more = faults.values()
        raise first if not more else SpecError.saying("job catalog", " ".join(str(one) for one in (first, *more)))
    for path, fault in faults.items():
        bag.import_errors[os.path.relpath(path, bag.bundle_path) if bag.bundle_path else str(path)] = str(fault)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # as `inspect` does, which reads source lines, too
    while frame is not None:
        yield frame
        frame = frame.f_back
