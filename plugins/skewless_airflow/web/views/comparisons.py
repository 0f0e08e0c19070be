"""A job beside another one over its latest runs: how many keys of each night differ, and which ones most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from skewless.documents.comparison import Comparison
from skewless.errors import SkewlessError
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.rendering.words import duration
from skewless_airflow.web.run_folders import open_run
from skewless_airflow.web.views.history import MOST_RUNS, READING_SECONDS, in_time, latest_runs
from skewless_airflow.web.views.run import read_comparison, read_savings
from skewless_airflow.web.views.stage import read_job


@dataclass(frozen=True)
class ComparedNight:
    """One run whose result was compared.

    Attributes:
        part: what it computed, in words.
        saved_seconds: by how much its longest tasks were shorter than plain hashing would have made them.
    """

    run_id: str
    part: str
    comparison: Comparison
    saved_seconds: float | None


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
        known = [night.saved_seconds for night in self.nights if night.saved_seconds is not None]
        each = "each" if len(known) == count else f"in each of {len(known):,}"
        mean = fmean(known or [0.0])
        saved = f", {duration(abs(mean))} {'saved' if mean >= 0 else 'lost'} {each}" if known else ""
        return f"{count:,} {'night' if count == 1 else 'nights'} compared, {len(self.differing):,} differ{saved}"


def read_comparisons(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> ComparisonsHistory:
    """The latest runs of a job that were compared with another one's: always the newest, others as time allows."""
    runs = latest_runs(dag_id, airflow, group)[:MOST_RUNS]
    nights, seen = list[ComparedNight](), 0
    for one in in_time(runs, READING_SECONDS):
        seen += 1
        directory = open_run(dag_id, one.folder, group)
        try:
            job, found, savings = read_job(directory), read_comparison(directory), read_savings(directory)
        except SkewlessError:
            continue  # the page of that run shows the error
        if job is not None and found is not None:
            nights.append(ComparedNight(one.run_id, job.date, found, savings.seconds_saved if savings else None))
    return ComparisonsHistory(tuple(nights), len(runs), seen)
