"""All jobs on one page: what failed, what is late, what it cost against its usual, what runs now, what comes next."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.runs import AirflowRun, Timing
from skewless_airflow.web.views.history import PastRun, RunLine, latest_runs, read_lines

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
        usual_seconds, usual_spark_seconds: the median of the good runs before the one that ended last; None where
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
    usual_spark_seconds: float | None = None

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


#: Why a run failed, by the ids of its DAG, its run and its group.
Why = Callable[[str, str, str], str]


def read_jobs(
    groups: Mapping[str, Sequence[str]],
    timings: Mapping[str, Timing],
    runs: Mapping[str, Sequence[AirflowRun]],
    why: Why,
    now: dt.datetime,
) -> tuple[JobRow, ...]:
    """A row for each aggregation of each DAG, by its id. The runs of a DAG that is not in ``runs`` are not read."""
    found = []
    until = time.monotonic() + _OF_ALL_JOBS_SECONDS
    for dag_id, names in sorted(groups.items()):
        timing = timings.get(dag_id) or Timing("", None)
        for group in names:
            if dag_id in runs:
                left = until - time.monotonic()
                found.append(_row(dag_id, group, timing, _with_unprepared(dag_id, group, runs[dag_id]), why, now, left))
            else:
                found.append(JobRow(JobLine(dag_id, group, timing.words, None, None), ()))
    return tuple(found)


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
    unprepared = [PastRun(run.run_after.timestamp(), safe_run_id(run.run_id), run) for run in airflow]
    fresh = [one for one in unprepared if one.moment >= newest and one.folder not in known]
    return len(made), sorted([*fresh, *made], key=lambda one: one.moment, reverse=True)


def _row(
    dag_id: str, group: str, timing: Timing, runs: tuple[int, list[PastRun]], why: Why, now: dt.datetime, left: float
) -> JobRow:
    directories, past = runs
    history = read_lines(dag_id, group, past, _LATEST_RUNS, left)
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
        usual_spark_seconds=_usual([line.spark_seconds or None for line in good]),
    )
    return JobRow(job, history.oldest_first)


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
