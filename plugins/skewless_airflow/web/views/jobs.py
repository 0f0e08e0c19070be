"""All jobs on one page: what failed, what is late, what it cost against its usual, what runs now, what comes next."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from sqlalchemy.orm import Session

from skewless.errors import SkewlessError
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.runs import (
    AirflowRun,
    Timing,
    airflow_run,
    airflow_runs,
    airflow_tasks,
    groups_with_runs,
    open_run,
    tagged_dags,
    timings,
)
from skewless_airflow.web.security import readable
from skewless_airflow.web.views.history import PastRun, RunLine, latest_runs, read_lines
from skewless_airflow.web.views.run import read_run

#: How many runs of a job the page draws and compares.
_LATEST_RUNS = 12
#: After so many seconds, for all jobs together, only the last run of each further job is read.
_OF_ALL_JOBS_SECONDS = 1.0
#: Of fewer good runs there is no usual.
_FEWEST_USUAL = 3
#: A run is late that takes so many times as long as usual.
_TOO_LONG = 2.0
#: Airflow creates a run some seconds after its moment; a run is late that is not there after so long.
_GRACE = dt.timedelta(minutes=5)
#: How a run stands whose result is missing.
_BAD = frozenset({"failed", "unreadable"})


@dataclass(frozen=True)
class JobLine:
    """A job with its last run, if there was one.

    Attributes:
        group: the name of one aggregation of several in the DAG; empty for the only one.
        runs: how many run directories there are; None if the user may not read them.
        ended: the newest run that goes on no more.
        reason: why that one failed; "" if it did not, or if the user may not read its tasks.
        late: why the job is late; "" if it is not.
        usual_seconds, usual_work_seconds: the median of the good runs before the one that ended last; None where
            there are fewer than three.
    """

    dag_id: str
    group: str
    schedule: str
    runs: int | None
    last: RunLine | None
    ended: RunLine | None = None
    reason: str = ""
    late: str = ""
    next_run: dt.datetime | None = None
    usual_seconds: float | None = None
    usual_work_seconds: float | None = None

    @property
    def failed(self) -> bool:
        """Whether the run that ended last has failed, or left documents that nobody can read."""
        return self.ended is not None and self.ended.standing in _BAD

    @property
    def running(self) -> bool:
        """Whether a run goes on."""
        return self.last is not None and self.last.going_on


@dataclass(frozen=True)
class JobRow:
    """A job as the page shows it: its latest runs are oldest first, fewer where reading takes too long."""

    job: JobLine
    latest: tuple[RunLine, ...]


@dataclass(frozen=True)
class Morning:
    """The page: the jobs in the order in which they need somebody, failed ones first."""

    rows: tuple[JobRow, ...]

    @property
    def failed(self) -> tuple[JobLine, ...]:
        """The jobs whose last result is missing."""
        return tuple(row.job for row in self.rows if row.job.failed)

    @property
    def late(self) -> tuple[JobLine, ...]:
        """The jobs that are late."""
        return tuple(row.job for row in self.rows if row.job.late)

    @property
    def running(self) -> tuple[JobLine, ...]:
        """The jobs that run now."""
        return tuple(row.job for row in self.rows if row.job.running)

    @property
    def checked(self) -> tuple[bool, ...]:
        """Of each job whose last run was validated, whether all checks passed."""
        ended = [row.job.ended for row in self.rows]
        return tuple(one.verdict == "passed" for one in ended if one and one.verdict in {"passed", "failed"})

    @property
    def next(self) -> JobLine | None:
        """The job that its schedule starts next."""
        due = [row.job for row in self.rows if row.job.next_run]
        return min(due, key=attrgetter("next_run"), default=None)

    @property
    def verdict(self) -> str:
        """All of it in a few words, for the title of a browser's tab."""
        counts = [(len(self.failed), "failed"), (len(self.late), "late"), (len(self.running), "running")]
        return ", ".join(f"{count} {words}" for count, words in counts if count) or "all good"


def readable_jobs(user: Any, session: Session, now: dt.datetime) -> tuple[JobRow, ...]:
    """The jobs that the user may read, DAGs with our tag or with run directories, each with its latest runs.

    Of a DAG whose runs the user may not read, there are no runs, and not their number either. Why a run failed is for
    those who may read its tasks.
    """
    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    groups = groups_with_runs()
    ours = (tagged_dags(session) | groups.keys()) & allowed
    with_runs = readable(user, ours, DagAccessEntity.RUN, session)
    with_tasks = readable(user, with_runs, DagAccessEntity.TASK_INSTANCE, session)
    schedules, until = timings(session, sorted(ours)), time.monotonic() + _OF_ALL_JOBS_SECONDS

    def why(dag_id: str, run_id: str, group: str) -> str:
        if dag_id not in with_tasks:
            return ""
        airflow, tasks = airflow_run(session, dag_id, run_id), airflow_tasks(session, dag_id, run_id, group)
        try:
            faults = read_run(open_run(dag_id, run_id, group), airflow, tasks).faults
        except SkewlessError as err:
            return str(err)
        return str(faults[0]) if faults else ""

    rows = []
    for dag_id in sorted(ours):
        timing = schedules.get(dag_id) or Timing("", None)
        runs = airflow_runs(session, dag_id, most=30) if dag_id in with_runs else None
        for group in groups.get(dag_id) or [""]:
            if runs is None:
                rows.append(JobRow(JobLine(dag_id, group, timing.words, None, None), ()))
            else:
                rows.append(_row(dag_id, group, timing, runs, why, now, until - time.monotonic()))
    return tuple(rows)


def by_need(rows: Iterable[JobRow]) -> Morning:
    """The rows with the failed ones first, then those that are late, then those that run, each by their id."""
    return Morning(tuple(sorted(rows, key=lambda row: (not row.job.failed, not row.job.late, not row.job.running))))


def _with_unprepared(dag_id: str, group: str, airflow: Sequence[AirflowRun]) -> tuple[int, list[PastRun]]:
    """How many run directories there are, and the runs newest first, with those whose directory is not there yet.

    A run that failed, or waits, before it could make its directory matters in the morning. Of older runs without one
    retention has pruned it.
    """
    made = latest_runs(dag_id, airflow, group)
    newest = made[0].moment if made else 0.0
    known = {one.folder for one in made}
    unprepared = [PastRun(run.run_after.timestamp(), safe_run_id(run.run_id), run, dag_id, group) for run in airflow]
    fresh = [one for one in unprepared if one.moment >= newest and one.folder not in known]
    return len(made), sorted([*fresh, *made], key=lambda one: one.moment, reverse=True)


def _row(
    dag_id: str, group: str, timing: Timing, runs: Sequence[AirflowRun], why: Callable[[str, str, str], str],
    now: dt.datetime, left: float,
) -> JobRow:  # fmt: skip
    directories, past = _with_unprepared(dag_id, group, runs)
    history = read_lines(past, _LATEST_RUNS, left)
    lines = history.lines
    last, ended = next(iter(lines), None), next((line for line in lines if not line.going_on), None)
    good = [line for line in lines if line.standing == "success" and line is not ended]
    usual = _usual([line.seconds for line in good])
    job = JobLine(
        dag_id=dag_id,
        group=group,
        schedule=timing.words,
        runs=directories,
        last=last,
        ended=ended,
        reason=(ended.fault or why(dag_id, ended.run_id, group)) if ended and ended.standing in _BAD else "",
        late=lateness(last, ended, timing, usual, now),
        next_run=timing.next_run,
        usual_seconds=usual,
        usual_work_seconds=_usual([line.work_seconds for line in good]),
    )
    return JobRow(job, lines[::-1])


def _usual(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return median(known) if len(known) >= _FEWEST_USUAL else None


def lateness(last: RunLine | None, ended: RunLine | None, timing: Timing, usual: float | None, now: dt.datetime) -> str:
    """Why a job is late; "" if it is not.

    By its deadline, by a moment of its schedule at which no run has begun, or by a run that takes twice its usual.
    """
    going = last if last and last.going_on else None
    if going and going.deadline and going.deadline < now:
        return "runs past its deadline"
    if going and going.started and usual and (now - going.started).total_seconds() > _TOO_LONG * usual:
        return f"runs more than {_TOO_LONG:g} times as long as usual"
    if not going and timing.next_run and timing.next_run + _GRACE < now:
        return "was due, and has not begun"
    if not going and ended and ended.deadline and ended.ended and ended.deadline < ended.ended:
        return "ended after its deadline"
    return ""
