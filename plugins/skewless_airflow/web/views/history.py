"""All runs of a DAG side by side, so that a drift of the skew is visible."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from skewless.documents.comparison import Comparison
from skewless.documents.step_documents import StepTimes
from skewless.errors import SkewlessError
from skewless.publication.records import publication_of
from skewless.run.directory import RunDirectory
from skewless.run.step_times import work_seconds
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.runs import GOING_ON, AirflowRun, open_run, run_folders
from skewless_airflow.web.views.job_view import read_job, whole_job
from skewless_airflow.web.views.quality_view import QualityView, read_quality
from skewless_airflow.web.views.run import failed_tries, overall, read_comparison, read_savings, read_times
from skewless_airflow.web.views.stage_view import read_stages

#: Runs that a page shows.
MOST_RUNS = 40
#: After so many seconds the page shows the runs read so far. They stay in a cache, so a reload gets further.
READING_SECONDS = 2.0


@dataclass(frozen=True)
class RunLine:
    """One run directory as a line of a table.

    Attributes:
        run_id: the id in addresses: Airflow's, or the folder's name if Airflow no longer knows the run.
        date: the day it is about; "" before it is prepared.
        state: of the run in Airflow; "" where Airflow knows nothing.
        standing: the same, or of a run of the command line what its documents say: ``success``, ``failed`` or
            ``unfinished``; ``unreadable`` where they say nothing.
        due: when it was to begin, by its schedule or by whoever triggered it in Airflow.
        started, ended: in Airflow, or as the steps of a run of the command line recorded it.
        deadline: by when Airflow was told that it has to end, where that is ahead or was missed.
        keys: rows of the result; None before it is validated.
        over_even: the makespan of all stages over their rows divided by the slots.
        gap: how far the whole run was above the lower bound, as a fraction.
        saved: what its routing has saved, in words; "" where nobody has looked.
        seconds: from its start to its end; ``work_seconds`` those of its steps, as they measured themselves.
        fault: why the directory cannot be read; "" if it can.
    """

    run_id: str
    date: str
    state: str
    policy: str = ""
    engine: str = ""
    rows: int = 0
    keys: int | None = None
    stages: int = 0
    gap: float | None = None
    forwarded: int = 0
    seconds: float | None = None
    work_seconds: float | None = None
    verdict: str = "none yet"
    published: bool = False
    fault: str = ""
    standing: str = ""
    due: dt.datetime | None = None
    started: dt.datetime | None = None
    ended: dt.datetime | None = None
    deadline: dt.datetime | None = None
    over_even: float | None = None
    saved: str = ""

    @property
    def going_on(self) -> bool:
        """Whether Airflow says that it has not ended."""
        return self.state in GOING_ON


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


def read_history(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> HistoryView:
    """The run directories of a DAG, or of one of its aggregations: always the newest, others as time allows."""
    return read_lines(latest_runs(dag_id, airflow, group), MOST_RUNS, READING_SECONDS)


def read_lines(runs: Sequence[PastRun], most: int, seconds: float) -> HistoryView:
    """The first of some runs, as many as can be read in so many seconds."""
    return HistoryView(tuple(map(_line, _in_time(runs[:most], seconds))), len(runs), min(most, len(runs)))


class PastRun(NamedTuple):
    """A run directory, by the name of its folder, with its run in Airflow; ``moment`` is in seconds since 1970."""

    moment: float
    folder: str
    airflow: AirflowRun | None
    dag_id: str
    group: str

    @property
    def run_id(self) -> str:
        """The id in addresses: Airflow's, or the folder's name if Airflow no longer knows the run."""
        return self.airflow.run_id if self.airflow else self.folder

    @property
    def directory(self) -> RunDirectory:
        """What it is, opened anew."""
        return open_run(self.dag_id, self.folder, self.group)


def latest_runs(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> list[PastRun]:
    """The run directories, newest first: by the date of the run, or else of the folder."""
    known = {safe_run_id(run.run_id): run for run in airflow}
    past = []
    for folder in run_folders(dag_id, group):
        run = known.get(folder.name)
        moment = run.run_after.timestamp() if run else folder.moment
        past.append(PastRun(moment, folder.name, run, dag_id, group))
    return sorted(past, key=lambda run: (run.moment, run.folder), reverse=True)


def _in_time(runs: Sequence[PastRun], seconds: float) -> Iterator[PastRun]:
    """The first one always, others until so many seconds have passed."""
    until = time.monotonic() + seconds
    yield from runs[:1]
    yield from takewhile(lambda _: time.monotonic() <= until, runs[1:])


def verdicts(dag_id: str, airflow: Sequence[AirflowRun], group: str) -> list[tuple[str, str, QualityView | None]]:
    """Id, day and quality report of the latest runs, oldest first."""
    found = []
    for run in latest_runs(dag_id, airflow, group)[:MOST_RUNS]:
        with suppress(SkewlessError):  # the page of that run shows the error
            job, quality = read_job(run.directory), read_quality(run.directory)
            found.append((run.run_id, job.date if job else "", quality))
    return found[::-1]


def _line(past: PastRun) -> RunLine:
    """A line, also for a directory with a document that cannot be read."""
    run, directory = past.airflow, past.directory
    state = run.state if run else ""
    try:
        job, quality = read_job(directory), read_quality(directory)
        stages = read_stages(directory) if job else []
        whole = overall(directory, stages) if stages else None
        published, savings = publication_of(directory) is not None, read_savings(directory)
        standing = state if run else _standing(directory, quality, published=published)
        times = read_times(directory) if job else []
        started, ended = (run.started, run.ended) if run else _recorded(times)
    except SkewlessError as err:
        return RunLine(past.run_id, "", state, standing="unreadable", verdict="unreadable", fault=str(err))
    work = work_seconds(times)
    measured = whole is not None and whole.makespan_rows and whole.fair_rows
    return RunLine(
        run_id=past.run_id,
        date=job.date if job else "",
        state=state,
        policy=job.policy if job else "",
        engine=stages[-1].engine if stages else "",
        rows=sum(stage.processed for stage in stages),
        keys=quality.keys if quality else None,
        stages=len(stages),
        gap=whole.gap if whole else None,
        forwarded=sum(stage.forwarded for stage in stages),
        seconds=(ended - started).total_seconds() if started and ended else None,
        work_seconds=work,
        verdict="none yet" if quality is None else "passed" if quality.success else "failed",
        published=published,
        standing=standing,
        due=run.run_after if run else None,
        started=started,
        ended=ended,
        deadline=run.deadline if run else None,
        over_even=whole.over_fair if whole and measured else None,
        saved=savings.sentence if savings else "",
    )


def _recorded(times: Sequence[StepTimes]) -> tuple[dt.datetime, dt.datetime] | tuple[None, None]:
    """When the first step of a run began and the last one ended, by their own clocks."""
    if not times:
        return None, None
    started, ended = times[0].started, max(one.ended for one in times)
    return dt.datetime.fromtimestamp(started, dt.UTC), dt.datetime.fromtimestamp(ended, dt.UTC)


def _standing(directory: RunDirectory, quality: QualityView | None, *, published: bool) -> str:
    compared = read_comparison(directory)
    if published or (compared and compared.allowed_by(whole_job(directory).spec.shadow)):
        return "success"
    return "failed" if compared or failed_tries(directory) or (quality and not quality.success) else "unfinished"


#: The figures of a run that have a chart, each with its unit and the field of a line.
FIGURES = (
    ("rows", "rows", "rows"),
    ("keys", "rows", "keys"),
    ("stages", "rows", "stages"),
    ("longest task / fair share", "ratio", "over_even"),
    ("above the best possible", "percent", "gap"),
    ("duration", "seconds", "seconds"),
)


@dataclass(frozen=True)
class ComparedNight:
    """One run whose result was compared; the part is what it computed, in words."""

    run_id: str
    part: str
    comparison: Comparison


@dataclass(frozen=True)
class ComparisonsHistory:
    """The compared runs among the latest ones, newest first.

    Attributes:
        wanted: how many runs the page would read if there were time.
    """

    nights: tuple[ComparedNight, ...]
    wanted: int
    seen: int

    @property
    def differing(self) -> tuple[ComparedNight, ...]:
        """The nights in which anything differs."""
        return tuple(night for night in self.nights if night.comparison.found)

    @property
    def verdict(self) -> str:
        """All of it in a line."""
        count = len(self.nights)
        return f"{count:,} {'night' if count == 1 else 'nights'} compared, {len(self.differing):,} differ"


def read_comparisons(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> ComparisonsHistory:
    """The latest runs of a job that were compared with another one's: always the newest, others as time allows."""
    runs = latest_runs(dag_id, airflow, group)[:MOST_RUNS]
    nights, seen = list[ComparedNight](), 0
    for run in _in_time(runs, READING_SECONDS):
        seen += 1
        with suppress(SkewlessError):  # the page of that run shows the error
            job, comparison = read_job(run.directory), read_comparison(run.directory)
            if job is not None and comparison is not None:
                nights.append(ComparedNight(run.run_id, job.date, comparison))
    return ComparisonsHistory(tuple(nights), len(runs), seen)
