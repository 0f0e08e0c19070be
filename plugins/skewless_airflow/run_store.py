"""Where catalog, data and Spark entries are; which directory an Airflow run has, and which part it computes."""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from skewless.errors import SpecError
from skewless.run.folder import RUN_GROUP, runs_below
from skewless.spec.part import Part, part_named
from skewless.spec.schedule import Schedule
from skewless_airflow.partitions import parts_of_key

if TYPE_CHECKING:
    from skewless.run.directory import RunDirectory


_UNSAFE = re.compile(r"[^A-Za-z0-9_.=-]")
#: With the suffix, still below the 255 bytes that file systems allow a name.
_LONGEST, _SUFFIX = 200, 9


@cache
def spark_entry(name: str) -> Path:
    """A file of ``skewless_spark.entries``, like ``pipeline.py``, for spark-submit.

    It is found in ``skewless_spark`` as that is installed here. Nothing of that package is imported.
    """
    package = importlib.util.find_spec("skewless_spark")
    if package is None or not package.submodule_search_locations:
        raise SpecError("skewless_spark", "a package that this Python can import", "none", "install skewless here, too")
    return Path(package.submodule_search_locations[0]) / "entries" / name


def catalog_folder() -> Path:
    """The folder of job specs: ``$SKEWLESS_CATALOG``, else ``jobs/catalog`` below the current folder."""
    return _folder("SKEWLESS_CATALOG", "jobs/catalog", "a folder of job specs")


def data_root() -> str:
    """Where relative paths of specs start and runs are kept: ``$SKEWLESS_ROOT``, a path or a URL.

    Without the variable it is ``data`` below the current folder.
    """
    named = os.environ.get("SKEWLESS_ROOT", "").rstrip("/")
    return named or str(_folder("SKEWLESS_ROOT", "data", "a folder or a URL for inputs, runs and results"))


def _folder(variable: str, default: str, what: str) -> Path:
    named = os.environ.get(variable)
    folder = Path(named or default).absolute()
    if folder.is_dir():
        return folder
    came = f"no folder {folder}" if named else f"none, and there is no folder {folder}"
    raise SpecError(f"variable {variable}", what, came, f"set {variable}")


class RunIds(Protocol):
    """A run by its ids, as a DAG run or a task instance has them."""

    dag_id: str
    run_id: str


def safe_run_id(run_id: str) -> str:
    """A run id as a folder name that Hadoop accepts and Spark does not hide.

    Different ids give different names: an id that had to be changed gets a hash of the original.

    >>> safe_run_id("backfill_7")
    'backfill_7'
    >>> safe_run_id("manual__2026-11-20T02:00:00+00:00")
    'manual__2026-11-20T02-00-00-00-00-1c58a377'
    """
    safe = _UNSAFE.sub("-", run_id)
    if safe.startswith((".", "_")):  # Spark passes over files whose names begin like that
        safe = f"run-{safe}"
    # A name that this function made stays as it is: pages ask for folders by their names.
    if safe == run_id and safe and len(safe) <= _LONGEST + _SUFFIX:
        return safe
    return f"{safe[:_LONGEST]}-{hashlib.sha256(run_id.encode()).hexdigest()[: _SUFFIX - 1]}"


def run_location(dag_id: str, run_id: str, group: str = "") -> str:
    """The run directory of an Airflow run; ``group`` names one aggregation of several in a DAG."""
    return f"{runs_folder()}/{dag_id}{f'+{group}' if group else ''}/{safe_run_id(run_id)}"


def run_directory(run: RunIds, group: str = "") -> RunDirectory:
    """The run directory of an Airflow run, whose files belong to the group of users in ``$SKEWLESS_RUN_GROUP``."""
    from skewless.run.directory import RunDirectory

    return RunDirectory(run_location(run.dag_id, run.run_id, group), os.environ.get(RUN_GROUP, ""))


def runs_folder() -> str:
    """Where all run directories are: a folder for each DAG, and a folder for each run in it."""
    return runs_below(data_root())


def part_of_run(run: Any, schedule: Schedule, where: str) -> Part:
    """The part that a run computes if its conf names none.

    A scheduled run, and one of a backfill, computes what the schedule says for the moment of its cron expression,
    however late it starts. A run that was started by events of other jobs computes the part that its partition key
    names, or else these events, so that it follows them also when they compute an old day. Any other run computes the
    part of the partition key that it was triggered with, or what the schedule says for its logical date, or without
    one for the moment when it was triggered. The run is Airflow's DAG run, as tasks or as its database have it.

    Raises:
        SpecError: the events name several parts; or the run was triggered with a key that names no single one.
    """
    automatic = run.run_type in {"scheduled", "backfill"}
    # The key of a scheduled run is that of its own timetable, which may mean the moment of the run.
    keyed = None if automatic or not run.partition_key else _of_key(run.partition_key, schedule)
    if isinstance(keyed, Part):
        return keyed
    named = {_named(event, schedule) for event in run.consumed_asset_events or ()} - {None}
    if len(named) > 1:
        days = ", ".join(str(part) for part in sorted(part for part in named if part))
        hint = "trigger the job for each, with its date"
        if schedule.assets:
            hint += "; with schedule.partitioned: true it runs once for each that a job of Skewless publishes"
        raise SpecError(where, "events of one day, since a run computes one", days, hint)
    if named and (part := named.pop()):
        return part
    if keyed is not None and run.run_type != "asset_triggered":
        raise keyed
    return schedule.part_of(run.run_after if automatic else run.logical_date or run.run_after)


def _of_key(key: str, schedule: Schedule) -> Part | SpecError:
    try:
        parts = parts_of_key(key, schedule.timezone, schedule.unit)
    except SpecError as err:
        return err
    one = "an hour like 2026-01-31T05, since a run computes one"
    return parts[0] if len(parts) == 1 else SpecError("partition key", one, repr(key)[:80])


def _named(event: Any, schedule: Schedule) -> Part | None:
    """The part that an event names (``run_facts``); None if it names none that this job can compute."""
    date, hour = event.extra.get("date"), event.extra.get("hour")
    if not isinstance(date, str) or (schedule.unit == "hour" and not isinstance(hour, str)):
        return None
    hour_here = str(hour) if schedule.unit == "hour" else None
    try:
        return part_named(date, hour_here, schedule.timezone, schedule.unit, "event's ")
    except SpecError:
        return None  # an event of another publisher, whose `date` means something else


log = structlog.get_logger(__name__)


def prune_runs(finished_days: int, unfinished_days: int, *, dry_run: bool) -> dict[str, int]:
    """Log what is done with each run directory of so many days and why, and do it unless this is a dry run.

    Returns:
        How many runs were kept, thinned and removed, and how many bytes were deleted.
    """
    from skewless.publication.retention import Limits
    from skewless_lake.pruning import prune_each

    limits = Limits(finished=dt.timedelta(days=finished_days), unfinished=dt.timedelta(days=unfinished_days))
    found = []
    for fate in prune_each(runs_folder(), dt.datetime.now(tz=dt.UTC), limits, dry_run=dry_run):
        log.info("%s%s", "dry run: " if dry_run else "", fate.sentence)
        found.append(fate)
    counts = {action: sum(one.action == action for one in found) for action in ("keep", "thin", "remove")}
    return {**counts, "bytes": sum(one.size_bytes for one in found)}
