"""All jobs that a user may read, each with its last run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.views.history import RunLine, read_history


@dataclass(frozen=True)
class JobLine:
    """A job with its last run, if there was one.

    Attributes:
        group: the name of one aggregation of several in the DAG; empty for the only one.
    """

    dag_id: str
    group: str
    schedule: str
    runs: int
    last: RunLine | None


def read_jobs(
    groups: Mapping[str, Sequence[str]], schedules: Mapping[str, str], runs: Mapping[str, Sequence[AirflowRun]]
) -> tuple[JobLine, ...]:
    """A line for each aggregation of each DAG, by its id."""
    found = []
    for dag_id, names in sorted(groups.items()):
        for group in names:
            history = read_history(dag_id, runs.get(dag_id, ()), group, most=1)
            last = history.lines[0] if history.lines else None
            found.append(JobLine(dag_id, group, schedules.get(dag_id, ""), history.total, last))
    return tuple(found)
