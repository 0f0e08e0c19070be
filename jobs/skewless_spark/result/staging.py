"""Stages the committed result of a run in the table that it is to be published in, and reads it back for the audit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from skewless.documents.commit import CommittedFile
from skewless.errors import RunDirectoryError
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.objects.location import open_location
from skewless_lake.staged import STAGED, OutputPart, StagedResult
from skewless_lake.staging import ResultFile, batches_of, stage_result, staged_paths
from skewless_spark.session.file_systems import spark_reads
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.sources.reading import scanned_files
from skewless_spark.sources.worker_files import read_in_workers
from skewless_spark.states.committed_files import RESULT, noted_schema, readable


def staged(run: RunDirectory) -> StagedResult:
    """What is staged of a run's result, staged now if it has not been.

    Two attempts may stage at the same time: the record of the first one counts, and no reader sees what the other one
    has written.

    Raises:
        SpecError: the table does not fit the result.
    """
    if not run.exists(STAGED):
        files = run.committed(RESULT_STEP).of_kind(RESULT)
        columns = _columns(run, files[0])
        sources = [ResultFile(file.rows, partial(_batches, run, file, columns)) for file in files]
        run.write_once(STAGED, stage_result(run, columns, sources, dt.datetime.now(tz=dt.UTC)))
    return run.read(STAGED, StagedResult)


def staged_frame(spark: SparkSession, run: RunDirectory, result: StagedResult) -> DataFrame:
    """The rows of a staged result, as the table has them, without the columns that name the part.

    Raises:
        RunDirectoryError: the table holds other files for the part than were staged.
    """
    job = run.job()
    files, names = staged_paths(job, result), list(OutputPart.of(job).values)
    if not files:
        file = run.committed(RESULT_STEP).of_kind(RESULT)[0]
        return spark.createDataFrame(cast("list[Row]", []), from_arrow_schema(_columns(run, file)))
    path = next(iter(files))
    fs, inner = open_location(path)
    with fs.open(inner, "rb") as opened:
        schema = from_arrow_schema(_plain(pq.read_schema(opened), names))
    if spark_reads(spark, path):
        return scanned_files(spark, "parquet", schema, list(files))
    return read_in_workers(spark, schema, list(files.items()))


def _columns(run: RunDirectory, file: CommittedFile) -> pa.Schema:
    """The columns of a result, as Spark has noted them: only that says whether a time is of a zone."""
    noted: StructType | None = noted_schema(run, file)
    if noted is None:
        raise RunDirectoryError(run.path(file.path), "a note of its columns", "none", "begin a new run")
    return to_arrow_schema(noted, timezone="UTC")


def _batches(run: RunDirectory, file: CommittedFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    run.verify(file)
    with readable(run, file), run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
        for batch in batches_of(open_parquet(opened)):
            yield batch.cast(columns)


def _plain(found: pa.Schema, leave_out: list[str]) -> pa.Schema:
    return pa.schema([pa.field(one.name, one.type, nullable=True) for one in found if one.name not in leave_out])
