"""Finds published results that are out of date, as a part of their window has changed, and parts without a result.

Results are found by the manifests of published folders, or in the history of a table.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.documents.window import JobWindow
from skewless.errors import InputError, SkewlessError, SpecError
from skewless.run.directory import RunDirectory
from skewless.run.folder import absolute_root
from skewless.run.publication.records import Identity, identity_of, manifest_of
from skewless.run.step_names import last_step_of
from skewless.spec.part import Part, hours_of, parts_between, parts_until
from skewless.spec.spec import JobSpec
from skewless.standing.changes import FileName, Listed, PartReading, changed_parts, covered_parts, readings
from skewless_lake.publication import published_parts
from skewless_lake.staged import OutputPart
from skewless_spark.prepare.earlier_runs import siblings
from skewless_spark.prepare.freezing import freeze
from skewless_spark.sources.locations import output_location
from skewless_spark.windows.found import sees_order
from skewless_spark.windows.part_files import PartFiles, files_of_parts
from skewless_spark.windows.table_parts import TablePart, TableRewrites

#: Of a result whose run is gone nothing can be compared.
_UNKNOWN = "the run directory {run} is gone, so it is not known what the result was made of"


class StaleResult(NamedTuple):
    """A published result that is not what a run of its day would publish now.

    Attributes:
        part: the day, or the hour, that it is published under.
        reasons: what changed, in words, by the name of the part of the input; "" where that is not known.
        run_name: of the run directory that computes it again. It stays the same until the result is replaced or the
            input changes, so that whoever begins again goes on with it.
    """

    part: Part
    reasons: dict[str, tuple[str, ...]]
    run_name: str


class Restatement(NamedTuple):
    """What is to be computed again.

    Attributes:
        without_window: published results of a release of the spec that had no window, which are left alone.
    """

    stale: tuple[StaleResult, ...]
    up_to_date: int
    without_window: tuple[Part, ...]


class _Published(NamedTuple):
    part: Part
    version: str
    run: str
    job: Job | None


def restating_spec(spec: JobSpec, where: str) -> JobSpec:
    """The spec by which days are computed again: what came late counts, whatever the spec says of nights.

    Raises:
        SpecError: the job keeps no states, or publishes nothing.
    """
    if not last_step_of(spec).publishes:
        raise SpecError.saying(f"{where}, field shadow", "its runs publish nothing", "remove it to restate results")
    if spec.input.at == "{date}":
        raise SpecError(
            f"{where}, field input.at", "latest, where days are computed again",
            "{date}, by which each day reads what it has read", "restate with --set input.at=latest",
        )  # fmt: skip
    if spec.window is None:
        raise SpecError(where, "a job that keeps states", "one without", "add window: 7, for example, or window: 1")
    return spec.model_copy(update={"window": spec.window.model_copy(update={"late": "recompute"})})


def find_stale(
    spec: JobSpec, days: tuple[dt.date, dt.date], root: str, where: str, runs: str | None = None
) -> Restatement:
    """Compare published results with the input that they were made of. Files are listed, and nothing is written.

    Args:
        days: the first and the last day of published results to look at.
        runs: the folder of the job's runs, where run directories are looked for that are not where they were.

    Raises:
        InputError: the input cannot be listed.
    """
    parts = _parts(spec, *days)
    published = published_results(spec, parts, root, where)
    found = [_Published(part, version, by.run, _job_of(by, runs)) for part, version, by in published]
    wanted = sorted(
        {Part.named(name) for one in found if one.job and one.job.window for name in covered_parts(one.job.window)}
    )
    everything = None if spec.lengths[-1] is None else wanted
    now, _ = files_of_parts(spec, wanted[-1], everything, root, where) if wanted else ((), 0)
    listed = {files.part.name: Listed(files.found(), files.difference) for files in now}
    rewrites = _rewrites(spec, now, [one.job for one in found if one.job])
    stale, without = [], []
    for one in found:
        if one.job is None:
            reasons: dict[str, tuple[str, ...]] = {"": (_UNKNOWN.format(run=one.run),)}
        elif one.job.window is None:
            without.append(one.part)
            continue
        else:
            reasons = changed_parts(_followed(one.job.window, rewrites), listed)
        if reasons:
            stale.append(StaleResult(one.part, reasons, _run_name(spec, one, reasons, listed)))
    return Restatement(tuple(stale), len(found) - len(stale) - len(without), tuple(without))


def what_is_read(
    spec: JobSpec, stale: Sequence[StaleResult], root: str, where: str
) -> tuple[dict[Part, tuple[PartReading, ...]], dict[Part, Exception]]:
    """What computing each result reads, if they are computed in this order: a part is read by the first that needs it.

    Returns:
        That, and why others cannot be computed, as their files are missing.
    """
    read, found, left = set[str](), dict[Part, tuple[PartReading, ...]](), dict[Part, Exception]()
    for one in stale:
        try:
            job = freeze(spec, one.part.date, root, where, hour=one.part.hour)
        except InputError as err:
            left[one.part] = err
            continue
        found[one.part] = tuple(reading for reading in readings(job) if reading.part not in read)
        read |= {reading.part for reading in found[one.part]}
    return found, left


def _rewrites(spec: JobSpec, now: Sequence[PartFiles | TablePart], jobs: Sequence[Job]) -> TableRewrites | None:
    table = next((one.table for one in now if isinstance(one, TablePart)), None)
    if table is None or sees_order(spec):
        return None
    parts = [part for job in jobs if job.window for part in job.window.parts]
    known = {FileName(file.path, file.version) for part in parts for file in part.files}
    gone = known - {FileName(file.path, file.version) for one in now for file in one.found()}
    return TableRewrites.of(table, str(spec.input.parts), gone) if gone else None


def _followed(window: JobWindow, rewrites: TableRewrites | None) -> JobWindow:
    """A window as made of the files that hold the rows of its own now."""
    if rewrites is None:
        return window
    return window.model_copy(update={"parts": tuple(rewrites.followed(part) for part in window.parts)})


def _parts(spec: JobSpec, first: dt.date, last: dt.date) -> tuple[Part, ...]:
    if spec.schedule.unit == "day":
        return parts_between(Part(first), Part(last), spec.schedule.timezone)
    begin, end = (hours_of(day, spec.schedule.timezone) for day in (first, last))
    return parts_between(Part(first, begin[0]), Part(last, end[-1]), spec.schedule.timezone)


def published_results(
    spec: JobSpec, parts: Sequence[Part], root: str, where: str
) -> Iterator[tuple[Part, str, Identity]]:
    """Those of some parts that are published, each with the name of its version and who has published it."""
    return (_published_in_table if spec.output.is_table else _published_in_folder)(spec, parts, root, where)


def _published_in_folder(
    spec: JobSpec, parts: Sequence[Part], root: str, where: str
) -> Iterator[tuple[Part, str, Identity]]:
    for part in parts:
        manifest = manifest_of(Path(output_location(spec, part, root, where)) / part.folder(spec.output.partition))
        if manifest is not None:
            yield part, manifest.name, manifest.by


def _published_in_table(
    spec: JobSpec, parts: Sequence[Part], root: str, where: str
) -> Iterator[tuple[Part, str, Identity]]:
    if not parts:
        return
    path = output_location(spec, parts[-1], root, where)
    found = published_parts(OutputPart(spec.output, path, absolute_root(root), parts[-1]))
    for part in parts:
        if part.name in found:
            version, by = found[part.name]
            yield part, version, by


def _job_of(by: Identity, runs: str | None) -> Job | None:
    """The job of the run that published a version; None if its directory is neither where it was nor in ``runs``."""
    name = by.run.rpartition("/")[2]
    for location in (by.run, *([f"{runs}/{name}"] if runs else [])):
        try:
            run = RunDirectory(location)
            if run.exists("job.json") and identity_of(run).job == by.job:
                return run.job()
        except (SkewlessError, OSError):
            continue
    return None


def _run_name(
    spec: JobSpec, one: _Published, reasons: Mapping[str, tuple[str, ...]], listed: Mapping[str, Listed]
) -> str:
    covered = covered_parts(one.job.window) if one.job and one.job.window else []
    now = {name: [list(file) for file in sorted(listed[name].files)] for name in {*covered, *reasons} & listed.keys()}
    text = json.dumps([one.version, spec.digest(), sorted(reasons), sorted(now.items())])
    return f"restate__{one.part.name}__{hashlib.sha256(text.encode()).hexdigest()[:12]}"


#: So many parts before that of a run are looked at. If none of them is published, the job is new there.
LOOKS_BACK = 400


def skipped_parts(run: RunDirectory, spec: JobSpec, part: Part, root: str, where: str) -> tuple[Part, ...]:
    """The parts after the last published one before a part that its schedule has, and for which no run was begun.

    Args:
        run: the new run's directory; begun runs are looked for beside it.

    Returns:
        Oldest first; none if nothing is published before the part.
    """
    before = parts_until(part, min(LOOKS_BACK, part.date.toordinal()), spec.schedule.timezone)[:-1]
    if last_step_of(spec).publishes:
        newest = next((one for one, *_ in published_results(spec, before[::-1], root, where)), None)
    else:  # only its runs tell how far it has come
        newest = max((one for one in _begun(run, spec) if one in before), default=None)
    if newest is None:
        return ()
    between = [one for one in before if one > newest and spec.schedule.has_run_for(one)]
    begun = _begun(run, spec) if between else set()
    return tuple(one for one in between if one not in begun)


def _begun(run: RunDirectory, spec: JobSpec) -> set[Part]:
    found = set()
    for location in siblings(run):
        try:
            job = RunDirectory(location).job()
        except (SkewlessError, OSError):
            continue
        if job.spec.name == spec.name:
            found.add(job.part)
    return found
