"""All jobs that a user may read, each with its latest runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.views.history import RunLine, read_history

#: Runs of a job that the page of all jobs draws.
_LATEST_RUNS = 12
#: Seconds for all jobs together: after them, of each only the last run is read.
_READING_SECONDS = 1.0


@dataclass(frozen=True)
class JobLine:
    """A job with its last run, if there was one.

    Attributes:
        group: the name of one aggregation of several in the DAG; empty for the only one.
        latest: the latest runs, oldest first; fewer where there is no time to read them.
    """

    dag_id: str
    group: str
    schedule: str
    runs: int
    last: RunLine | None
    latest: tuple[RunLine, ...]


def read_jobs(
    groups: Mapping[str, Sequence[str]], schedules: Mapping[str, str], runs: Mapping[str, Sequence[AirflowRun]]
) -> tuple[JobLine, ...]:
    """A line for each aggregation of each DAG, by its id."""
    found = []
    until = time.monotonic() + _READING_SECONDS
    for dag_id, names in sorted(groups.items()):
        for group in names:
            left = until - time.monotonic()
            history = read_history(dag_id, runs.get(dag_id, ()), group, most=_LATEST_RUNS, seconds=left)
            last = history.lines[0] if history.lines else None
            schedule = schedules.get(dag_id, "")
            found.append(JobLine(dag_id, group, schedule, history.total, last, history.oldest_first))
    return tuple(found)
