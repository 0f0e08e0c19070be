"""All runs of a DAG side by side, so that a drift of the skew is visible; and all jobs, each with its latest runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import publication_of
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.run_folders import open_run, run_folders
from skewless_airflow.web.views.quality import QualityView, read_quality
from skewless_airflow.web.views.run import overall
from skewless_airflow.web.views.stage import read_job, read_stages

#: Runs that a page shows.
MOST_RUNS = 40
#: How many runs of a job the page of all jobs draws.
LATEST_RUNS = 12
#: After so many seconds the page shows the runs read so far. They stay in a cache, so a reload gets further.
READING_SECONDS = 2.0
#: After so many seconds, for all jobs together, only the last run of each further job is read.
_OF_ALL_JOBS_SECONDS = 1.0


@dataclass(frozen=True)
class RunLine:
    """One run directory as a line of a table.

    Attributes:
        run_id: the id in addresses: Airflow's, or the folder's name if Airflow no longer knows the run.
        date: the day it is about; "" before it is prepared.
        state: of the run in Airflow; "" where Airflow knows nothing.
        rows: reduced so far.
        keys: rows of the result; None before it is validated.
        max_over_mean: the largest task over the mean, of the stage with the most rows.
        gap: how far the whole run was above the lower bound, as a fraction.
        seconds: of the run in Airflow, or else of its stages' Spark work.
        forwarded: backlog rows whose owner changed.
        verdict: ``passed``, ``failed`` or ``none yet``.
        fault: why the directory cannot be read; "" if it can.
    """

    run_id: str
    date: str
    state: str
    policy: str
    engine: str
    rows: int
    keys: int | None
    stages: int
    max_over_mean: float | None
    gap: float | None
    forwarded: int
    seconds: float | None
    spark_seconds: float
    verdict: str
    published: bool
    fault: str = ""


@dataclass(frozen=True)
class HistoryView:
    """The latest runs, newest first.

    Attributes:
        total: how many run directories there are in all.
        wanted: how many the page would show if there were time to read them.
    """

    lines: tuple[RunLine, ...]
    total: int
    wanted: int

    @property
    def oldest_first(self) -> tuple[RunLine, ...]:
        """The lines for charts, oldest first."""
        return self.lines[::-1]


def read_history(
    dag_id: str, airflow: Sequence[AirflowRun], group: str = "", most: int = MOST_RUNS, seconds: float = READING_SECONDS
) -> HistoryView:
    """The run directories of a DAG, or of one of its aggregations: always the newest, others as time allows."""
    runs = latest_runs(dag_id, airflow, group)
    lines = tuple(_line(open_run(dag_id, one.folder, group), one) for one in in_time(runs[:most], seconds))
    return HistoryView(lines, len(runs), min(most, len(runs)))


class PastRun(NamedTuple):
    """A run directory, by the name of its folder, with its run in Airflow; ``moment`` is in seconds since 1970."""

    moment: float
    folder: str
    airflow: AirflowRun | None

    @property
    def run_id(self) -> str:
        """The id in addresses: Airflow's, or the folder's name if Airflow no longer knows the run."""
        return self.airflow.run_id if self.airflow else self.folder


def latest_runs(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> list[PastRun]:
    """The run directories, newest first: by the date of the run, or else of the folder."""
    known = {safe_run_id(run.run_id): run for run in airflow}
    found = []
    for folder in run_folders(dag_id, group):
        run = known.get(folder.name)
        found.append(PastRun(run.run_after.timestamp() if run else folder.moment, folder.name, run))
    return sorted(found, key=lambda one: (one.moment, one.folder), reverse=True)


def in_time(runs: Sequence[PastRun], seconds: float) -> Iterator[PastRun]:
    """The first one always, others until so many seconds have passed."""
    begun = time.monotonic()
    for place, one in enumerate(runs):
        if place and time.monotonic() - begun > seconds:
            return
        yield one


def verdicts(dag_id: str, airflow: Sequence[AirflowRun], group: str) -> list[tuple[str, str, QualityView | None]]:
    """Id, day and quality report of the latest runs, oldest first."""
    found = []
    for one in latest_runs(dag_id, airflow, group)[:MOST_RUNS]:
        directory = open_run(dag_id, one.folder, group)
        try:
            job, quality = read_job(directory), read_quality(directory)
        except SkewlessError:
            continue  # the page of that run shows the error
        found.append((one.run_id, job.date if job else "", quality))
    return found[::-1]


def _line(directory: RunDirectory, past: PastRun) -> RunLine:
    """A line, also for a directory with a document that cannot be read."""
    try:
        return _read_line(directory, past)
    except SkewlessError as err:
        return RunLine(
            run_id=past.run_id, date="", state=past.airflow.state if past.airflow else "", policy="", engine="",
            rows=0, keys=None, stages=0, max_over_mean=None, gap=None, forwarded=0, seconds=None, spark_seconds=0.0,
            verdict="unreadable", published=False, fault=str(err),
        )  # fmt: skip


def _read_line(directory: RunDirectory, past: PastRun) -> RunLine:
    run, job, quality = past.airflow, read_job(directory), read_quality(directory)
    stages = read_stages(directory) if job else []
    spark = sum(stage.seconds for stage in stages)
    largest = max(stages, key=lambda stage: stage.processed, default=None)
    whole = overall(directory, stages) if stages else None
    return RunLine(
        run_id=past.run_id,
        date=job.date if job else "",
        state=run.state if run else "",
        policy=job.policy if job else "",
        engine=stages[-1].engine if stages else "",
        rows=sum(stage.processed for stage in stages),
        keys=quality.keys if quality else None,
        stages=len(stages),
        max_over_mean=largest.max_over_mean if largest else None,
        gap=whole.gap if whole else None,
        forwarded=sum(stage.forwarded for stage in stages),
        seconds=run.seconds if run and run.seconds is not None else spark or None,
        spark_seconds=spark,
        verdict="none yet" if quality is None else "passed" if quality.success else "failed",
        published=publication_of(directory) is not None,
    )


@dataclass(frozen=True)
class Series:
    """One figure over the runs, oldest first."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    latest: float | None


_FIGURES: tuple[tuple[str, str, Callable[[RunLine], float | None]], ...] = (
    ("rows", "rows", lambda line: line.rows),
    ("keys", "rows", lambda line: line.keys),
    ("stages", "rows", lambda line: line.stages),
    ("max / mean", "ratio", lambda line: line.max_over_mean),
    ("gap to the bound", "percent", lambda line: line.gap),
    ("duration", "seconds", lambda line: line.seconds),
)


def series(history: HistoryView) -> tuple[Series, ...]:
    """The figures that have a chart."""
    lines = history.oldest_first
    return tuple(
        Series(name, unit, values := tuple(map(of, lines)), next((v for v in reversed(values) if v is not None), None))
        for name, unit, of in _FIGURES
    )


@dataclass(frozen=True)
class JobLine:
    """A job with its last run, if there was one.

    Attributes:
        group: the name of one aggregation of several in the DAG; empty for the only one.
        runs: how many there are; None if the user may not read them.
    """

    dag_id: str
    group: str
    schedule: str
    runs: int | None
    last: RunLine | None


@dataclass(frozen=True)
class JobRow:
    """A job as the page of all jobs shows it: its latest runs are oldest first, fewer where reading takes too long."""

    job: JobLine
    latest: tuple[RunLine, ...]


def read_jobs(
    groups: Mapping[str, Sequence[str]],
    schedules: Mapping[str, str],
    runs: Mapping[str, Sequence[AirflowRun]],
    most: int,
) -> tuple[JobRow, ...]:
    """A row for each aggregation of each DAG, by its id, with ``most`` of its runs at most.

    The runs of a DAG that is not in ``runs`` are not read.
    """
    found = []
    until = time.monotonic() + _OF_ALL_JOBS_SECONDS
    for dag_id, names in sorted(groups.items()):
        for group in names:
            if dag_id not in runs:
                found.append(JobRow(JobLine(dag_id, group, schedules.get(dag_id, ""), None, None), ()))
                continue
            left = until - time.monotonic()
            history = read_history(dag_id, runs[dag_id], group, most=most, seconds=left)
            last = history.lines[0] if history.lines else None
            line = JobLine(dag_id, group, schedules.get(dag_id, ""), history.total, last)
            found.append(JobRow(line, history.oldest_first))
    return tuple(found)
