"""The run directories below a folder of runs, as retention sees them: small facts of thousands of runs."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from skewless.documents.job import Job
from skewless.errors import SkewlessError
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.folder import MAKING
from skewless.run.publication import Publication, publication_of
from skewless.run.written_path import as_written
from skewless.spec.input import PINNED
from skewless.spec.part import Part
from skewless.spec.result import Output

#: How the name of a folder ends that does not belong to its group yet.
_MAKING = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(MAKING)}\Z")


class FoundRun(NamedTuple):
    """A run directory as it was found.

    Attributes:
        run: the directory.
        part: what it computes.
        output_path: the folder or the table of its published results.
        of_table: whether it is a table.
        turn: its turn.
        grace_hours: as its spec has it.
        finished: whether its result has committed.
        publication: the record of its publication, if it was published.
        last_sign: when its youngest file was changed; None if the file system does not say.
        files: its files, with their sizes.
    """

    run: RunDirectory
    part: Part
    output_path: str
    of_table: bool
    turn: int
    grace_hours: float
    finished: bool
    publication: Publication | None
    last_sign: dt.datetime | None
    files: dict[str, int]


def folders_in(fs: Any, root: str) -> list[str]:
    """The folders in a folder; none where it cannot be listed."""
    try:
        return sorted(str(one["name"]).rstrip("/") for one in fs.ls(root, detail=True) if one["type"] == "directory")
    except OSError:
        return []


def runs_in(fs: Any, runs_folder: str, folder: str) -> list[FoundRun]:
    """The runs of one job.

    Args:
        fs: the file system.
        runs_folder: the folder of all jobs, as the user wrote it.
        folder: the folder of the job, as the file system knows it.
    """
    read = (_read(as_written(fs, runs_folder, root)) for root in folders_in(fs, folder))
    return [one for one in read if one is not None]


def unmade_folders(fs: Any, folder: str, before: dt.datetime) -> Iterator[str]:
    """Folders of runs that were being made when somebody was killed, and have not changed since a moment."""
    for path in folders_in(fs, folder) if isinstance(fs, LocalFileSystem) else ():
        with suppress(FileNotFoundError):  # it has just got its name
            if _MAKING.search(path) and os.lstat(path).st_ctime < before.timestamp():
                yield path


def _read(location: str) -> FoundRun | None:
    """A run directory; None if it cannot be read: what nobody understands, nobody removes."""
    try:
        run = RunDirectory(location)
        found = _files(run)
        if f"{run.root}/job.json" not in found:
            return None
        job = run.fields("job.json", Job)
        part = Part(dt.date.fromisoformat(job["date"]), job.get("hour"))
        turn, output_path = int(job.get("turn", 0)), str(job["output_path"])
        grace_hours = float(job["spec"]["output"].get("grace_hours", Output.model_fields["grace_hours"].default))
        of_table = job["spec"]["output"]["format"] in PINNED
        publication, finished = publication_of(run), run.commit_of(RESULT_STEP) is not None
    except (SkewlessError, OSError, LookupError, TypeError, ValueError):
        return None
    known = [moment for _, moment in found.values() if moment is not None]
    last_sign = max(known) if len(known) == len(found) else None
    sizes = {path: size for path, (size, _) in found.items()}
    return FoundRun(run, part, output_path, of_table, turn, grace_hours, finished, publication, last_sign, sizes)


def _files(run: RunDirectory) -> dict[str, tuple[int, dt.datetime | None]]:
    """Size and last change of each file of a run."""
    if not isinstance(run.fs, LocalFileSystem):
        return {
            str(path): (int(facts.get("size") or 0), _moment(facts))
            for path, facts in run.fs.find(run.root, detail=True).items()
        }
    # fsspec takes ten times as long for a local folder, and there are thousands.
    found: dict[str, tuple[int, dt.datetime | None]] = {}
    waiting = [run.root]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    facts = entry.stat(follow_symlinks=False)
                    found[entry.path] = facts.st_size, dt.datetime.fromtimestamp(facts.st_mtime, dt.UTC)
    return found


def _moment(facts: dict[str, Any]) -> dt.datetime | None:
    """When a file was last changed, as far as its file system says: seconds, or a time."""
    for name in ("mtime", "LastModified", "last_modified", "updated"):
        given = facts.get(name)
        if isinstance(given, dt.datetime):
            return given if given.tzinfo else given.replace(tzinfo=dt.UTC)
        if isinstance(given, int | float):
            return dt.datetime.fromtimestamp(given, dt.UTC)
    return None
