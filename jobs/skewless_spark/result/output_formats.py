"""The format of a published result, its order (``output.sort``), and the staging of one in its table.

The run directory always has the result as Parquet, which is what is validated.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.errors import LedgerError, RunDirectoryError, SpecError
from skewless.run.directory import RESULT_STEP, Attempt, RunDirectory
from skewless.spec.result import QUARANTINE_COLUMNS, Output
from skewless.spec.spec import JobSpec
from skewless_lake.staged_files import HELD, KEPT, OutputPart, TableRule
from skewless_lake.staging import ResultFile, batches_of, stage_result
from skewless_spark.session.session import require_writer
from skewless_spark.session.versions import arrow_schema, nested_types
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.committed_files import (
    PUBLISHED,
    QUARANTINED,
    RESULT,
    noted_schema,
    of_kinds,
    read_files,
    readable,
)
from skewless_spark.states.job_columns import JobColumns

_FOLDER = "published"
#: A field of a CSV is one text, which cannot represent values of these types.
_NESTED = nested_types()
_NOT_IN_CSV: tuple[type[DataType], ...] = (*_NESTED, BinaryType)


def refuse_nested(schema: StructType, where: str) -> None:
    """Refuse a result that CSV cannot represent."""
    odd = next((field for field in schema if isinstance(field.dataType, _NOT_IN_CSV)), None)
    if odd is not None:
        raise SpecError(
            f"{where}, field output.format", "columns of one value each for csv",
            f"{odd.name!r} of type {odd.dataType.simpleString()}", "publish parquet, orc or json",
        )  # fmt: skip


def published_files(
    spark: SparkSession, attempt: Attempt, result: Sequence[CommittedFile], job: Job
) -> list[CommittedFile]:
    """Write a result, file by file, in the format of the spec. For Parquet there is nothing to do.

    Raises:
        LedgerError: the number of rows written is not that of the result.
        RunDirectoryError: Spark has no file system for the run directory.
    """
    kind = job.spec.output.file_format
    if kind == "parquet" or not result:
        return []
    require_writer(spark, str(attempt.run), kind)
    frame = read_files(spark, attempt.run, result)
    counted = Observation("published rows")
    rows = sum(file.rows for file in result)
    frame = frame.observe(counted, F.count(F.lit(1)).alias("rows")) if rows else frame.coalesce(1)
    _write(frame.write, kind, attempt.path(_FOLDER))
    found = int(counted.get["rows"]) if rows else 0
    if found != rows:
        raise LedgerError("result", f"{rows:,} rows written as {kind}", f"{found:,}", "nothing was committed")
    return [attempt.described(PUBLISHED, path, 0) for path in attempt.listed(_FOLDER, f".{kind}")]


def _write(writer: DataFrameWriter, kind: str, path: str) -> None:
    if kind in {"csv", "json"}:  # Spark by itself writes milliseconds, and drops the rest
        digits = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
        writer = writer.options(timestampFormat=f"{digits}XXX", timestampNTZFormat=digits)
    if kind == "csv":
        # As most readers expect it, ours among them (RFC 4180): a quoted empty text is an empty text, an empty field is
        # null, a quote within quotes is doubled, and spaces are part of a text. Spark by itself strips them.
        writer.csv(
            path, header=True, emptyValue='""', nullValue="", escape='"',
            ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False,
        )  # fmt: skip
    elif kind == "json":
        writer.json(path, ignoreNullFields=False)
    else:  # in the calendar that all readers know, and said so in each file
        writer.option("orc.proleptic.gregorian", value=True).orc(path)


def refuse_without_order(schema: StructType, spec: JobSpec, where: str) -> None:
    """Refuse to sort a result by lists, structs or maps, which Iceberg has no order of, or by sketches."""
    for name, _ in spec.output.order:
        kind, call = schema[name].dataType, spec.values.get(name)
        sketch = call is not None and call.publish == "state"
        if sketch or isinstance(kind, _NESTED):
            came = f"{name!r}, a sketch" if sketch else f"{name!r} of type {kind.simpleString()}"
            raise SpecError(f"{where}, field output.sort", "columns of one value each", came, "sort by another column")


def sorted_results(results: DataFrame, columns: JobColumns) -> DataFrame:
    """Results with the columns of the order ascending from partition to partition and in each; as they are without one.

    Spark draws a sample of the results to cut them into ranges, so they are evaluated twice if there is more than one
    file.
    """
    output = columns.job.spec.output
    return in_order(results, output) if output.sort else results


def in_order(results: DataFrame, output: Output) -> DataFrame:
    """Results in the order of an output that has one."""
    order = [
        F.col(quoted(name)).desc_nulls_last() if descending else F.col(quoted(name)).asc_nulls_first()
        for name, descending in output.order  # as SortColumn has it
    ]
    return results.repartitionByRange(output.files, *order).sortWithinPartitions(*order)


def stage(run: RunDirectory, attempt: Attempt, files: Sequence[CommittedFile], audited: Sequence[TableRule]) -> None:
    """Stage a result that was found good: the keys that are published, and those in quarantine if some may be.

    Two attempts may stage at the same time: the commit of the first one counts, and no reader sees what the other one
    has written.

    Args:
        attempt: at the validation, whose commit says which of what was staged is published.
        files: of both kinds, that the attempt has written; none if there are no keys in quarantine.
        audited: what the output's table has asked of each row of the result.

    Raises:
        SpecError: a table does not fit; or what it asks of its rows was not audited.
    """
    target, held = OutputPart.of(run.job()), of_kinds(files, QUARANTINED)
    kept = of_kinds(files, RESULT) or run.committed(RESULT_STEP).of_kind(RESULT)
    parts = [(KEPT, target, kept, _columns(run, kept[0]), tuple(audited))]
    if run.job().spec.quality.quarantines:
        named = pa.schema([*parts[0][3], *(pa.field(name, pa.string()) for name in QUARANTINE_COLUMNS)])
        parts.append((HELD, target.quarantine, held, _columns(run, held[0]) if held else named, ()))
    for name, part, sources, columns, expected in parts:
        readers = [ResultFile(file.rows, partial(_batches, run, file, columns)) for file in sources]
        written = stage_result(run, columns, readers, part)
        if odd := [rule for rule in written.rules if rule.condition and rule not in expected]:
            raise SpecError(
                f"table {written.table}", "no rules of its rows but those that the result was held to", odd[0].name,
                "drop that rule, or begin a new run",
            )  # fmt: skip
        attempt.write(name, written)


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
