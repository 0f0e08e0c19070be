"""The earlier runs of a job, published results that are out of date, and parts without a result.

Results are listed by the manifests of published folders, or by the history of a table.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.errors import SkewlessError, SpecError
from skewless.planner.first_plan import plans_from
from skewless.publication.records import Identity, identity_of, manifest_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.folder import absolute_root, as_written
from skewless.run.step_names import last_step_of
from skewless.spec.part import Part, hours_of, parts_between, parts_until
from skewless.spec.spec import JobSpec
from skewless.standing.parts import Listed, changed_parts, covered_parts
from skewless_lake.publication import published_parts
from skewless_lake.staged_files import OutputPart
from skewless_spark.sources.locations import output_location
from skewless_spark.windows.part_files import TableRewrites, files_of_parts

#: At most this many folders beside a run directory are read, in descending order of their names.
SIBLINGS = 50


def newest_in_tasks(run: RunDirectory, spec: JobSpec, most: int) -> tuple[str, ...]:
    """The newest finished runs of the same job whose rows were sent to tasks; none if the spec asks for none of them.

    Runs of the same job have the same name and the same key columns. The newer run has the later part; of equal parts
    the later name. Folders that cannot be read are passed over.
    """
    finished = []
    for location in siblings(run) if plans_from(spec, "last_run") else ():
        try:
            earlier = RunDirectory(location)
            if not earlier.exists(f"{RESULT_STEP}/COMMIT.json"):
                continue
            job, last = earlier.job(), max(0, earlier.committed_stages() - 1)
            if (job.spec.name, job.spec.key) == (spec.name, spec.key) and earlier.plan(last).traits.in_tasks:
                finished.append((job.date, job.hour or "", location))
        except (SkewlessError, OSError):
            continue
    return tuple(location for *_, location in sorted(finished, reverse=True)[:most])


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


#: So many parts before that of a run are looked at. If none of them is published, the job is new there.
LOOKS_BACK = 400


class StaleResult(NamedTuple):
    """A published result that is not what a run of its part would publish now."""

    part: Part
    """The day, or the hour, that it is published under."""
    reasons: dict[str, tuple[str, ...]]
    """What changed, in words, by the name of the part of the input; "" where that is not known."""
    run_name: str
    """Of the run that computes it again. It stays the same until the result is replaced or the input changes, so that
    whoever begins again goes on with it."""


def restating_spec(spec: JobSpec, where: str) -> JobSpec:
    """The spec by which parts are computed again: what came late counts, whatever the spec says of nights.

    Raises:
        SpecError: the job keeps no states, or publishes nothing.
    """
    if not last_step_of(spec).publishes:
        raise SpecError.saying(f"{where}, field shadow", "its runs publish nothing", "remove it to restate results")
    if spec.input.at == "{date}":
        field, came = f"{spec.field_of(spec.input)}.at", "{date}, by which each day reads what it has read"
        hint = f"restate with --set {field}=latest"
        raise SpecError(f"{where}, field {field}", "latest, where days are computed again", came, hint)
    if spec.window is None:
        raise SpecError(where, "a job that keeps states", "one without", "add window: 7, for example, or window: 1")
    return spec.model_copy(update={"window": spec.window.model_copy(update={"late": "recompute"})})


def find_stale(
    spec: JobSpec, days: tuple[dt.date, dt.date], root: str, where: str, runs: str | None = None
) -> tuple[list[StaleResult], int]:
    """Compare published results with the input that they were made of. Files are listed, and nothing is written.

    Args:
        days: the first and the last day of published results to look at.
        runs: the folder of the job's runs, where run directories are looked for that are not where they were.

    Returns:
        The results that are out of date, oldest first, and how many are up to date. Results that were made without a
        window are neither.
    """
    results = [
        (part, version, by.run, _job_of(by, runs))
        for part, version, by in published_results(spec, _parts(spec, *days), root, where)
    ]
    windows = [job.window for *_, job in results if job and job.window]
    covered = sorted({Part.named(name) for window in windows for name in covered_parts(window)})
    everything = None if spec.covered.lengths[-1] is None else covered
    now = files_of_parts(spec, covered[-1], everything, root, where)[0] if covered else ()
    listed = {files.part.name: Listed(files.found(), files.difference) for files in now}
    made_of_files = (file for window in windows for part in window.parts for file in part.files)
    rewrites = TableRewrites.since(spec, now, made_of_files)
    stale, up_to_date = [], 0
    for part, version, run, job in results:
        window = job.window if job else None
        if job is None:
            gone = f"the run directory {run} is gone, so it is not known what the result was made of"
            reasons: dict[str, tuple[str, ...]] = {"": (gone,)}
        elif window is None:
            continue
        else:
            # Of a table: as made of the files that hold its rows now.
            made_of = tuple(rewrites.followed(part) for part in window.parts) if rewrites else window.parts
            reasons = changed_parts(window.model_copy(update={"parts": made_of}), listed)
        if reasons:
            read = {*(covered_parts(window) if window else ()), *reasons}
            inputs = sorted((name, sorted(map(list, listed[name].files))) for name in read & listed.keys())
            text = json.dumps([version, spec.digest(), sorted(read), inputs])
            run_name = f"restate__{part.name}__{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            stale.append(StaleResult(part, reasons, run_name))
        else:
            up_to_date += 1
    return stale, up_to_date


def _parts(spec: JobSpec, first: dt.date, last: dt.date) -> tuple[Part, ...]:
    zone = spec.schedule.timezone
    if spec.schedule.unit == "day":
        return parts_between(Part(first), Part(last), zone)
    return parts_between(Part(first, hours_of(first, zone)[0]), Part(last, hours_of(last, zone)[-1]), zone)


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


def published_results(
    spec: JobSpec, parts: Sequence[Part], root: str, where: str
) -> Iterator[tuple[Part, str, Identity]]:
    """Those of some parts that are published, each with the name of its version and who has published it."""
    if spec.output.in_catalog and parts:
        path = output_location(spec, parts[-1], root, where)
        versions = published_parts(OutputPart(spec.output, path, absolute_root(root), parts[-1]))
        yield from ((part, *versions[part.name]) for part in parts if part.name in versions)
        return
    for part in parts:
        manifest = manifest_of(f"{output_location(spec, part, root, where)}/{part.folder(spec.output.partition)}")
        if manifest is not None:
            yield part, manifest.name, manifest.by


def skipped_parts(run: RunDirectory, spec: JobSpec, part: Part, root: str, where: str) -> tuple[Part, ...]:
    """The parts after the last published one before a part that its schedule has, and for which no run was begun.

    Args:
        run: the new run's directory; begun runs are looked for beside it.

    Returns:
        Oldest first; none if nothing is published before the part.
    """
    before = parts_until(part, min(LOOKS_BACK, part.date.toordinal()), spec.schedule.timezone)[:-1]
    if last_step_of(spec).publishes:
        newest = next((candidate for candidate, *_ in published_results(spec, before[::-1], root, where)), None)
    else:  # only its runs tell how far it has come
        newest = max((candidate for candidate in _begun(run, spec) if candidate in before), default=None)
    if newest is None:
        return ()
    between = [candidate for candidate in before if candidate > newest and spec.schedule.has_run_for(candidate)]
    begun = _begun(run, spec) if between else set()
    return tuple(candidate for candidate in between if candidate not in begun)


def _begun(run: RunDirectory, spec: JobSpec) -> set[Part]:
    begun = set()
    for location in siblings(run):
        try:
            job = RunDirectory(location).job()
        except (SkewlessError, OSError):
            continue
        if job.spec.name == spec.name:
            begun.add(job.part)
    return begun
