"""Staging a committed result in the table that it is to be published in. It needs no Spark."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

import pyarrow as pa

from skewless.documents.job import Job
from skewless.run.directory import RunDirectory
from skewless.run.objects.location import plain_path
from skewless_lake.columns import ResultFile, all_nullable
from skewless_lake.publication import summary_of
from skewless_lake.refusals import told_plainly
from skewless_lake.staged import BEGUN, OutputPart, StagedResult, TableFiles


def stage_result(run: RunDirectory, columns: pa.Schema, files: Sequence[ResultFile], now: dt.datetime) -> StagedResult:
    """Write a committed result into new files of the output's table, so that no reader of it sees them yet.

    Args:
        run: its directory.
        columns: of the result.
        files: of the result.
        now: the time.

    Raises:
        SpecError: the table does not fit the result.
        UnreachableError: the store or the catalog of the table does not answer.
    """
    job, columns = run.job(), all_nullable(columns)

    def begin(paths: Sequence[str]) -> None:
        """Note what is about to be written: a prune removes it if it is never published."""
        run.write_once(f"{BEGUN}/{uuid.uuid4()}.json", TableFiles(paths=tuple(paths)))

    with told_plainly(job.output_path):
        if job.spec.output.format == "iceberg":
            from skewless_lake.iceberg import staging as iceberg  # noqa: PLC0415  # an extra

            return iceberg.stage(OutputPart.of(job), columns, files, summary_of(run, now), begin)
        from skewless_lake.delta import staging as delta  # noqa: PLC0415  # an extra

        return delta.stage(OutputPart.of(job), columns, files, begin)


def staged_paths(job: Job, staged: StagedResult) -> dict[str, int]:
    """Where the files of a staged result can be read, as its table has them now, with the bytes of each.

    Raises:
        RunDirectoryError: the table has other files, or they are gone.
        UnreachableError: the store or the catalog of the table does not answer.
    """
    if job.spec.output.format == "iceberg":
        from skewless_lake.iceberg import staging as iceberg  # noqa: PLC0415  # an extra
        from skewless_lake.iceberg.tables import find_table  # noqa: PLC0415  # likewise

        target = OutputPart.of(job)
        with told_plainly(job.output_path):
            _, files = iceberg.staged_files(target, staged, find_table(target))
        return {plain_path(file.file_path): file.file_size_in_bytes for file in files}
    return {f"{staged.location}/{file.path}": file.size_bytes for file in staged.files}
