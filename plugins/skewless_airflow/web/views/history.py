"""All runs of a DAG side by side, so that a drift of the skew is visible."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import publication_of
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.run_folders import RunFolder, open_run, run_folders
from skewless_airflow.web.views.job import read_job
from skewless_airflow.web.views.quality import QualityView, read_quality
from skewless_airflow.web.views.run import overall
from skewless_airflow.web.views.stage import read_stages

#: Runs that a page shows.
MOST_RUNS = 40
#: After so many seconds the page shows the runs read so far. They stay in a cache, so a reload gets further.
_READING_SECONDS = 2.0


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
    dag_id: str,
    airflow: Sequence[AirflowRun],
    group: str = "",
    most: int = MOST_RUNS,
    seconds: float = _READING_SECONDS,
) -> HistoryView:
    """The run directories of a DAG, or of one of its aggregations: always the newest, others as time allows."""
    folders = latest_folders(dag_id, airflow, group)
    lines: list[RunLine] = []
    begun = time.monotonic()
    for folder, run in folders[:most]:
        if lines and time.monotonic() - begun > seconds:
            break
        lines.append(_safely(open_run(dag_id, folder.name, group), folder, run))
    return HistoryView(tuple(lines), len(folders), min(most, len(folders)))


def latest_folders(
    dag_id: str, airflow: Sequence[AirflowRun], group: str = ""
) -> list[tuple[RunFolder, AirflowRun | None]]:
    """Each run directory with its run in Airflow, newest first: by the date of the run, or else of the folder."""
    known = {safe_run_id(run.run_id): run for run in airflow}
    folders = [(folder, known.get(folder.name)) for folder in run_folders(dag_id, group)]

    def moment(one: tuple[RunFolder, AirflowRun | None]) -> tuple[float, str]:
        folder, run = one
        return (run.run_after.timestamp() if run else folder.moment, folder.name)

    return sorted(folders, key=moment, reverse=True)


def verdicts(
    dag_id: str, airflow: Sequence[AirflowRun], group: str = "", most: int = MOST_RUNS
) -> list[tuple[str, str, QualityView | None]]:
    """Id, day and quality report of the latest runs, oldest first."""
    found = []
    for folder, run in latest_folders(dag_id, airflow, group)[:most]:
        directory = open_run(dag_id, folder.name, group)
        try:
            job, quality = read_job(directory), read_quality(directory)
        except SkewlessError:
            continue  # the page of that run shows the error
        found.append((run.run_id if run else folder.name, job.date if job else "", quality))
    return found[::-1]


def _safely(directory: RunDirectory, folder: RunFolder, run: AirflowRun | None) -> RunLine:
    """A line, also for a directory with a document that cannot be read."""
    try:
        return _line(directory, folder, run)
    except SkewlessError as err:
        return RunLine(
            run_id=run.run_id if run else folder.name, date="", state=run.state if run else "", policy="", engine="",
            rows=0, keys=None, stages=0, max_over_mean=None, gap=None, forwarded=0, seconds=None, spark_seconds=0.0,
            verdict="unreadable", published=False, fault=str(err),
        )  # fmt: skip


def _line(directory: RunDirectory, folder: RunFolder, run: AirflowRun | None) -> RunLine:
    job, quality = read_job(directory), read_quality(directory)
    stages = read_stages(directory) if job else []
    spark = sum(stage.seconds for stage in stages)
    largest = max(stages, key=lambda stage: stage.processed, default=None)
    whole = overall(directory, stages) if stages else None
    return RunLine(
        run_id=run.run_id if run else folder.name,
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
