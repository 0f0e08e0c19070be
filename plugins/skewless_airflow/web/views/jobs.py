"""All jobs on one page, by their days: what failed or is missing, what is late or runs, what it cost, what is next."""

import datetime as dt
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from statistics import median
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from sqlalchemy.orm import Session

from skewless.documents.quality import STATES
from skewless.errors import SkewlessError
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.rendering import day
from skewless_airflow.web.runs import (
    AirflowRun,
    Timing,
    airflow_run,
    airflow_runs,
    airflow_tasks,
    coming_part,
    groups_with_runs,
    open_run,
    tagged_dags,
    timings,
)
from skewless_airflow.web.security import readable
from skewless_airflow.web.views.past_runs import PastRun, RunLine, latest_runs, read_lines, readers_of
from skewless_airflow.web.views.run import read_run

#: How many runs of a job are compared, and of how many more, and days, it is looked at how they stand.
_LATEST_RUNS, _MOST_RUNS, DAYS = 12, 400, 14
#: After so many seconds, for all jobs together, only the last run of each further job is read.
_OF_ALL_JOBS_SECONDS = 1.0
#: Of so many failed parts of a job it is told why; of fewer good runs there is no usual.
_MOST_REASONS, _FEWEST_USUAL = 3, 3
#: A run is late that takes so many times as long as usual.
_TOO_LONG = 2.0
#: Airflow creates a run some seconds after its moment; a run is late that is not there after so long.
_GRACE = dt.timedelta(minutes=5)
_BAD = ("failed", "unreadable", "missing")


@dataclass(frozen=True)
class PartState:
    """How a day of a job stands, or an hour of it: by its newest run that no later one has superseded."""

    part: str
    state: str
    """A word of ``STATES``; ``words`` the same for people."""
    words: str
    run_id: str = ""
    reason: str = ""
    """Why it failed, for those who may read its tasks; ``readers`` which result readers have, and of when."""
    readers: str = ""


@dataclass(frozen=True)
class JobLine:
    """A job with its last run, if there was one, and its newest that has ended."""

    dag_id: str
    group: str
    """The name of one aggregation of several in the DAG; empty for the only one."""
    schedule: str
    runs: int | None
    """How many run directories there are; None if the user may not read them."""
    last: RunLine | None
    ended: RunLine | None = None
    reason: str = ""
    """Why the newest day failed that did, for those who may read its tasks; ``late`` why the job is late."""
    late: str = ""
    next_run: dt.datetime | None = None
    usual_seconds: float | None = None
    """The median of the good runs before the last one, of three at least, as ``usual_work_seconds`` is."""
    usual_work_seconds: float | None = None
    days: tuple[PartState, ...] = ()
    """How the latest 14 days stand, oldest first; of a day with several hours what is worst."""
    bad: tuple[PartState, ...] = ()
    """The parts that failed or that nobody has computed, newest first; ``running`` whether a run goes on."""
    running: bool = False

    @property
    def failed(self) -> tuple[PartState, ...]:
        """The parts whose last run has failed, or left documents that nobody can read."""
        return tuple(one for one in self.bad if one.run_id)

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts that its schedule should have computed, and of which there is no run, oldest first."""
        return tuple(one.part for one in reversed(self.bad) if not one.run_id)


def counts_of(jobs: Sequence[JobLine]) -> dict[str, int]:
    """How many jobs are in each state that somebody may ask for."""
    return {word: sum(bool(getattr(job, word)) for job in jobs) for word in ("failed", "missing", "late", "running")}


def verdict_of(jobs: Sequence[JobLine]) -> str:
    """All of it in a few words, for the title of a browser's tab."""
    return ", ".join(f"{count} {word}" for word, count in counts_of(jobs).items() if count) or "all good"


def readable_jobs(user: Any, session: Session, now: dt.datetime) -> tuple[JobLine, ...]:
    """The jobs that the user may read, DAGs with our tag or with run directories, each with its latest runs.

    Of a DAG whose runs the user may not read, there are no runs, and not their number either. Why a run failed is for
    those who may read its tasks.
    """
    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    groups = groups_with_runs()
    ours = (tagged_dags(session) | groups.keys()) & allowed
    with_runs = readable(user, ours, DagAccessEntity.RUN, session)
    with_tasks = readable(user, with_runs, DagAccessEntity.TASK_INSTANCE, session)
    schedules, until = timings(session, sorted(ours), now, DAYS), time.monotonic() + _OF_ALL_JOBS_SECONDS

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
        runs = airflow_runs(session, dag_id, most=_MOST_RUNS) if dag_id in with_runs else None
        for group in groups.get(dag_id) or [""]:
            if runs is None:
                rows.append(JobLine(dag_id, group, timing.words, None, None))
            else:
                part_of = partial(coming_part, session, dag_id)
                rows.append(_row(dag_id, group, timing, runs, why, part_of, now, until - time.monotonic()))
    return tuple(rows)


def by_need(rows: Iterable[JobLine]) -> tuple[JobLine, ...]:
    """The jobs with failed or missing parts first, then those that are late, then those that run, each by their id."""
    return tuple(sorted(rows, key=lambda job: (not job.bad, not job.late, not job.running)))


def _with_unprepared(dag_id: str, group: str, airflow: Sequence[AirflowRun]) -> tuple[int, list[PastRun]]:
    """How many run directories there are, and the runs newest first, with those whose directory is not there yet.

    A run that failed, or waits, before it could make its directory matters in the morning. Of good runs without one
    retention has pruned it, or the aggregation is not in Airflow's DAG.
    """
    made = latest_runs(dag_id, airflow, group)
    newest = made[0].moment if made else 0.0
    known = {one.folder for one in made}
    fresh = [
        PastRun(run.run_after.timestamp(), safe_run_id(run.run_id), run, dag_id, group) for run in airflow
        if safe_run_id(run.run_id) not in known
        and (run.state != "success" or (not group and run.run_after.timestamp() >= newest))
    ]  # fmt: skip
    return len(made), sorted([*fresh, *made], key=lambda one: one.moment, reverse=True)


def _row(
    dag_id: str, group: str, timing: Timing, runs: Sequence[AirflowRun], why: Callable[[str, str, str], str],
    part_of: Callable[[str], str], now: dt.datetime, left: float,
) -> JobLine:  # fmt: skip
    directories, past = _with_unprepared(dag_id, group, runs)
    since = (now - dt.timedelta(days=DAYS)).timestamp()
    recent = [one for at, one in enumerate(past[:_MOST_RUNS]) if at < _LATEST_RUNS or one.moment >= since]
    lines = [  # a run that is not prepared has no document that says what it computes
        line if line.date or not line.state else replace(line, date=part_of(line.run_id))
        for line in read_lines(recent, len(recent), left, _LATEST_RUNS).lines
    ]
    last, ended = next(iter(lines), None), next((line for line in lines if not line.going_on), None)
    good = [line for line in lines[:_LATEST_RUNS] if line.published and line is not ended]
    usual = _usual([line.seconds for line in good])
    late = lateness(last, ended, timing, usual, now)
    every = since if len(recent) < len(past) else 0.0
    looked_at = recent[len(lines) - 1].moment if len(lines) < len(recent) else every
    parts = parts_of(lines, timing, late, now, looked_at)
    bad = [one for one in parts if one.state in _BAD][::-1]
    for at, one in enumerate(bad[:_MOST_REASONS]):
        bad[at] = replace(one, reason=why(dag_id, one.run_id, group) if one.run_id else "")
    return JobLine(
        dag_id, group, timing.words, directories, last, ended, next((one.reason for one in bad if one.reason), ""),
        late, timing.next_run, usual, _usual([line.work_seconds for line in good]),
        tuple(_day(now - dt.timedelta(days=back), parts, looked_at) for back in reversed(range(DAYS))), tuple(bad),
        any(line.going_on for line in lines),
    )  # fmt: skip


def parts_of(
    lines: Sequence[RunLine], timing: Timing, late: str, now: dt.datetime, looked_at: float
) -> list[PartState]:
    """How each part of a job stands, oldest first; all runs after ``looked_at``, in seconds since 1970, are given."""
    runs: dict[str, list[RunLine]] = {}
    for line in lines:
        runs.setdefault(line.date or line.run_id, []).append(line)
    found = {}
    for part, some in runs.items():
        # What ended says what readers have, also while it runs again.
        newest = next((one for one in some if one.standing != "superseded" and not one.going_on), some[0])
        begins = dt.datetime.fromisoformat(part[:10]).replace(tzinfo=dt.UTC) if day(part) != part else now
        readers = readers_of(part, some, looked_at < begins.timestamp()) if newest.standing in _BAD else ""
        state = "late" if newest is lines[0] and newest.going_on and late else newest.standing
        words = late if state == "late" else newest.standing_words
        found[part] = PartState(part, state, words, newest.run_id, readers=readers)
    first = min((one.date for one in lines if one.date), default="9")
    for moment, part in timing.parts:
        if part not in found and part > first and moment.timestamp() >= looked_at and moment + _GRACE < now:
            due = timing.next_run is not None and moment >= timing.next_run
            found[part] = PartState(part, "late", "was due") if due else PartState(part, "missing", "there is no run")
    return sorted(found.values(), key=attrgetter("part"))


def _day(moment: dt.datetime, parts: Iterable[PartState], looked_at: float) -> PartState:
    date = moment.date().isoformat()
    ours = [one for one in parts if one.part[:10] == date]
    worst = min(ours, key=lambda one: [*STATES].index(one.state), default=None)
    if worst is None:
        return PartState(date, "none yet", "no run" if moment.timestamp() >= looked_at else "not read yet")
    several = f"{sum(one.state == worst.state for one in ours)} of {len(ours)} hours: " if len(ours) > 1 else ""
    return replace(worst, part=date, words=f"{several}{worst.words}")


def _usual(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return median(known) if len(known) >= _FEWEST_USUAL else None


def lateness(last: RunLine | None, ended: RunLine | None, timing: Timing, usual: float | None, now: dt.datetime) -> str:
    """Why a job is late, by its deadline, its schedule, or a run that takes twice its usual time; "" if it is not."""
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
