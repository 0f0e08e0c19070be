"""Pruning of run directories, and of files that their runs have left in tables.

A run that is killed while it writes, whose result fails its audit, or that is superseded leaves files in its table that
no reader sees. Each attempt notes in the run directory what it is about to write (``staged.TableFiles``). So when the
run is pruned, just these files are looked up in the table, and those that it does not name are removed. No folder of
the table is listed, so files of other writers are never touched.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import identity_of, record_of
from skewless.run.retention import Fate, Limits, enact_fate, fates
from skewless_lake.formats import table_format
from skewless_lake.publication import shown_by_table
from skewless_lake.refusals import told_plainly
from skewless_lake.staged import BEGUN, STAGED, OutputPart, StagedResult, TableFiles


class LeftFiles(NamedTuple):
    """Files of a run in its table that no version of the table names, as its format names them; and whose they are."""

    job: Job
    digest: str
    paths: tuple[str, ...]


def prune_each(runs_folder: str, now: dt.datetime, limits: Limits, *, dry_run: bool) -> Iterator[Fate]:
    """Decide about the runs below a folder, and do it, run by run.

    Yields:
        What is done with each. A run whose table is away stays until another time.

    Raises:
        RunDirectoryError: the folder cannot be opened.
    """
    for fate in fates(runs_folder, now, limits, shown_by_table):
        left = None
        if fate.action != "keep" and fate.of_run:
            try:
                left = left_files(RunDirectory(fate.location))
                if left and not dry_run:
                    remove_left(left)
            except (SkewlessError, ImportError, OSError) as err:
                reason = f"what it has left in its table cannot be removed now: {err}"
                yield fate._replace(action="keep", reason=reason, files=(), size_bytes=0)
                continue
        if not dry_run:
            enact_fate(fate)
        if left and left.paths:
            also = f"{len(left.paths):,} files in {left.job.output_path}, which names none of them"
            yield fate._replace(reason=f"{fate.reason}; also {also}")
        else:
            yield fate


def left_files(run: RunDirectory) -> LeftFiles | None:
    """What a run that has ended, or that nobody works on any more, has left in its table; None without a table."""
    job = run.job()
    if not job.spec.output.is_table:
        return None
    target, digest = OutputPart.of(job), identity_of(run).job
    staged = {file.path for file in run.read(STAGED, StagedResult).files} if run.exists(STAGED) else set[str]()
    others = {path for name in _begun(run) for path in run.read(name, TableFiles).paths} - staged
    record = record_of(run)
    if record is not None and record.superseded is None:
        staged = set()
    tables = table_format(target.output)
    with told_plainly(job.output_path):
        table = tables.find_table(target)
        named_nowhere = tables.unnamed(table, others, staged, digest) if table is not None and others | staged else []
    return LeftFiles(job, digest, tuple(named_nowhere))


def remove_left(left: LeftFiles) -> None:
    """Remove them; it is no error if some are gone already."""
    target = OutputPart.of(left.job)
    with told_plainly(left.job.output_path):
        table_format(target.output).remove(target, left.paths, left.digest)


def _begun(run: RunDirectory) -> list[str]:
    """The records of attempts to stage, as paths in the run directory."""
    found = run.fs.find(f"{run.root}/{BEGUN}")
    return sorted(f"{BEGUN}/{str(path).rpartition('/')[2]}" for path in found if str(path).endswith(".json"))
