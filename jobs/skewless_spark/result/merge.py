"""Merging the partial states of every key, over all stages and tasks, and evaluating them."""

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from skewless.document import HASHES
from skewless.documents.commit import CommittedFile, StepCommit
from skewless.documents.job import Job
from skewless.documents.ledger import Counted, require_all_processed
from skewless.documents.stage_report import StageReport
from skewless.publication.records import Publication
from skewless.run.directory import PART_LINES, RESULT_STEP, Attempt, Fence, RunDirectory, stage_step
from skewless.spec.result import WINDOW_COLUMN
from skewless_lake.publication import keep_night, keep_savings, publish_run
from skewless_spark.branches import empty_states, evaluate, merge_in_order, states_of_rows, union_of
from skewless_spark.engines import ENGINES
from skewless_spark.result.output_formats import published_files, sorted_results
from skewless_spark.result.published_rows import HASHED, KEPT, ROWS, joined_rows, joined_states, published_rows
from skewless_spark.session.session import planned_once
from skewless_spark.session.spark_errors import of_a_file, sentence_for
from skewless_spark.session.step_lease import once
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.stage.routes import TASK, split_keys
from skewless_spark.states.committed_files import (
    EVALUATED,
    NATIVE,
    PYTHON,
    RESULT,
    AsSpark,
    damaged,
    of_kinds,
    read_files,
    write_files,
    written,
)
from skewless_spark.states.job_columns import HASH, WHOLE, JobColumns
from skewless_spark.windows.kept_states import keep_states, lines_of, over_windows, set_aside_damaged, with_window

log = logging.getLogger(__name__)

#: States of at most this many bytes that need no merging are not shuffled only to become more files.
UNSHUFFLED_BYTES = 64 << 20


def merge_states(spark: SparkSession, run: RunDirectory) -> StepCommit:
    """Commit the result of a run, unless it is committed already.

    Returns:
        The commit of the result. Its counts are ``rows``, the input rows that the states stand for, ``hash``, that of
        these rows, and ``keys``, the rows of the result.

    Raises:
        LedgerError: input or backlog has not been processed, so the result would lack rows.
        FencedOutError: this attempt lost its lease, and its successor has not committed yet.
    """

    def merged(fence: Fence | None) -> StepCommit:
        try:
            return _merge(spark, run, fence)
        except Exception as err:
            # Whatever read a damaged page: what can be made again is set aside.
            if (window := run.job().window) is None or not of_a_file(err) or not set_aside_damaged(run, window):
                raise
            log.warning("the merge begins anew: %s", sentence_for(err))
            return _merge(spark, run, fence)

    return once(run, RESULT_STEP, lambda: run.commit_of(RESULT_STEP), merged)


def _merge(spark: SparkSession, run: RunDirectory, fence: Fence | None) -> StepCommit:
    job, reports = run.job(), run.reports()
    require_all_processed(job, reports, f"merge of {run}")
    columns, attempt = JobColumns.of(job), run.new_attempt(RESULT_STEP, fence)
    if evaluated := run.committed(stage_step(0)).of_kind(EVALUATED):
        counts = _write_evaluated(spark, run, attempt, columns, evaluated, reports[0])
    elif job.window is None:
        merged = _states(spark, run, len(reports))
        # Only once they have been joined to lookups, where their order is all the same.
        when_joined = job.spec.joined is not None and columns.merged_in_any_order and not columns.python
        if not when_joined:
            merged = merge_in_order(_in_key_order(merged, columns), columns)
        counts = _counts(_write_merged(spark, attempt, columns, merged, sum(one.processed_rows for one in reports)))
    else:
        counts = _write_windows(spark, run, attempt, columns, reports)
    files = written(attempt, RESULT, FOLDER, keep_empty=not counts["keys"])
    return attempt.commit([*files, *published_files(spark, attempt, files, job)], counts)


def evaluated_rows(rows: DataFrame, columns: JobColumns) -> DataFrame:
    """The results of rows that no stage routes, see ``states_of_rows``.

    Returns:
        One row per key: the key columns and results by their numbers, ``rows``, and the states that ``agrees`` takes.
    """
    states = states_of_rows(rows, columns).withColumn("stage", F.lit(0))
    return evaluate(*joined_states(merge_in_order(states, columns), columns), told=True)


def result_schema(spark: SparkSession, job: Job, where: str) -> StructType:
    """The columns that the result of a job will have. Nothing is read.

    Raises:
        SpecError: what is published is not over keys and aggregates, or not the same whenever it is computed.
    """
    columns = JobColumns.of(job)
    results = evaluate(*joined_states(_merged_of_none(empty_states(spark, columns), columns), columns))
    published = joined_rows(published_rows(results, JobColumns.of(job.of_results), where), columns, where)
    return published.select(*map(quoted, job.spec.published)).schema


def _merged_of_none(states: DataFrame, columns: JobColumns) -> DataFrame:
    in_order = _in_key_order(states.withColumn("stage", F.lit(0)), columns)
    return with_window(columns, merge_in_order(in_order, columns), None)


def _write_windows(
    spark: SparkSession, run: RunDirectory, attempt: Attempt, columns: JobColumns, reports: Sequence[StageReport]
) -> dict[str, int]:
    """Keep the states of the parts that were reduced, and write the results of each window, merged of kept states."""
    processed = sum(report.processed_rows for report in reports)
    committed = [file for stage in range(len(reports)) for file in run.committed(stage_step(stage)).files]
    one_each = _one_state_each(run, reports) and not columns.python
    files, states = of_kinds(committed, NATIVE, PYTHON), partial(_states, spark, run, len(reports))
    versions, lines = keep_states(run, columns, attempt, states, files, one_each=one_each, rows=processed)
    merged = over_windows(spark, columns, attempt, versions)
    merged = _merged_of_none(states().drop("stage"), columns) if merged is None else merged
    rows = processed + columns.window.unchanged_rows
    of_windows = _write_merged(spark, attempt, columns, merged, rows)
    attempt.write(PART_LINES, lines_of(columns, lines, of_windows))
    return _counts(of_windows)


def _write_merged(
    spark: SparkSession, attempt: Attempt, columns: JobColumns, merged: DataFrame, rows: int
) -> list[Counted]:
    """Write the results of merged states, see ``_write``."""
    if columns.job.spec.joined is None or not rows:
        return _write(spark, attempt, columns, evaluate(*joined_states(merged, columns)), rows)
    # A join leaves rows out and repeats them, so they are counted before.
    windows = columns.job.spec.covered.several or (None,)
    seen = [F.lit(True) if length is None else F.col(WINDOW_COLUMN) == length for length in windows]
    sums = [F.coalesce(F.sum(F.when(one, F.col(name))), F.lit(0)) for one in seen for name in ("rows", HASH)]
    before = [int(number) for number in merged.agg(*sums).collect()[0]]
    require_unchanged(columns.job, ())  # lookups are read once more
    after = _write(spark, attempt, columns, evaluate(*joined_states(merged, columns)), rows)
    require_unchanged(columns.job, ())
    return [one._replace(rows=count, hash=of) for one, count, of in zip(after, before[::2], before[1::2], strict=True)]


def _write(spark: SparkSession, attempt: Attempt, columns: JobColumns, results: DataFrame, rows: int) -> list[Counted]:
    """Write results with Spark; what those of each window stand for."""
    spec, columns = columns.job.spec, JobColumns.of(columns.job.of_results)
    windows, own = spec.covered.several or (None,), list(map(quoted, spec.published))
    published = published_rows(results, columns)
    if spec.result is not None and spec.result.query is not None:
        return [_write_joined(attempt, columns, published)]
    if not rows:
        kept = published.where(KEPT)
        write_files(kept.select(*own), attempt, FOLDER)
        return [Counted(0, 0, kept.count() // len(windows) if spec.of_all_rows else 0)] * len(windows)
    counted, counts = Observation("merged states"), list[Column]()
    for at, length in enumerate(windows):
        seen, hashed = (
            F.col(name) if length is None else F.when(F.col(WINDOW_COLUMN) == length, F.col(name))
            for name in (ROWS, HASHED)
        )
        counts += [
            F.coalesce(F.sum(seen), F.lit(0)).alias(f"rows{at}"),
            F.coalesce(F.sum(hashed), F.lit(0)).alias(f"hash{at}"),
            F.count_if(seen.isNotNull() & F.col(KEPT)).alias(f"keys{at}"),
        ]
    published = sorted_results(published, columns).observe(counted, *counts)  # what is sorted is evaluated twice
    # The exchange has as many partitions as the result has files.
    with planned_once(spark) if spec.joined is None else nullcontext():
        write_files((published.where(KEPT) if spec.result else published).select(*own), attempt, FOLDER)
    names = [[f"{name}{at}" for name in Counted._fields] for at in range(len(windows))]
    return [Counted(*(int(counted.get[name]) for name in of_window)) for of_window in names]


def _write_joined(attempt: Attempt, columns: JobColumns, published: DataFrame) -> Counted:
    """As ``_write``, where results are joined to lookups: rows are counted before, results behind the join."""
    spec, counted = columns.job.spec, Observation("joined results")
    rows, hashed = published.agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in (ROWS, HASHED))).collect()[0]
    require_unchanged(columns.job, ())  # lookups are read once more
    joined = joined_rows(published, columns).select(*map(quoted, spec.published))
    joined = sorted_results(joined, columns) if spec.output.sort else joined.coalesce(spec.output.files)
    write_files(joined.observe(counted, F.count(F.lit(1)).alias("keys")), attempt, FOLDER)
    require_unchanged(columns.job, ())
    return Counted(int(rows), int(hashed), int(counted.get["keys"]))


def _counts(of_windows: Sequence[Counted]) -> dict[str, int]:
    """What a commit says of a result: the input rows that its longest window stands for, and all of its own rows."""
    longest = of_windows[-1]
    return {"rows": longest.rows, "hash": longest.hash % HASHES, "keys": sum(one.keys for one in of_windows)}


def _write_evaluated(
    spark: SparkSession,
    run: RunDirectory,
    attempt: Attempt,
    columns: JobColumns,
    files: Sequence[CommittedFile],
    report: StageReport,
) -> dict[str, int]:
    """Write the results that the only stage evaluated, and evaluate the keys of which it has several states."""
    parts = None
    if not _one_state_each(run, [report]):
        states = read_files(spark, run, files).where(~F.col(WHOLE)).withColumn("stage", F.lit(0))
        parts = evaluate(merge_in_order(_in_key_order(states, columns, 1), columns), columns)
    spec = columns.job.spec
    as_spark = None if spec.output.sort or spec.result else AsSpark.of(run, files, columns.own_names)
    if as_spark is not None:
        return write_copies(spark, run, attempt, columns, files, as_spark, parts)
    results = read_files(spark, run, files).where(WHOLE).select(*columns.keys, "rows", HASH, *columns.results)
    results = results if parts is None else results.unionByName(parts)
    in_files = columns.job.spec.output.files
    small = sum(file.size_bytes for file in files) <= UNSHUFFLED_BYTES
    results = results.coalesce(in_files) if small else results.repartition(in_files, *columns.keys)
    return _counts(_write(spark, attempt, columns, results, report.processed_rows))


def _one_state_each(run: RunDirectory, reports: Sequence[StageReport]) -> bool:
    """Whether no key has several states: there is one stage, and it merges them, or has all rows of a key in a task."""
    if len(reports) != 1:
        return False
    plan = run.plan(0)
    return ENGINES[plan.engine].merges or not (split_keys(plan) or reports[0].histogram.seen_null_rows)


def _states(spark: SparkSession, run: RunDirectory, stages: int) -> DataFrame:
    """The states of all stages with their stage; native states and Python states are separate rows."""
    columns, parts = JobColumns.of(run.job()), []
    for stage in range(stages):
        commit = run.committed(stage_step(stage))
        kept = filter(None, map(commit.of_kind, (NATIVE, PYTHON)))
        parts += [read_files(spark, run, files).withColumn("stage", F.lit(stage)) for files in kept]
    if not parts:
        return empty_states(spark, columns).withColumn("stage", F.lit(0))
    # A key whose rows were all left over has counts, but no state yet.
    return union_of(parts).where(F.col("rows").isNull() | (F.col("rows") > 0))


def _in_key_order(states: DataFrame, columns: JobColumns, partitions: int | None = None) -> DataFrame:
    """The rows of a key side by side, by stage and task, so that floating-point sums always round the same way."""
    keyed = states.repartition(partitions or columns.job.spec.output.files, *columns.groups)
    return keyed.sortWithinPartitions(*columns.groups, "stage", TASK)


def publish_now(run: RunDirectory) -> Publication:
    """Publish the committed result of a run (``skewless_lake.publication.publish_run``); it needs no Spark."""
    now = dt.datetime.now(tz=dt.UTC)
    published = publish_run(run, now)
    keep_savings(run)
    keep_night(run, now)
    return published


#: Where an attempt at the merge writes the result; and, before that, the results of keys with several states.
FOLDER, _MERGED = "data", "merged"
#: Rows that are copied at a time.
_BATCH_ROWS = 1 << 16


def write_copies(
    spark: SparkSession,
    run: RunDirectory,
    attempt: Attempt,
    columns: JobColumns,
    files: Sequence[CommittedFile],
    as_spark: AsSpark,
    parts: DataFrame | None,
) -> dict[str, int]:
    """Write the results of an only stage into at most as many files as the output may have, without Spark.

    That takes a tenth of a second; a job of Spark half a second, and 1.2 in a new process.

    Args:
        parts: the results of keys that have several states; None if there are none.

    Returns:
        As the commit has them.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        sources = [f"{run.root}/{file.path}" for file in sorted(files, key=lambda one: -one.size_bytes)]
        if parts is not None:
            with planned_once(spark):
                write_files(parts, attempt, _MERGED)
            sources += attempt.listed(_MERGED)
        run.fs.makedirs(f"{run.root}/{attempt.folder}/{FOLDER}", exist_ok=True)
        into = min(columns.job.spec.output.files, len(sources))
        own = columns.own_names

        def copied(number: int) -> Counted:
            target = f"{run.root}/{attempt.folder}/{FOLDER}/part-{number:05d}.parquet"
            with run.fs.open(target, "wb") as out, as_spark.writer(out) as writer:
                return _copy(run.fs, sources[number::into], writer, as_spark.kind, own)

        counts = list(pool.map(copied, range(into)))
    return _counts([Counted(*map(sum, zip(*counts, strict=True)))])


def _copy(
    fs: Any, sources: Sequence[str], writer: pq.ParquetWriter, kind: pa.Schema, own: Mapping[str, str]
) -> Counted:
    rows = hashed = keys = 0
    for batch in _batches(fs, sources, own):
        rows += int(pc.sum(batch["rows"]).as_py() or 0)
        hashed += int(pc.sum(batch[HASH]).as_py() or 0)
        keys += len(batch)
        if len(batch):
            writer.write_batch(pa.RecordBatch.from_arrays([batch[name] for name in own], schema=kind))
    return Counted(rows, hashed, keys)


def _batches(fs: Any, sources: Sequence[str], own: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for source in sources:
        try:
            with fs.open(source, "rb") as opened:
                parquet = open_parquet(opened)
                flags = [WHOLE] if WHOLE in parquet.schema_arrow.names else []  # all keys are whole that were merged
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=[*own, "rows", HASH, *flags]):
                    yield batch.filter(batch[WHOLE]) if flags else batch
        except (OSError, pa.ArrowException) as err:
            raise damaged(source, err) from err
