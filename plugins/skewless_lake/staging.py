"""Staging a committed result in the table that it is to be published in. It needs no Spark."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

import pyarrow as pa

from skewless.documents.job import Job
from skewless.run.directory import RunDirectory
from skewless_lake.formats import table_format
from skewless_lake.new_files import ResultFile, all_nullable
from skewless_lake.publication import summary_of
from skewless_lake.refusals import told_plainly
from skewless_lake.staged import BEGUN, OutputPart, StagedResult, TableFiles


def stage_result(run: RunDirectory, columns: pa.Schema, files: Sequence[ResultFile], now: dt.datetime) -> StagedResult:
    """Write a committed result into new files of the output's table, so that no reader of it sees them yet.

    Raises:
        SpecError: the table does not fit the result.
        UnreachableError: the store or the catalog of the table does not answer.
    """
    job, columns = run.job(), all_nullable(columns)

    def begin(paths: Sequence[str]) -> None:
        """Note what is about to be written: a prune removes it if it is never published."""
        run.write_once(f"{BEGUN}/{uuid.uuid4()}.json", TableFiles(paths=tuple(paths)))

    with told_plainly(job.output_path):
        return table_format(job.spec.output).stage(OutputPart.of(job), columns, files, summary_of(run, now), begin)


def staged_paths(job: Job, staged: StagedResult) -> dict[str, int]:
    """Where the files of a staged result can be read, as its table has them now, with the bytes of each.

    Raises:
        RunDirectoryError: the table has other files, or they are gone.
        UnreachableError: the store or the catalog of the table does not answer.
    """
    with told_plainly(job.output_path):
        return table_format(job.spec.output).staged_paths(OutputPart.of(job), staged)
