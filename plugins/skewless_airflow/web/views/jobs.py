"""All jobs that a user may read, each with its last run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.views.history import RunLine, read_history


@dataclass(frozen=True)
class JobLine:
    """A DAG with its last run, if there was one."""

    dag_id: str
    schedule: str
    runs: int
    last: RunLine | None


def read_jobs(
    dag_ids: Iterable[str], schedules: Mapping[str, str], runs: Mapping[str, Sequence[AirflowRun]]
) -> tuple[JobLine, ...]:
    """A line for each DAG, by its id."""
    found = []
    for dag_id in sorted(dag_ids):
        history = read_history(dag_id, runs.get(dag_id, ()), most=1)
        last = history.lines[0] if history.lines else None
        found.append(JobLine(dag_id, schedules.get(dag_id, ""), history.total, last))
    return tuple(found)
