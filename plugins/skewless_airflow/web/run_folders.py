"""Run directories as pages read them: at any moment of a run, each file once as long as it does not change."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeVar, TypeVarTuple

from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import run_location, runs_folder

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
    """A run directory in a listing.

    Attributes:
        name: of the folder; ``run_location`` accepts it as a run id.
        moment: when something was last put into it, in seconds since 1970; 0 where the file system does not say.
    """

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
