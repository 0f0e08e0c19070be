"""How long run directories are kept, and what of them.

A run directory holds evidence (documents, which are small) and material (states, backlog and result files, which are
large). The two newest finished runs of each job always stay, as the next run is warm-started from them, and so do
unfinished runs that somebody may still be working on. If a run's result is the published one of its day, only its
material is removed, as the result was copied out of it; its documents, pages and quality report stay as long as the
result. The manifest in the published folder, or the history of the table, says which run that is; the times of files do
not. Runs that failed, and runs whose day was published again since, are removed whole. Old versions of a day are
removed after ``output.grace_hours``, and what killed attempts left behind when it is old.
"""

import datetime as dt
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from skewless.document import Frozen
from skewless.documents.job import Job
from skewless.errors import SkewlessError
from skewless.publication.places import beside, left_drafts, past_grace, remove
from skewless.publication.records import (
    Identity,
    Publication,
    VersionManifest,
    identity_of,
    manifest_of,
    publication_of,
    published_path,
)
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import DOCUMENT, QUALITY_STEP, RESULT_STEP, RunDirectory, stage_step
from skewless.run.folder import MAKING, as_written, folders_in, folders_of_jobs
from skewless.spec.input import TABLES
from skewless.spec.part import Part

#: How the name of a folder ends that does not belong to its group yet.
_MAKING = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(MAKING)}\Z")


class FoundRun(NamedTuple):
    """A run directory as it was found."""

    run: RunDirectory
    part: Part
    output_path: str
    """The folder or the table of its published results."""
    of_table: bool
    turn: int
    grace_hours: float
    """As its spec has it; 0 of a table, which keeps its versions itself."""
    finished: bool
    publication: Publication | None
    """The record of its publication, if it was published."""
    last_sign: dt.datetime | None
    """When its youngest file was changed; None if the file system does not say."""
    files: dict[str, int]


def unmade_folders(fs: Any, folder: str, before: dt.datetime) -> Iterator[str]:
    """Folders of runs that were being made when somebody was killed, and have not changed since a moment."""
    for path in folders_in(fs, folder) if isinstance(fs, LocalFileSystem) else ():
        with suppress(FileNotFoundError):  # it has just got its name
            if _MAKING.search(path) and os.lstat(path).st_ctime < before.timestamp():
                yield path


def found_run(location: str) -> FoundRun | None:
    """A run directory; None if it cannot be read: what nobody understands, nobody removes."""
    try:
        run = RunDirectory(location)
        found = _files(run)
        if f"{run.root}/job.json" not in found:
            return None
        job = run.fields("job.json", Job)
        part = Part(dt.date.fromisoformat(job["date"]), job["hour"])
        turn, output_path = int(job["turn"]), str(job["output_path"])
        output = job["spec"]["output"]
        of_table = output["format"] in TABLES or bool(output.get("table"))  # which earlier releases had not
        grace_hours = 0.0 if of_table else float(output["grace_hours"])
        publication, finished = publication_of(run), run.commit_of(RESULT_STEP) is not None
    except (SkewlessError, OSError, LookupError, TypeError, ValueError):
        return None
    known = [moment for _, moment in found.values() if moment is not None]
    last_sign = max(known) if len(known) == len(found) else None
    sizes = {path: size for path, (size, _) in found.items()}
    return FoundRun(run, part, output_path, of_table, turn, grace_hours, finished, publication, last_sign, sizes)


def _files(run: RunDirectory) -> dict[str, tuple[int, dt.datetime | None]]:
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
    for name in ("mtime", "LastModified", "last_modified", "updated"):
        given = facts.get(name)
        if isinstance(given, dt.datetime):
            return given if given.tzinfo else given.replace(tzinfo=dt.UTC)
        if isinstance(given, int | float):
            return dt.datetime.fromtimestamp(given, dt.UTC)
    return None


#: As many as a warm start looks at: the last run, and the one before it to see how far keys drift.
KEPT_RUNS = 2
_LEFT = "left by somebody who was killed"


class Limits(Frozen):
    """The age at which a finished run, or an unfinished one since its last sign of life, may be removed."""

    finished: dt.timedelta = dt.timedelta(days=30)
    unfinished: dt.timedelta = dt.timedelta(days=7)


class Fate(NamedTuple):
    """What prune does with a run directory, a version of a day, or a folder that a killed attempt left."""

    location: str
    action: Literal["keep", "thin", "remove"]
    """``keep``; ``thin``, which removes states, backlog and result files; or ``remove``."""
    reason: str
    files: tuple[str, ...] = ()
    """Paths that are removed, as the file system knows them."""
    size_bytes: int = 0
    of_run: bool = True
    """Whether it is a run directory, and not a version of a day or a folder that somebody left."""

    @property
    def sentence(self) -> str:
        """One line for a log."""
        what = "" if self.action == "keep" else f" ({len(self.files):,} files, {self.size_bytes:,} bytes)"
        return f"{self.action} {self.location}{what}: {self.reason}"


def fates(
    runs_folder: str,
    now: dt.datetime,
    limits: Limits,
    shown_by_table: Callable[[Job], Mapping[str, Identity]] | None = None,
) -> list[Fate]:
    """The fate of each run below a folder of runs (``ROOT/runs/JOB/RUN``), job by job. Changes nothing.

    ``shown_by_table`` tells of a job that publishes in a table which run's result the table shows, by the part's name.
    Without it, or if it fails, each run that has published in a table counts as one whose result is shown.
    """
    fs, folders = folders_of_jobs(runs_folder)
    found = ([found_run(as_written(fs, runs_folder, run)) for run in folders_in(fs, folder)] for folder in folders)
    jobs = [[one for one in job if one is not None] for job in found]
    runs = [one for job in jobs for one in job]
    current = _current([one for one in runs if not one.of_table]) | _in_tables(runs, shown_by_table)
    fates_of_runs = [fate for job in jobs for fate in _fates(job, current, now, limits)]
    unmade = (
        _gone(Path(path), _LEFT) for folder in folders for path in unmade_folders(fs, folder, now - limits.unfinished)
    )
    return [*fates_of_runs, *unmade, *_beside(runs, now, limits)]


def enact_fate(fate: Fate) -> None:
    """Do what a fate says. It is not an error if something is gone already."""
    if fate.action == "keep":
        return
    if not fate.of_run:
        remove(Path(fate.location))
        return
    run = RunDirectory(fate.location)
    if fate.action == "remove":
        # The result's commit first, so that no warm start takes half a run for a finished one; the job last,
        # so that what an interruption leaves is still known as a run, and goes next time.
        _remove(run, f"{run.root}/{RESULT_STEP}/COMMIT.json")
        for path in sorted(fate.files, key=lambda path: path == f"{run.root}/job.json"):
            _remove(run, path)
        while run.fs.exists(run.root):
            with suppress(FileNotFoundError):  # another prune was faster with one of its folders
                run.fs.rm(run.root, recursive=True)
        return
    for path in fate.files:
        _remove(run, path)


def _remove(run: RunDirectory, path: str) -> None:
    with suppress(FileNotFoundError):  # an earlier prune that was interrupted, or one beside this
        run.fs.rm_file(path)


def _fates(runs: Sequence[FoundRun], current: set[str], now: dt.datetime, limits: Limits) -> Iterator[Fate]:
    nights = (one for one in runs if one.finished)
    newest = sorted(nights, key=order_of, reverse=True)
    # Runs whose rows were combined where they were read are no guide to a warm start: those before them are.
    routed = itertools.islice((one for one in newest if _routed(one.run)), KEPT_RUNS)
    kept = {one.run.root for one in [*newest[:KEPT_RUNS], *routed]}
    for one in runs:
        try:
            yield _fate(one, one.run.root in kept, one.run.root in current, now, limits)
        except (SkewlessError, FileNotFoundError) as err:
            yield Fate(str(one.run), "keep", f"it cannot be read, or another prune is removing it: {err}")


def _routed(run: RunDirectory) -> bool:
    """Whether rows were routed in it; one whose last plan cannot be read is not known to be no guide."""
    try:
        last = max(0, run.committed_stages() - 1)
        return bool(run.fields(f"plans/{last:04d}.json", RoutingPlan)["engine"] != "combine")
    except (SkewlessError, LookupError):
        return True


def order_of(one: FoundRun) -> tuple[dt.date, str, float]:
    """Ascends to the newest run of the last part."""
    return one.part.date, one.part.hour or "", one.last_sign.timestamp() if one.last_sign else 0.0


def _fate(one: FoundRun, newest: bool, current: bool, now: dt.datetime, limits: Limits) -> Fate:
    location = str(one.run)
    limit = limits.finished if one.finished else limits.unfinished
    if newest:
        return Fate(location, "keep", f"one of the {KEPT_RUNS} newest finished runs, for the next one's warm start")
    if one.last_sign is None:
        return Fate(location, "keep", "its file system does not say how old it is")
    age = now - one.last_sign
    if age < limit:
        state = "finished" if one.finished else "unfinished"
        return Fate(location, "keep", f"{state}, and {age.days} days old of {limit.days}")
    if not current:
        gone = "its day was published again since, or it never was" if one.finished else "it did not end"
        return Fate(location, "remove", f"{age.days} days old, and {gone}", tuple(one.files), sum(one.files.values()))
    spare = _material(one)
    if not spare:
        return Fate(location, "keep", "its result is the published one, and only documents are left of it")
    reason = f"{age.days} days old; its result is the published one of {one.part}, so its documents stay"
    return Fate(location, "thin", reason, tuple(spare), sum(spare.values()))


def _material(one: FoundRun) -> dict[str, int]:
    """All files of attempts that no commit lists as a document, with their sizes."""
    kept: set[str] = set()
    for step in (*map(stage_step, range(one.run.committed_stages())), RESULT_STEP, QUALITY_STEP):
        commit = one.run.commit_of(step)
        kept |= {f"{one.run.root}/{file.path}" for file in commit.of_kind(DOCUMENT)} if commit else set()
    attempts = tuple(f"{one.run.root}/{folder}/" for folder in ("stages", RESULT_STEP, QUALITY_STEP))
    return {
        path: size
        for path, size in one.files.items()
        if path.startswith(attempts) and "/attempts/" in path and path not in kept
    }


def _current(runs: Sequence[FoundRun]) -> set[str]:
    """The roots of the runs whose result is the published one, by the manifests in the published folders.

    Where there is none that can be read, as the disk is away, each run that has published the day may be the one.
    """
    found, manifests = set(), dict[str, VersionManifest | None]()
    for one in runs:
        if one.publication is None and not one.finished:
            continue
        try:
            path = one.publication.path if one.publication else published_path(one.run.job())
        except SkewlessError:  # another prune was faster
            continue
        if path not in manifests:
            manifests[path] = manifest_of(path)
        manifest = manifests[path]
        if one.publication is not None if manifest is None else _published(one, manifest):
            found.add(one.run.root)
    return found


def _in_tables(runs: Sequence[FoundRun], shown_by_table: Callable[[Job], Mapping[str, Identity]] | None) -> set[str]:
    """The roots of the runs whose result a table shows, by its history.

    Where nobody can ask it, or it no longer knows (its snapshots were expired), each run that has published the part
    may be the one.
    """
    found, tables = set(), dict[str, Mapping[str, Identity]]()
    for one in runs:
        if not one.of_table or (one.publication is None and not one.finished):
            continue
        try:
            if one.output_path not in tables:
                tables[one.output_path] = shown_by_table(one.run.job()) if shown_by_table else {}
            shown, me = tables[one.output_path].get(one.part.name), identity_of(one.run)
        except (SkewlessError, ImportError, OSError):  # the table is away, its library, or another prune was faster
            tables.setdefault(one.output_path, {})
            shown = None
        if one.publication is not None if shown is None else shown.job == me.job:
            found.add(one.run.root)
    return found


def _published(one: FoundRun, manifest: VersionManifest) -> bool:
    try:
        return manifest.turn == one.turn and manifest.by.job == identity_of(one.run).job
    except OSError:  # it went just now
        return False


def _beside(runs: Sequence[FoundRun], now: dt.datetime, limits: Limits) -> Iterator[Fate]:
    """Of the outputs of runs: versions past their grace, and what was left beside them."""
    grace_hours: dict[str, float] = {}
    for one in runs:
        grace_hours[one.output_path] = max(one.grace_hours, grace_hours.get(one.output_path, 0.0))
    for output_path, hours in sorted(grace_hours.items()):
        if "://" in output_path:
            continue
        sibling = beside(output_path)
        for version in past_grace(sibling, now, dt.timedelta(hours=hours)):
            yield _gone(version.folder, f"published until {version.since:%Y-%m-%d %H:%M} UTC, {hours:g} hours of grace")
        for draft in left_drafts(sibling, now - limits.unfinished):
            yield _gone(draft, f"{_LEFT}, {limits.unfinished.days} days old")


def _gone(folder: Path, reason: str) -> Fate:
    files: dict[str, int] = {}
    for inner, _, names in os.walk(folder):  # which passes over what a publication or another prune has just removed
        for name in sorted(names):
            with suppress(FileNotFoundError):
                files[f"{inner}/{name}"] = os.lstat(f"{inner}/{name}").st_size
    return Fate(str(folder), "remove", reason, tuple(files), sum(files.values()), of_run=False)
