"""The earlier runs of a job beside its new run directory, from which a warm start is made."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from skewless.documents.stage_report import Histogram
from skewless.errors import SkewlessError
from skewless.planner.first_plan import plans_from
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.objects.location import as_written
from skewless.spec.spec import JobSpec

#: At most this many folders beside a run directory are read, in descending order of their names.
SIBLINGS = 50
_RESULT = f"{RESULT_STEP}/COMMIT.json"


class Finished(NamedTuple):
    """A finished run. Tuples compare by age: the newest run is the greatest."""

    date: dt.date
    hour: str
    modified: float
    location: str
    routed: bool  # whether its rows were sent to tasks


def newest(run: RunDirectory, spec: JobSpec) -> list[Finished]:
    """The finished runs of the same job, newest first; none if the spec asks for nothing of theirs.

    Runs of the same job have the same name and the same key columns. The newer run has the later date; of equal dates
    the later commit of its result; then the later name. Folders that cannot be read are passed over.
    """
    if not plans_from(spec, "last_run"):
        return []
    found = (_finished(location, spec) for location in siblings(run))
    return sorted((one for one in found if one is not None), reverse=True)


def last_histogram(location: str) -> Histogram:
    """The histogram of a finished run over all of its stages.

    Raises:
        RunDirectoryError: the run directory does not exist any more.
        DocumentError: its report cannot be read.
    """
    run = RunDirectory(location)
    return run.report(max(0, run.committed_stages() - 1)).histogram


def siblings(run: RunDirectory) -> list[str]:
    """Locations of the folders beside a run directory, in descending order of their names."""
    parent = run.root.rpartition("/")[0]
    try:
        entries = run.fs.ls(parent, detail=True)
    except OSError:
        return []
    roots = sorted((str(one["name"]).rstrip("/") for one in entries if one["type"] == "directory"), reverse=True)
    others = [root for root in roots if root != run.root][:SIBLINGS]
    return [as_written(run.fs, str(run), root) for root in others]


def _finished(location: str, spec: JobSpec) -> Finished | None:
    try:
        run = RunDirectory(location)
        if not run.exists(_RESULT):
            return None
        job = run.job()
        if (job.spec.name, job.spec.key) != (spec.name, spec.key):
            return None
        routed = run.plan(max(0, run.committed_stages() - 1)).traits.in_tasks
        return Finished(job.date, job.hour or "", _modified(run), location, routed)
    except (SkewlessError, OSError):
        return None


def _modified(run: RunDirectory) -> float:
    """When its result was committed, in seconds since 1970; 0 if the file system does not record it."""
    try:
        moment: dt.datetime = run.fs.modified(f"{run.root}/{_RESULT}")
    except NotImplementedError:
        return 0.0
    return moment.timestamp()
