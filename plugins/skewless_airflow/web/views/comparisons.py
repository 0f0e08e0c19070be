"""A job beside another one over its latest runs: how many keys of each night differ, and which ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.comparison import Comparison
from skewless.errors import SkewlessError
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.run_folders import open_run
from skewless_airflow.web.views.history import MOST_RUNS, READING_SECONDS, in_time, latest_runs
from skewless_airflow.web.views.run import read_comparison
from skewless_airflow.web.views.stage import read_job


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
    for run in in_time(runs, READING_SECONDS):
        seen += 1
        directory = open_run(dag_id, run.folder, group)
        try:
            job, comparison = read_job(directory), read_comparison(directory)
        except SkewlessError:
            continue  # the page of that run shows the error
        if job is not None and comparison is not None:
            nights.append(ComparedNight(run.run_id, job.date, comparison))
    return ComparisonsHistory(tuple(nights), len(runs), seen)
