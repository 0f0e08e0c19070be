"""The earlier runs of a job, beside its new run directory: what a warm start is made from."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from skewless.documents.stage_report import Histogram
from skewless.errors import SkewlessError
from skewless.planner.first_plan import applies
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.written_path import as_written
from skewless.spec.spec import JobSpec

#: Of the folders beside a run directory so many are looked at, those with the last names first.
SIBLINGS = 50
_RESULT = f"{RESULT_STEP}/COMMIT.json"


class _Candidate(NamedTuple):
    """A finished run; the newest is the greatest."""

    date: dt.date
    hour: str
    modified: float
    location: str


def last_two(run: RunDirectory, spec: JobSpec) -> tuple[str, ...]:
    """The newest two finished runs of the same job, newest first, as locations that fsspec opens.

    Of the same job are those of the same name and key columns. Newer is a later date, then a later
    commit of the result, then a later name. What cannot be read is none, and neither is a run whose
    rows were combined where they were read: its keys are counted, but it is not kept for their sake.

    Args:
        run: the new run's directory.
        spec: its spec.

    Returns:
        At most two; none where the spec wants no warm start or its policy makes none.
    """
    if not applies(spec):
        return ()
    found = (_candidate(location, spec) for location in _siblings(run))
    newest = sorted((one for one in found if one is not None), reverse=True)
    return tuple(one.location for one in newest[:2])


def last_histogram(location: str) -> Histogram:
    """What a finished run saw, in all its stages.

    Raises:
        RunDirectoryError: it is not there any more.
        DocumentError: it cannot be read.
    """
    run = RunDirectory(location)
    return run.report(max(0, run.committed_stages() - 1)).histogram


def _siblings(run: RunDirectory) -> list[str]:
    """Locations of the folders beside a run directory, those with the last names first."""
    parent = run.root.rpartition("/")[0]
    try:
        entries = run.fs.ls(parent, detail=True)
    except OSError:
        return []
    roots = sorted((str(one["name"]).rstrip("/") for one in entries if one["type"] == "directory"), reverse=True)
    others = [root for root in roots if root != run.root][:SIBLINGS]
    return [as_written(run.fs, str(run), root) for root in others]


def _candidate(location: str, spec: JobSpec) -> _Candidate | None:
    try:
        run = RunDirectory(location)
        if not run.exists(_RESULT):
            return None
        job = run.job()
        if (job.spec.name, job.spec.key) != (spec.name, spec.key):
            return None
        if run.plan(max(0, run.committed_stages() - 1)).engine == "combine":
            return None
        return _Candidate(job.date, job.hour or "", _modified(run), location)
    except (SkewlessError, OSError):
        return None


def _modified(run: RunDirectory) -> float:
    """When its result was committed, in seconds; 0 where the file system does not say."""
    try:
        moment: dt.datetime = run.fs.modified(f"{run.root}/{_RESULT}")
    except NotImplementedError:
        return 0.0
    return moment.timestamp()
