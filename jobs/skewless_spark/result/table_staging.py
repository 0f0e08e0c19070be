"""Stages the committed result of a run, once it was found good, in the table that it is to be published in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from skewless.documents.commit import CommittedFile
from skewless.errors import RunDirectoryError, SpecError
from skewless.run.directory import RESULT_STEP, Attempt, RunDirectory
from skewless.spec.result import QUARANTINE_COLUMNS
from skewless_lake.staged_files import HELD, KEPT, OutputPart, TableRule
from skewless_lake.staging import ResultFile, batches_of, stage_result
from skewless_spark.session.versions import arrow_schema
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.committed_files import QUARANTINED, RESULT, noted_schema, of_kinds, readable


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
