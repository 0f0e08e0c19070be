"""DAGs, runs and tasks from Airflow's own database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select
from sqlalchemy.orm import Session

from skewless.errors import SpecError
from skewless.spec.part import part_named
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.run_store import part_of_run

#: The tag of the DAGs that are made from a spec.
TAG = "skewless"
_GOING_ON = frozenset({"queued", "running", "restarting"})
#: How many runs of a DAG are looked up, the latest; an older run directory is shown under its folder's name.
_LATEST_RUNS = 1000
_RUNS = select(DagRun.run_id, DagRun.state, DagRun.run_after, DagRun.start_date, DagRun.end_date)


@dataclass(frozen=True)
class AirflowRun:
    """A run as Airflow sees it."""

    run_id: str
    state: str
    run_after: dt.datetime
    started: dt.datetime | None
    ended: dt.datetime | None

    @property
    def going_on(self) -> bool:
        """Whether the run has not ended."""
        return self.state in _GOING_ON

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
    found = session.execute(_RUNS.where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).first()
    return _run(*found) if found else None


def airflow_runs(session: Session, dag_id: str, most: int = _LATEST_RUNS) -> list[AirflowRun]:
    """The latest runs of a DAG, newest first."""
    query = _RUNS.where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(most)
    return [_run(*found) for found in session.execute(query)]


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
        AirflowTask(task_id, str(getattr(state, "value", state)) if state else None, seconds, tries or 0)
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


def schedules(session: Session, dag_ids: Sequence[str]) -> dict[str, str]:
    """The schedule of each DAG, as Airflow describes it."""
    query = select(DagModel).where(DagModel.dag_id.in_(dag_ids))
    return {one.dag_id: _schedule(one) for one in session.scalars(query)}


def _schedule(dag: DagModel) -> str:
    words = str(dag.timetable_summary or dag.timetable_description or "by hand")
    return f"{'by hand' if words in {'None', ''} else words}{', paused' if dag.is_paused else ''}"


def _run(
    run_id: str, state: object, run_after: dt.datetime, started: dt.datetime | None, ended: dt.datetime | None
) -> AirflowRun:
    return AirflowRun(run_id, str(getattr(state, "value", state)), run_after, started, ended)
