"""Stages the committed result of a run in the table that it is to be published in, and reads it back for the audit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from skewless.documents.commit import CommittedFile
from skewless.errors import RunDirectoryError, SpecError
from skewless.run.directory import RESULT_STEP, Attempt, RunDirectory
from skewless.run.objects.location import open_location
from skewless.spec.result import QUARANTINE_COLUMNS
from skewless_lake.staged import HELD, KEPT, STAGED, OutputPart, StagedResult, TableRule
from skewless_lake.staging import ResultFile, batches_of, stage_result, staged_paths
from skewless_spark.session.file_systems import spark_reads
from skewless_spark.session.versions import arrow_schema
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.sources.reading import scanned_files
from skewless_spark.sources.worker_files import read_in_workers
from skewless_spark.states.committed_files import QUARANTINED, RESULT, noted_schema, of_kinds, readable


def staged(run: RunDirectory) -> StagedResult:
    """What is staged of a run's result, staged now if it has not been.

    Two attempts may stage at the same time: the record of the first one counts, and no reader sees what the other one
    has written.

    Raises:
        SpecError: the table does not fit the result.
    """
    if not run.exists(STAGED):
        files = run.committed(RESULT_STEP).of_kind(RESULT)
        run.write_once(STAGED, _staged_in(run, OutputPart.of(run.job()), files, _columns(run, files[0])))
    return run.read(STAGED, StagedResult)


def _staged_in(
    run: RunDirectory, target: OutputPart, files: Sequence[CommittedFile], columns: pa.Schema
) -> StagedResult:
    sources = [ResultFile(file.rows, partial(_batches, run, file, columns)) for file in files]
    return stage_result(run, columns, sources, dt.datetime.now(tz=dt.UTC), target)


def stage_apart(
    run: RunDirectory, attempt: Attempt, files: Sequence[CommittedFile], audited: Sequence[TableRule]
) -> None:
    """Stage the keys that are published and those in quarantine, of a result that was found good.

    Args:
        attempt: at the validation, whose commit says which of what was staged is published.
        files: of both kinds, that the attempt has written; none if there are no keys in quarantine.
        audited: what the output's table has asked of each row of the result.

    Raises:
        SpecError: the table beside that of the output does not fit; or what either asks of its rows was not audited.
    """
    held, target = of_kinds(files, QUARANTINED), OutputPart.of(run.job())
    whole = _columns(run, (held or run.committed(RESULT_STEP).of_kind(RESULT))[0])
    if held:
        kept = of_kinds(files, RESULT)
        published = _staged_in(run, target, kept, _columns(run, kept[0]))
    else:
        published = staged(run)
        whole = pa.schema([*whole, *(pa.field(name, pa.string()) for name in QUARANTINE_COLUMNS)])
    beside = _staged_in(run, target.quarantine, held, whole)
    for one, expected in ((published, tuple(audited)), (beside, ())):
        if odd := [rule for rule in one.rules if rule.condition and rule not in expected]:
            raise SpecError(
                f"table {one.table}", "no rules of its rows but those that the result was held to", odd[0].name,
                "drop that rule, or begin a new run",
            )  # fmt: skip
    attempt.write(KEPT, published)
    attempt.write(HELD, beside)


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
    """The published columns of a result, as Spark has noted them: only that says whether a time is of a zone."""
    noted: StructType | None = noted_schema(run, file)
    if noted is None:
        raise RunDirectoryError(run.path(file.path), "a note of its columns", "none", "begin a new run")
    return arrow_schema(noted)


def _batches(run: RunDirectory, file: CommittedFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    run.verify(file)
    with readable(run, file), run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
        for batch in batches_of(open_parquet(opened)):
            yield batch.cast(columns)


def _plain(found: pa.Schema, leave_out: list[str]) -> pa.Schema:
    return pa.schema([pa.field(one.name, one.type, nullable=True) for one in found if one.name not in leave_out])
