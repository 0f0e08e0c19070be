"""Runs as pages find them: DAGs, runs and tasks in Airflow's own database, and run directories.

Directories are read at any moment of a run, each file once as long as it does not change.
"""

import datetime as dt
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.part import part_named
from skewless_airflow.partitions import PartTimetable
from skewless_airflow.run_store import part_of_run, run_location, runs_folder

#: The tag of the DAGs that are made from a spec.
TAG = "skewless"
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


def airflow_run(session: Session, dag_id: str, run_id: str) -> AirflowRun | None:
    """One run, if Airflow still knows it."""
    row = session.execute(_RUNS.where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).first()
    return AirflowRun(*row) if row else None


def airflow_runs(session: Session, dag_id: str, most: int = _LATEST_RUNS) -> list[AirflowRun]:
    """The latest runs of a DAG, newest first."""
    query = _RUNS.where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(most)
    return [AirflowRun(*row) for row in session.execute(query)]


def owners_of(session: Session, dag_id: str) -> str:
    """Who owns a DAG, as its file says; "" for nobody."""
    return session.scalar(select(DagModel.owners).where(DagModel.dag_id == dag_id)) or ""


def coming_part(session: Session, dag_id: str, run_id: str) -> str:
    """The part that a run will compute before it is prepared; "" where only its spec can tell."""
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    dag = _stored(session, dag_id)
    if run is None or dag is None:
        return ""
    conf, schedule = run.conf or {}, dag.timetable.covered
    try:
        if conf.get("date"):
            hour = str(conf["hour"]) if conf.get("hour") else None
            return str(part_named(str(conf["date"]), hour, schedule.timezone, schedule.unit, ""))
        return str(part_of_run(run, schedule, ""))
    except SpecError:
        return ""  # ``prepare`` reports the error


def airflow_tasks(session: Session, dag_id: str, run_id: str, group: str = "") -> tuple[AirflowTask, ...]:
    """The tasks of a run, or those in one group of it."""
    query = select(TaskInstance.task_id, TaskInstance.state, TaskInstance.duration)
    query = query.where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    tasks = (AirflowTask(*row) for row in session.execute(query))
    return tuple(task for task in tasks if not group or group in task.task_id.split(".")[:-1])


def tagged_dags(session: Session) -> set[str]:
    """The ids of the DAGs with our tag that still exist in a DAG file."""
    query = (
        select(DagModel.dag_id)
        .join(DagTag, DagTag.dag_id == DagModel.dag_id)
        .where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    )
    return set(session.scalars(query))


#: The DAGs as Airflow keeps them, each with its hash.
_STORED: dict[str, tuple[str | None, Any]] = {}


def _stored(session: Session, dag_id: str) -> Any:
    """A DAG, if its schedule says which parts its runs compute, or None; made anew if it has changed."""
    newest = select(SerializedDagModel.dag_hash).where(SerializedDagModel.dag_id == dag_id)
    mark = session.scalar(newest.order_by(SerializedDagModel.created_at.desc()).limit(1))
    if _STORED.get(dag_id, ("", None))[0] != mark:
        _STORED[dag_id] = (mark, SerializedDagModel.get_dag(dag_id, session=session))
    dag = _STORED[dag_id][1]
    return dag if dag is not None and isinstance(dag.timetable, PartTimetable) else None


class Timing(NamedTuple):
    """When a DAG runs: its schedule in words, its next moment, and the parts of the latest days with their moments."""

    words: str
    next_run: dt.datetime | None
    parts: tuple[tuple[dt.datetime, str], ...] = ()


def timings(session: Session, dag_ids: Sequence[str], now: dt.datetime, days: int) -> dict[str, Timing]:
    """The timing of each DAG, with the parts of so many days; one that is paused has no next run, and misses none."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    query = select(DagModel).where(DagModel.dag_id.in_(dag_ids))
    found = {}
    for dag in session.scalars(query):
        by_hand = dag.timetable_summary in {"None", "", None}
        schedule = "by hand" if by_hand else str(dag.timetable_description or dag.timetable_summary)
        paused = Timing(f"{schedule}, paused", None)
        stored = None if dag.is_paused else _stored(session, dag.dag_id)
        runs = stored.iter_dagrun_infos_between(today - dt.timedelta(days=days - 1), today) if stored else ()
        covered: Any = stored.timetable.covered if stored else None
        parts = tuple((run.run_after, str(covered.part_of(run.run_after))) for run in runs if run.run_after <= now)
        found[dag.dag_id] = paused if dag.is_paused else Timing(schedule, dag.next_dagrun_create_after, parts)
    return found


#: Separates the ids of a DAG and of a group in the name of their folder; neither can contain it.
_BETWEEN = "+"
T = TypeVar("T")
Rest = TypeVarTuple("Rest")


def open_run(dag_id: str, run_id: str, group: str = "") -> RunDirectory:
    """The run directory of an Airflow run, whether it exists or not, without cached listings."""
    run = RunDirectory(run_location(_folder(dag_id, group), run_id))
    run.fs.invalidate_cache()  # a cached listing of an object store may be older than the run's last commit
    return run


def stamp(run: RunDirectory, name: str) -> str | None:
    """A text that changes when a file does; None if there is no such file."""
    try:
        info = run.fs.info(f"{run.root}/{name}")
    except OSError as err:
        if is_absence(err):
            return None
        raise
    moment = next((info[word] for word in ("ETag", "mtime", "LastModified", "created") if info.get(word)), "")
    return f"{moment} {info.get('size')}"


def kept_by(
    name: str, most: int = 1024
) -> Callable[[Callable[[RunDirectory, *Rest], T]], Callable[[RunDirectory, *Rest], T | None]]:
    """Keep what a function reads of a run directory until a file changes; without that file the answer is None.

    A place in braces in the file's name stands for the function's argument after the run directory.
    """

    def decorate(read: Callable[[RunDirectory, *Rest], T]) -> Callable[[RunDirectory, *Rest], T | None]:
        @lru_cache(maxsize=most)
        def kept(location: str, _mark: str, *rest: *Rest) -> T:
            return read(RunDirectory(location), *rest)

        def found(run: RunDirectory, *rest: *Rest) -> T | None:
            mark = stamp(run, name.format(*rest))
            return kept(run.path(""), mark, *rest) if mark else None

        return found

    return decorate


def view_of(view: Callable[..., T], *documents: object, **values: object) -> T:
    """A view, a dataclass: a field that has no value here has that of the first document with one of its name."""
    kind: Any = view
    for name in {field.name for field in fields(kind)} - values.keys():
        values |= next(({name: getattr(one, name)} for one in documents if hasattr(one, name)), {})
    return view(**values)


@dataclass(frozen=True)
class RunFolder:
    """A run directory in a listing; ``moment``, in seconds since 1970, is that of its last file, 0 if not known."""

    name: str
    moment: float


def run_folders(dag_id: str, group: str = "") -> list[RunFolder]:
    """The run directories of a DAG, or of one aggregation of several in it, in no order."""
    return _folders(f"{runs_folder()}/{_folder(dag_id, group)}")


def groups_with_runs() -> dict[str, list[str]]:
    """The sorted names of the aggregations of each DAG that has run directories; "" is the only one of a DAG."""
    found: dict[str, list[str]] = {}
    for name in sorted(one.name for one in _folders(runs_folder())):
        dag_id, _, group = name.partition(_BETWEEN)
        found.setdefault(dag_id, []).append(group)
    return found


def is_absence(err: OSError) -> bool:
    """Whether an error means that there is no such file; a name from an address may be one that no file can have."""
    return isinstance(err, FileNotFoundError | NotADirectoryError) or err.errno == errno.ENAMETOOLONG


def _folder(dag_id: str, group: str) -> str:
    return f"{dag_id}{_BETWEEN}{group}" if group else dag_id


def _folders(location: str) -> list[RunFolder]:
    place = RunDirectory(location)
    place.fs.invalidate_cache()
    try:
        found = place.fs.ls(place.root, detail=True)
    except OSError as err:
        if is_absence(err):
            return []
        raise
    folders = []
    for info in found:
        if info["type"] == "directory":
            moment = info.get("mtime") or info.get("LastModified") or 0.0
            seconds = float(moment.timestamp() if hasattr(moment, "timestamp") else moment)
            folders.append(RunFolder(str(info["name"]).rstrip("/").rpartition("/")[2], seconds))
    return folders
