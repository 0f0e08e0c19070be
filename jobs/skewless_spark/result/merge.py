"""Merging the partial states of every key, over all stages and tasks, and evaluating them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from skewless.documents.commit import StepCommit
from skewless.documents.job import Job
from skewless.documents.ledger import require_all_processed
from skewless.documents.stage_report import StageReport
from skewless.errors import LostRaceError
from skewless.run.attempt import Fence
from skewless.run.directory import RESULT_STEP, RunDirectory, stage_step
from skewless_spark.result.output_formats import published_files
from skewless_spark.result.window_merge import keep_states, over_window
from skewless_spark.session.planning import planned_once
from skewless_spark.session.step_lease import leased_step
from skewless_spark.stage.reduction import empty_states
from skewless_spark.stage.routing import TASK
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import NATIVE, PYTHON, RESULT, read_files, written
from skewless_spark.states.python_calls import PythonCall
from skewless_spark.states.python_evaluation import evaluate_batches, evaluate_in_order

log = logging.getLogger(__name__)

#: States of at most this many bytes that need no merging are not shuffled only to become more files.
UNSHUFFLED_BYTES = 64 << 20


def merge_states(spark: SparkSession, run: RunDirectory) -> StepCommit:
    """Commit the result of a run, unless it is committed already.

    Args:
        spark: the session.
        run: the run directory; all of its stages are committed.

    Returns:
        The commit of the result. Its counts are ``rows``, the input rows that the states stand for, and ``keys``,
        the rows of the result.

    Raises:
        LedgerError: input or backlog has not been processed, so the result would lack rows.
        FencedOutError: this attempt lost its lease, and its successor has not committed yet.
    """
    found = run.commit_of(RESULT_STEP)
    if found:
        return found
    with leased_step(run, RESULT_STEP) as fence:
        return run.commit_of(RESULT_STEP) or _merge(spark, run, fence)


def _merge(spark: SparkSession, run: RunDirectory, fence: Fence | None) -> StepCommit:
    job, reports = run.job(), run.reports()
    require_all_processed(job, reports, f"merge of {run}")
    columns = JobColumns.of(job)
    attempt = run.new_attempt(RESULT_STEP, fence)
    states = _states(spark, run, len(reports))
    only_python = bool(columns.python) and not columns.native and job.window is None
    processed = sum(report.processed_rows for report in reports)
    if job.window is not None:
        versions = keep_states(run, columns, attempt, _merged(states, columns), processed)
        processed += job.window.unchanged_rows
        over = over_window(spark, columns, versions)
        merged = _merged(states, columns) if over is None else over
    elif only_python:
        merged = _evaluated_in_order(states, columns)
    elif _one_state_per_key(run, reports, columns):
        merged = _in_files(states, columns, sum(file.size_bytes for file in run.committed(stage_step(0)).files))
    else:
        merged = _merged(states, columns)
    evaluated = _named if only_python else _evaluated
    counted = Observation("merged states")
    if processed:
        merged = merged.observe(counted, F.sum("rows").alias("rows"), F.count(F.lit(1)).alias("keys"))
        with planned_once(spark):  # the exchange has as many partitions as the result has files
            evaluated(merged, columns).write.parquet(attempt.path("data"))
        counts = {name: int(counted.get[name]) for name in ("rows", "keys")}
    else:
        evaluated(merged, columns).write.parquet(attempt.path("data"))
        counts = {"rows": 0, "keys": 0}
    try:
        files = written(attempt, RESULT, "data", keep_empty=not counts["keys"])
        return attempt.commit([*files, *published_files(spark, attempt, files, job)], counts)
    except LostRaceError as err:
        log.warning("%s", err)
        return run.committed(RESULT_STEP)


def result_schema(spark: SparkSession, job: Job) -> StructType:
    """The columns that the result of a job will have. Nothing is read."""
    columns = JobColumns.of(job)
    return _evaluated(_merged(empty_states(spark, columns).withColumn("stage", F.lit(0)), columns), columns).schema


def _states(spark: SparkSession, run: RunDirectory, stages: int) -> DataFrame:
    """The states of all stages with their stage; native states and Python states are separate rows."""
    columns, parts = JobColumns.of(run.job()), []
    for stage in range(stages):
        commit = run.committed(stage_step(stage))
        for kind in (NATIVE, PYTHON):
            # A carried Python state stands for all rows of its key so far: only the last one counts.
            superseded = kind == PYTHON and columns.job.forwards_states and stage < stages - 1
            if commit.of_kind(kind) and not superseded:
                states = read_files(spark, run, commit.of_kind(kind))
                parts.append(states.withColumn("stage", F.lit(stage)))
    if not parts:
        return empty_states(spark, columns).withColumn("stage", F.lit(0))
    states = parts[0]
    for part in parts[1:]:
        states = states.unionByName(part, allowMissingColumns=True)
    # A key whose rows were all left over has counts, but no state yet.
    return states.where(F.col("rows").isNull() | (F.col("rows") > 0))


def _one_state_per_key(run: RunDirectory, reports: Sequence[StageReport], columns: JobColumns) -> bool:
    """Whether no key has more than one state, so that there is nothing to merge."""
    if len(reports) != 1 or columns.python:
        return False
    plan = run.plan(0)
    whole = all(len(shares) == 1 for shares in plan.head.values())
    return plan.engine == "combine" or (whole and not reports[0].histogram.seen_null_rows)


def _in_files(states: DataFrame, columns: JobColumns, size_bytes: int) -> DataFrame:
    """States that are all there is of their keys, in as many partitions as the result has files; small ones in fewer.

    Args:
        states: the states.
        columns: of the job.
        size_bytes: of the files with the states.
    """
    files = columns.job.spec.output.files
    return states.coalesce(files) if size_bytes <= UNSHUFFLED_BYTES else states.repartition(files, *columns.keys)


def _in_key_order(states: DataFrame, columns: JobColumns) -> DataFrame:
    """The rows of a key side by side, by stage and task, so that floating-point sums always round the same way."""
    keyed = states.repartition(columns.job.spec.output.files, *columns.groups)
    return keyed.sortWithinPartitions(*columns.groups, "stage", TASK)


def _merged(states: DataFrame, columns: JobColumns) -> DataFrame:
    """One row per key, or key in a part: its rows, its merged native states, and its Python states as a list."""
    python = []
    if columns.python:
        names = [columns.states(one)[0] for one in columns.python]
        present = F.when(F.col("python_rows").isNotNull(), F.struct("stage", TASK, *names))
        ordered = F.sort_array(F.collect_list(present))
        python = [
            F.transform(ordered, lambda one: F.struct(*(one[name].alias(name) for name in names))).alias("states")
        ]
    in_order = _in_key_order(states, columns)
    rows = F.coalesce(F.sum("rows"), F.lit(0)).alias("rows")
    return in_order.groupBy(*columns.groups).agg(rows, *columns.merges, *python)


def _evaluated_in_order(states: DataFrame, columns: JobColumns) -> DataFrame:
    """One row per key of a job with Python aggregates only: the key columns, its rows, and its numbered results."""
    calls = _calls(columns)
    text = [] if columns.key_is_text else [columns.key.cast("binary").alias("route_key")]
    about = ["rows", "python_rows"]
    batches = _in_key_order(states, columns).select(*columns.keys, *text, *about, *(call.state for call in calls))
    kinds = {field.name: field for field in batches.schema}
    schema = StructType([*(kinds[name] for name in [*columns.keys, "rows"]), *_results(calls)])
    return batches.mapInArrow(evaluate_in_order(calls, columns.keys), schema)


def _calls(columns: JobColumns) -> list[PythonCall]:
    return [call._replace(result=_result(columns, call.name)) for call in columns.python_calls()]


def _results(calls: Sequence[PythonCall]) -> list[StructField]:
    return [StructField(call.result, from_arrow_type(call.types.result)) for call in calls]


def _evaluated(merged: DataFrame, columns: JobColumns) -> DataFrame:
    """The result: key columns and aggregates, by their own names."""
    native = [
        one.definition.evaluate([F.col(name) for name in columns.states(one)], one.options, one.spark_type).alias(  # type: ignore[union-attr]
            _result(columns, one.name)
        )
        for one in columns.native
    ]
    passed = [*columns.keys, *(_result(columns, one.name) for one in columns.native)]
    # Accumulators that open keys need the text of a key, and so do error messages.
    python = [columns.key.cast("binary").alias("route_key"), F.col("states")] if columns.python else []
    result = merged.select(*columns.keys, *native, *python)
    if columns.python:
        calls = _calls(columns)
        kinds = {field.name: field for field in result.schema}
        schema = StructType([*(kinds[name] for name in passed), *_results(calls)])
        result = result.mapInArrow(evaluate_batches(calls, passed), schema)
    return _named(result, columns)


def _named(result: DataFrame, columns: JobColumns) -> DataFrame:
    """Key columns and results by their own names."""
    named = [F.col(number).alias(name) for number, name in zip(columns.keys, columns.job.spec.key, strict=True)]
    return result.select(*named, *(F.col(_result(columns, one.name)).alias(one.name) for one in columns.bound))


def _result(columns: JobColumns, name: str) -> str:
    """The numbered name of a result until the last step: a user's name could equal that of an inner column."""
    return f"r{[one.name for one in columns.bound].index(name)}"
