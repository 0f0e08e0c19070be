"""Which run directory belongs to which Airflow run, and which day it computes."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from typing import Protocol
from zoneinfo import ZoneInfo

from skewless_airflow.places import data_root

_UNSAFE = re.compile(r"[^A-Za-z0-9_.=-]")
#: With the suffix, still below the 255 bytes that file systems allow a name.
_LONGEST, _SUFFIX = 200, 9


class AirflowRun(Protocol):
    """What is asked of a DAG run, be it the task's view of it or the metadata database's."""

    dag_id: str
    run_id: str

    @property
    def logical_date(self) -> dt.datetime | None:
        """The moment the run is about; none for a run that was triggered without one."""

    @property
    def run_after(self) -> dt.datetime:
        """The earliest moment the run may start."""


def safe_run_id(run_id: str) -> str:
    """A run id as a folder name that Hadoop's paths take and that Spark does not hide.

    Ids that differ stay different: one that had to be changed gets a hash of what it was.

    >>> safe_run_id("backfill_7")
    'backfill_7'
    >>> safe_run_id("manual__2026-11-20T02:00:00+00:00")
    'manual__2026-11-20T02-00-00-00-00-1c58a377'
    """
    safe = _UNSAFE.sub("-", run_id)
    if safe.startswith((".", "_")):  # Spark passes over files whose names begin like that
        safe = f"run-{safe}"
    # What this has made of an id is itself one that stays as it is: pages ask for folders by their names.
    if safe == run_id and safe and len(safe) <= _LONGEST + _SUFFIX:
        return safe
    return f"{safe[:_LONGEST]}-{hashlib.sha256(run_id.encode()).hexdigest()[: _SUFFIX - 1]}"


def run_location(dag_id: str, run_id: str, group: str = "") -> str:
    """The run directory of an Airflow run.

    Args:
        dag_id: of the run.
        run_id: of the run.
        group: the name of one aggregation of several in a DAG; empty for the only one.
    """
    return f"{runs_folder()}/{dag_id}{f'+{group}' if group else ''}/{safe_run_id(run_id)}"


def runs_folder() -> str:
    """Where all run directories are: a folder for each DAG, and a folder for each run in it."""
    return f"{data_root()}/runs"


def day_of(run: AirflowRun, timezone: str) -> dt.date:
    """The day a run publishes under, in the time zone of its schedule.

    Half past midnight in Zurich is the evening before in UTC: the day is the schedule's.
    """
    moment = run.logical_date or run.run_after
    return moment.astimezone(ZoneInfo(timezone)).date()
