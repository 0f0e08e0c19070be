"""Pruning of run directories, and of files that their runs have left in tables.

A run that is killed while it writes, whose result fails its audit, or that is superseded leaves files in its table that
no reader sees. Each attempt notes in the run directory what it is about to write (``staged.TableFiles``). So when the
run is pruned, just these files are looked up in the table, and those that it does not name are removed. No folder of
the table is listed, so files of other writers are never touched.
"""

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

from skewless.errors import SkewlessError
from skewless.publication.records import identity_of, record_of
from skewless.publication.retention import Fate, Limits, enact_fate, fates
from skewless.run.directory import RunDirectory
from skewless_lake.formats import table_format, told_plainly
from skewless_lake.partition_output import Versions
from skewless_lake.publication import shown_by_table
from skewless_lake.staged_files import BEGUN, OutputPart, TableFiles, staged_parts


class LeftFiles(NamedTuple):
    """Files of a run in a table that no version of the table names, as its format names them."""

    target: OutputPart
    paths: tuple[str, ...]


def prune_each(runs_folder: str, now: dt.datetime, limits: Limits, *, dry_run: bool) -> Iterator[Fate]:
    """Decide about the runs below a folder, and do it, run by run.

    Yields:
        What is done with each. A run whose table is away stays until another time.
    """
    for fate in fates(runs_folder, now, limits, shown_by_table):
        left: list[LeftFiles] = []
        if fate.action != "keep" and fate.of_run:
            try:
                left = left_files(RunDirectory(fate.location))
                for one in () if dry_run else left:
                    remove_left(one)
            except (SkewlessError, ImportError, OSError) as err:
                reason = f"what it has left in its table cannot be removed now: {err}"
                yield fate._replace(action="keep", reason=reason, files=(), size_bytes=0)
                continue
        if not dry_run:
            enact_fate(fate)
        also = [f"{len(one.paths):,} files in {one.target.path}, which names none of them" for one in left if one.paths]
        yield fate._replace(reason="; also ".join([fate.reason, *also]))


def left_files(run: RunDirectory) -> list[LeftFiles]:
    """What a run that has ended, or that nobody works on any more, has left in each of its tables; none without one."""
    job, record, digest = run.job(), record_of(run), identity_of(run).job
    if job.spec.output.table is not None:
        at = OutputPart.of(job)
        with told_plainly(at.path):
            return [LeftFiles(at, Versions(at).left_by(identity_of(run)))]
    if not job.spec.output.is_table:
        return []
    listed = sorted(map(str, run.fs.find(f"{run.root}/{BEGUN}")))
    names = [path.rpartition("/")[2] for path in listed if path.endswith(".json")]
    begun = [run.read(f"{BEGUN}/{name}", TableFiles) for name in names]
    last = {one.table: {file.path for file in one.files} for _, one in staged_parts(run)}
    tables, found = table_format(job.spec.output), list[LeftFiles]()
    for target in OutputPart.all_of(job):
        staged = last.get(target.path, set[str]())
        others = {path for one in begun if (one.table or job.output_path) == target.path for path in one.paths} - staged
        if record is not None and record.superseded is None:
            staged = set()
        with told_plainly(target.path):
            table = tables.find_table(target) if others | staged else None
            named_nowhere = tables.unnamed(table, others, staged, digest) if table is not None else []
        found.append(LeftFiles(target, tuple(named_nowhere)))
    return found


def remove_left(left: LeftFiles) -> None:
    """Remove them; it is no error if some are gone already."""
    with told_plainly(left.target.path):
        if left.target.output.table is not None:
            Versions(left.target).remove(left.paths)
        else:
            table_format(left.target.output).remove(left.target, left.paths)
