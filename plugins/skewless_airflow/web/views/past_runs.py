"""All runs of a DAG side by side, so that a drift of the skew is visible."""

import datetime as dt
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from skewless.bounds import certificate_of
from skewless.documents.quality import Comparison, State
from skewless.errors import SkewlessError, counted
from skewless.run.directory import RunDirectory
from skewless.run.step_times import work_seconds
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.web.rendering import clock, day
from skewless_airflow.web.runs import GOING_ON, AirflowRun, open_run, run_folders
from skewless_airflow.web.views.job_view import read_job, whole_job
from skewless_airflow.web.views.quality_view import QualityView, read_quality
from skewless_airflow.web.views.run import read_comparison, read_savings, read_state, read_times
from skewless_airflow.web.views.stage_view import of_stages, read_engine, read_figures

#: Runs that a page shows, read for so many seconds: they stay in a cache, so a reload gets further.
MOST_RUNS, READING_SECONDS = 40, 2.0


@dataclass(frozen=True)
class RunLine:
    """One run directory as a line of a table."""

    run_id: str
    """The id in addresses: Airflow's, or the folder's name if Airflow no longer knows the run."""
    date: str
    """The day it is about; "" before it is prepared. ``state`` is of Airflow; "" where it knows nothing."""
    state: str
    policy: str = ""
    engine: str = ""
    rows: int = 0
    keys: int | None = None
    stages: int = 0
    gap: float | None = None
    """How far the whole run was above the lower bound, as a fraction; ``saved`` what its routing has saved."""
    forwarded: int = 0
    seconds: float | None = None
    """From its start to its end; ``work_seconds`` those of its steps, as they measured themselves."""
    work_seconds: float | None = None
    verdict: str = "none yet"
    """On the result, for people; ``checked`` the same in a word of ``STATES``."""
    checked: str = "none yet"
    published: bool = False
    fault: str = ""
    standing: str = "unfinished"
    """How it stands by Airflow as long as it goes on, and then by its documents, in a word of ``STATES``;
    ``standing_words`` the same for people."""
    standing_words: str = ""
    started: dt.datetime | None = None
    """In Airflow, or as its steps recorded it, as ``ended``; ``deadline`` is one that is ahead or was missed."""
    ended: dt.datetime | None = None
    deadline: dt.datetime | None = None
    over_even: float | None = None
    """The makespan of all stages over their rows divided by the slots."""
    saved: str = ""

    @property
    def going_on(self) -> bool:
        """Whether Airflow says that it has not ended."""
        return self.state in GOING_ON


@dataclass(frozen=True)
class HistoryView:
    """The latest of ``total`` runs, newest first; ``wanted`` is how many would be shown if there were time."""

    lines: tuple[RunLine, ...]
    total: int
    wanted: int


def read_history(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> HistoryView:
    """The run directories of a DAG, or of one of its aggregations, by their days, as far as time allows."""
    history = read_lines(latest_runs(dag_id, airflow, group), MOST_RUNS, READING_SECONDS)
    by_day = sorted(history.lines, key=lambda line: line.date or "9", reverse=True)  # what is not prepared is newest
    return replace(history, lines=tuple(by_day))


def read_lines(runs: Sequence["PastRun"], most: int, seconds: float, whole: int = MOST_RUNS) -> HistoryView:
    """The first of some runs, as many as so many seconds allow; of those after ``whole`` only how they stand."""
    lines = (_line(run, whole=at < whole) for at, run in enumerate(_in_time(runs[:most], seconds)))
    return HistoryView(tuple(lines), len(runs), min(most, len(runs)))


def readers_of(part: str, lines: Iterable[RunLine], every: bool) -> str:
    """Which result of a part readers have, and of when, by its runs; "" where not every run of it was looked at."""
    seen = next((line for line in lines if line.date == part and line.published), None)
    if seen is None:
        return f"readers have no result of {day(part)}" if every and day(part) != part else ""
    return f"readers see that of {clock(seen.ended)}" if seen.ended else "readers see that of an earlier run"


def readers_by(runs: Sequence["PastRun"], part: str) -> str:
    """The same by the latest of some runs, without their stages."""
    known = read_lines(runs, MOST_RUNS, READING_SECONDS, whole=0)
    return readers_of(part, known.lines, len(known.lines) == known.total)


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
    folders = ((folder, known.get(folder.name)) for folder in run_folders(dag_id, group))
    moments = ((run.run_after.timestamp() if run else folder.moment, folder.name, run) for folder, run in folders)
    past = (PastRun(*one, dag_id, group) for one in moments)
    return sorted(past, key=lambda run: (run.moment, run.folder), reverse=True)


def _in_time(runs: Sequence[PastRun], seconds: float) -> Iterator[PastRun]:
    """The first one always, others until so many seconds have passed."""
    until = time.monotonic() + seconds
    yield from runs[:1]
    yield from takewhile(lambda _: time.monotonic() <= until, runs[1:])


def verdicts(runs: Sequence[PastRun]) -> list[tuple[str, str, QualityView | None]]:
    """Id, day and quality report of the latest runs, oldest first."""
    found = []
    for run in runs[:MOST_RUNS]:
        with suppress(SkewlessError):  # the page of that run shows the error
            job, quality = read_job(run.directory), read_quality(run.directory)
            found.append((run.run_id, job.date if job else "", quality))
    return found[::-1]


def _line(past: PastRun, *, whole: bool) -> RunLine:
    """A line, also for a directory with a document that cannot be read."""
    run, directory = past.airflow, past.directory
    state = run.state if run else ""
    try:
        job, quality = read_job(directory), read_quality(directory)
        stages = of_stages(directory, read_figures) if job and whole else []
        total = certificate_of(whole_job(directory), [figures for _, figures in stages]) if stages else None
        engine = read_engine(directory, len(stages) - 1) if stages else None
        savings, stands, published = read_savings(directory), *read_state(directory)
        if run and run.going_on:
            stands = State(state, state)
        elif state == "failed" and not (published and past.group):  # another aggregation of the DAG may have failed
            stands = State("failed", "failed")
        times = read_times(directory) if job and (whole or not run) else []
        started, ended = (run.started, run.ended) if run else (None, None)
        if times and not run:
            ends = times[0].started, max(one.ended for one in times)
            started, ended = (dt.datetime.fromtimestamp(moment, dt.UTC) for moment in ends)
    except SkewlessError as err:
        return RunLine(
            past.run_id, "", state, standing="unreadable", verdict="unreadable", checked="unreadable", fault=str(err)
        )
    verdict = quality.verdict if quality else State("none yet", "none yet")
    return RunLine(
        past.run_id, job.date if job else "", state, job.policy if job else "", engine or "",
        rows=sum(figures.processed_rows for _, figures in stages), keys=quality.keys if quality else None,
        stages=len(stages), gap=total.gap if total else None, forwarded=sum(forwarded for forwarded, _ in stages),
        seconds=(ended - started).total_seconds() if started and ended else None, work_seconds=work_seconds(times),
        verdict=verdict.sentence, checked=verdict.word, published=published, standing=stands.word,
        standing_words=stands.sentence, started=started, ended=ended, deadline=run.deadline if run else None,
        over_even=total.over_fair if total and total.makespan_rows and total.fair_rows else None,
        saved=savings.sentence if savings else "",
    )  # fmt: skip


@dataclass(frozen=True)
class ComparedNight:
    """One run whose result was compared; the part is what it computed, in words."""

    run_id: str
    part: str
    comparison: Comparison


@dataclass(frozen=True)
class ComparisonsHistory:
    """The nights compared by the latest runs ``seen``, each by its last one, newest first; of ``wanted`` runs."""

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
        return f"{counted(len(self.nights), 'night')} compared, {len(self.differing):,} differ"


def read_comparisons(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> ComparisonsHistory:
    """The latest runs of a job that were compared with another one's: always the newest, others as time allows."""
    runs = latest_runs(dag_id, airflow, group)[:MOST_RUNS]
    nights, seen = list[ComparedNight](), 0
    for run in _in_time(runs, READING_SECONDS):
        seen += 1
        with suppress(SkewlessError):  # the page of that run shows the error
            job, comparison = read_job(run.directory), read_comparison(run.directory)
            if job and comparison and job.date not in {night.part for night in nights}:
                nights.append(ComparedNight(run.run_id, job.date, comparison))
    return ComparisonsHistory(tuple(nights), len(runs), seen)
