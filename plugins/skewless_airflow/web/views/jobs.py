"""All jobs that a user may read, each with its latest runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.views.history import RunLine, read_history

#: How many runs of a job the page of all jobs draws.
LATEST_RUNS = 12
#: After so many seconds, for all jobs together, only the last run of each further job is read.
_READING_SECONDS = 1.0


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
    """A job as the page of all jobs shows it.

    Attributes:
        job: with its last run.
        latest: the latest runs, oldest first; fewer where there is no time to read them.
    """

    job: JobLine
    latest: tuple[RunLine, ...]


def read_jobs(
    groups: Mapping[str, Sequence[str]],
    schedules: Mapping[str, str],
    runs: Mapping[str, Sequence[AirflowRun]],
    most: int,
) -> tuple[JobRow, ...]:
    """A row for each aggregation of each DAG, by its id, with that many of its runs at most.

    Args:
        groups: the names of the aggregations of each DAG.
        schedules: of each DAG.
        runs: of each DAG as Airflow knows them; the runs of a DAG that is not in it are not read.
        most: see above.
    """
    found = []
    until = time.monotonic() + _READING_SECONDS
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
