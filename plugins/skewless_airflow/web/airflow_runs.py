"""DAGs, runs and tasks from Airflow's own database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from skewless.errors import SpecError
from skewless.spec.part import part_named
from skewless_airflow.partitions import PartTimetable
from skewless_airflow.run_store import part_of_run

#: The tag of the DAGs that are made from a spec.
TAG = "skewless"
#: The states of a run that has not ended.
GOING_ON = frozenset({"queued", "running", "restarting"})
#: How many runs of a DAG are looked up, the latest; an older run directory is shown under its folder's name.
_LATEST_RUNS = 1000
#: Airflow deletes a deadline that was kept; of several the first counts.
_DEADLINES = (
    select(Deadline.dagrun_id, func.min(Deadline.deadline_time).label("first")).group_by(Deadline.dagrun_id).subquery()
)
_RUNS = select(
    DagRun.run_id, DagRun.state, DagRun.run_after, DagRun.start_date, DagRun.end_date, _DEADLINES.c.first
).outerjoin(_DEADLINES, _DEADLINES.c.dagrun_id == DagRun.id)


@dataclass(frozen=True)
class AirflowRun:
    """A run as Airflow sees it; ``deadline`` is the first that is ahead or was missed."""

    run_id: str
    state: str
    run_after: dt.datetime
    started: dt.datetime | None
    ended: dt.datetime | None
    deadline: dt.datetime | None = None

    @property
    def going_on(self) -> bool:
        """Whether the run has not ended."""
        return self.state in GOING_ON

    @property
    def seconds(self) -> float | None:
        """How long it took, from its first start to its end."""
        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


@dataclass(frozen=True)
class AirflowTask:
    """The last try of a task."""

    task_id: str
    state: str | None
    seconds: float | None
    tries: int


def airflow_run(session: Session, dag_id: str, run_id: str) -> AirflowRun | None:
    """One run, if Airflow still knows it."""
    row = session.execute(_RUNS.where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).first()
    return AirflowRun(*row) if row else None


def airflow_runs(session: Session, dag_id: str, most: int = _LATEST_RUNS) -> list[AirflowRun]:
    """The latest runs of a DAG, newest first."""
    query = _RUNS.where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(most)
    return [AirflowRun(*row) for row in session.execute(query)]


def coming_part(session: Session, dag_id: str, run_id: str) -> str:
    """The part that a run will compute before it is prepared; "" where only its spec can tell."""
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    stored = SerializedDagModel.get_dag(dag_id, session=session) if run else None
    timetable = stored.timetable if stored else None
    if run is None or not isinstance(timetable, PartTimetable):
        return ""
    conf, schedule = run.conf or {}, timetable.covered
    try:
        if conf.get("date"):
            hour = str(conf["hour"]) if conf.get("hour") else None
            return str(part_named(str(conf["date"]), hour, schedule.timezone, schedule.unit, ""))
        return str(part_of_run(run, schedule, ""))
    except SpecError:
        return ""  # ``prepare`` reports the error


def airflow_tasks(session: Session, dag_id: str, run_id: str, group: str = "") -> tuple[AirflowTask, ...]:
    """The tasks of a run, or those in one group of it."""
    columns = (TaskInstance.task_id, TaskInstance.state, TaskInstance.duration, TaskInstance.try_number)
    query = select(*columns).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    return tuple(
        AirflowTask(task_id, state, seconds, tries or 0)
        for task_id, state, seconds, tries in session.execute(query)
        if not group or group in task_id.split(".")[:-1]
    )


def tagged_dags(session: Session) -> set[str]:
    """The ids of the DAGs with our tag that still exist in a DAG file."""
    query = (
        select(DagModel.dag_id)
        .join(DagTag, DagTag.dag_id == DagModel.dag_id)
        .where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    )
    return set(session.scalars(query))


class Timing(NamedTuple):
    """When a DAG runs: its schedule, as Airflow describes it, and the next moment of it, if there is one."""

    words: str
    next_run: dt.datetime | None


def timings(session: Session, dag_ids: Sequence[str]) -> dict[str, Timing]:
    """The timing of each DAG; one that is paused has no next run."""
    query = select(DagModel).where(DagModel.dag_id.in_(dag_ids))
    found = {}
    for dag in session.scalars(query):
        summary = str(dag.timetable_summary or dag.timetable_description)
        schedule = "by hand" if summary in {"None", ""} else summary
        paused = Timing(f"{schedule}, paused", None)
        found[dag.dag_id] = paused if dag.is_paused else Timing(schedule, dag.next_dagrun_create_after)
    return found
