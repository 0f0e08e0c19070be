"""Run directories as pages find them: at any moment of their lives, read once, remembered while unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skewless.run_directory import RunDirectory
from skewless_airflow.places import data_root
from skewless_airflow.run_store import run_location


def open_run(dag_id: str, run_id: str) -> RunDirectory:
    """The run directory of an Airflow run, whether it exists or not; nothing of an earlier look is kept."""
    run = RunDirectory(run_location(dag_id, run_id))
    run.fs.invalidate_cache()  # a listing of an object store that is older than the run's last commit
    return run


def stamp(run: RunDirectory, name: str) -> str | None:
    """What changes when a file does; None if there is no such file."""
    try:
        info = run.fs.info(f"{run.root}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    moment = next((info[word] for word in ("ETag", "mtime", "LastModified", "created") if info.get(word)), "")
    return f"{moment} {info.get('size')}"


@dataclass(frozen=True)
class RunFolder:
    """A run directory in a listing.

    Attributes:
        name: of the folder; ``run_location`` takes it as a run id, too.
        moment: when something was last put into it, in seconds since 1970; 0 where the file system does not say.
    """

    name: str
    moment: float


def run_folders(dag_id: str) -> list[RunFolder]:
    """The run directories of a DAG, in no order."""
    return [RunFolder(name, moment) for name, moment in _folders(f"{data_root()}/runs/{dag_id}")]


def dags_with_runs() -> set[str]:
    """The ids of the DAGs that have run directories."""
    return {name for name, _ in _folders(f"{data_root()}/runs")}


def _folders(location: str) -> list[tuple[str, float]]:
    place = RunDirectory(location)
    place.fs.invalidate_cache()
    try:
        found = place.fs.ls(place.root, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    folders = [one for one in found if one["type"] == "directory"]
    return [(str(one["name"]).rstrip("/").rpartition("/")[2], _moment(one)) for one in folders]


def _moment(info: dict[str, Any]) -> float:
    moment = info.get("mtime") or info.get("LastModified") or 0.0
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)
