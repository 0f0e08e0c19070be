"""Validation: Great Expectations over the ledger and the result, before anything is published."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import StepCommit
from skewless.documents.job import Job
from skewless.documents.ledger import Ledger, balance
from skewless.documents.quality import Check, FailingKey, InputChecks, QualityReport
from skewless.errors import LostRaceError, SpecError
from skewless.history.figures import figures_of
from skewless.history.judging import failed_checks, judged
from skewless.run.directory import INPUT_CHECKS, QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, Fence, RunDirectory
from skewless.run.step_names import last_step_of
from skewless.standing.night_quality import window_quality
from skewless_lake.publication import nights_of
from skewless_lake.staged import OutputPart, TableRule
from skewless_spark.quality.expectations import build_expectations, great_expectations
from skewless_spark.quality.figures import NEVER_NULL, column_figures, figure_columns
from skewless_spark.quality.quarantine import set_apart
from skewless_spark.quality.verdict import Verdict, key_words
from skewless_spark.result.staging import stage_apart, staged, staged_frame
from skewless_spark.session.queries import planned_once
from skewless_spark.session.step_lease import leased_step
from skewless_spark.states.committed_files import RESULT, read_files

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

log = logging.getLogger(__name__)

#: The maximum number of unexpected values per expectation that reach the driver.
SAMPLES = 10
#: SUMMARY returns at most a sample of values, and of rows by their index columns, whatever the size of the result.
RESULT_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": SAMPLES}
COUNTS_ONLY = {"result_format": "SUMMARY", "partial_unexpected_count": 0}
#: A result of at most this many bytes is read as one partition: then no query over it needs a shuffle.
ONE_PARTITION_BYTES = 16 << 20


def validate(spark: SparkSession, run: RunDirectory) -> QualityReport:
    """Validate the committed result of a run, unless it has been validated already.

    The report of a failed validation is committed too. The caller decides what follows from it.

    Returns:
        The committed report: of this attempt, or of the attempt that committed first.

    Raises:
        RunDirectoryError: the result is not committed.
        SpecError: the frozen spec has an expectation that may not be run.
        FencedOutError: this attempt lost its lease, and its successor has not committed yet.
    """
    found = run.quality()
    if found is not None:
        return found
    with leased_step(run, QUALITY_STEP) as fence:
        return run.quality() or _validate(spark, run, fence)


def _validate(spark: SparkSession, run: RunDirectory, fence: Fence | None) -> QualityReport:
    job, result = run.job(), run.committed(RESULT_STEP)
    of_parts = run.part_lines()
    ledger = balance(job, run.reports(), result.count("rows"), of_parts)
    own = build_expectations(job.spec, "job.json")
    context = _context()
    about_ledger = _nothing_in(context, "ledger", _imbalances(ledger))
    # Of several windows, the result has the rows of each.
    rows = sum(line.rows for line in ledger.windows) if job.spec.windows else result.count("rows")
    attempt, keys, of_columns = run.new_attempt(QUALITY_STEP, fence), result.count("keys"), dict[str, Any]()
    with _result_of(spark, run, result) as found:
        about_table, built_in, about_result = _result_verdicts(context, spark, job, found, rows, keys, own, of_columns)
        figures = figures_of(job, run.reports(), ledger, keys, column_figures(job, of_columns))
        bands = judged(job, figures, nights_of)
        checks = (
            *(run.read(INPUT_CHECKS, InputChecks).checks if job.facts is not None else ()),
            *(verdict.check("ledger") for verdict in about_ledger),
            _ledger_check(ledger),
            *failed_checks(bands),
            *about_table,
            *(verdict.check("result") for verdict in built_in),
            *(
                verdict.judged(one, keys)
                for verdict, one in zip(about_result, job.spec.quality.expectations, strict=True)
            ),
        )
        first, apart = len(checks) - len(own), None
        held = [one for one, check in zip(about_result, checks[first:], strict=True) if check.verdict == "quarantined"]
        if held and not any(check.fails for check in checks):  # else nothing is published anyway
            apart = set_apart(spark, attempt, job, found.frame, keys, held)
            checks = (*checks[:first], apart.balance, *checks[first:])
    report = QualityReport(
        success=not any(check.fails for check in checks),
        keys=keys,
        checks=checks,
        ledger=ledger,
        columns={field.name: field.dataType.simpleString() for field in found.frame.schema.fields},
        quarantine=apart.quarantine if apart else None,
        window=window_quality(job.covered),
        figures=figures,
        bands=bands,
    )
    if report.success and found.in_table and job.spec.quality.quarantines:
        stage_apart(run, attempt, apart.files if apart else (), found.rules)
    attempt.write(QUALITY_REPORT, report)
    failed = sum(check.fails for check in checks)
    try:
        attempt.commit(apart.files if apart else (), {"checks": len(checks), "failed": failed})
    except LostRaceError as err:
        log.warning("%s", err)
        return run.committed_document(run.committed(QUALITY_STEP), QUALITY_REPORT, QualityReport)
    return report


def _context() -> Any:
    """An in-memory project of Great Expectations, which neither reads nor writes the user's home."""
    gx = great_expectations()
    context = gx.get_context(mode="ephemeral")
    bars = gx.data_context.types.base.ProgressBarsConfig(globally=sys.stderr.isatty())
    context.variables.progress_bars = bars
    return context


def _batch(source: Any, name: str, frame: Any) -> Any:
    batches = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    return batches.get_batch({"dataframe": frame})


def _spark_batch(context: Any, name: str, frame: DataFrame, engine: Any) -> Any:
    source = great_expectations().datasource.fluent.SparkDatasource
    source.execution_engine_override = engine
    return _batch(context.data_sources.add_or_update_spark("spark", persist=False), name, frame)


def _verdicts(batch: Any, expectations: Sequence[Expectation], key: Sequence[str] = ()) -> list[Verdict]:
    """Validate a batch, all expectations at once, so that Great Expectations computes them in few Spark jobs.

    Args:
        key: the columns by which rows with unexpected values are named.
    """
    for position, expectation in enumerate(expectations):
        expectation.meta = {"position": position}  # results come in another order than expectations
    suite = great_expectations().core.ExpectationSuite(name="suite", expectations=list(expectations))
    found = {}
    for result in batch.validate(suite, result_format=COUNTS_ONLY).results:
        one = _as_json(result)
        found[one["expectation_config"]["meta"]["position"]] = one
    verdicts = [Verdict.of(expectation, found[position]) for position, expectation in enumerate(expectations)]
    # An expectation that Spark cannot evaluate fails all that share its job: evaluate those one by one. Samples take a
    # job for each expectation, and most have nothing unexpected.
    sampled_with = {**RESULT_FORMAT, **({"unexpected_index_column_names": [*key]} if key else {})}
    return [_sampled(batch, one.expectation, sampled_with) if one.fault or one.unexpected else one for one in verdicts]


def _sampled(batch: Any, expectation: Expectation, wanted: Mapping[str, Any]) -> Verdict:
    """The verdict with samples; and of an expectation of rows, with those that it is about."""
    verdict = Verdict.of(expectation, _as_json(batch.validate(expectation, result_format=wanted)))
    if verdict.fault:
        return verdict
    return replace(verdict, rows=unexpected_rows(batch.data.execution_engine, expectation))


def unexpected_rows(executor: Any, expectation: Expectation) -> tuple[DataFrame, Column] | None:
    """The rows that an expectation of single rows is about, and whether one fails it; None of any other."""
    if (metric := getattr(expectation, "map_metric", None)) is None or not hasattr(executor, "dataframe"):
        return None
    validator = great_expectations().validator
    counted = expectation.get_validation_dependencies(executor).metric_configurations[f"{metric}.unexpected_count"]
    condition, rows, columns = validator.metrics_calculator.MetricsCalculator(executor).get_metric(
        validator.metric_configuration.MetricConfiguration(
            f"{metric}.condition", counted.metric_domain_kwargs, counted.metric_value_kwargs
        )
    )
    return executor.get_domain_records({**rows, **columns}), condition


def _as_json(result: Any) -> dict[str, Any]:
    from skewless_spark.quality.one_job_engine import whole_as_int  # noqa: PLC0415  # imports Great Expectations

    result.result = whole_as_int(result.result)
    found: dict[str, Any] = result.to_json_dict()
    return found


# The ledger, as a table of some rows: no Spark job is needed to add them up.


def _nothing_in(context: Any, name: str, counts: Mapping[str, Sequence[int]]) -> list[Verdict]:
    """The verdicts on counts that must be 0, by the names of their columns."""
    import pandas as pd  # noqa: PLC0415  # Great Expectations imports it too; ``check`` does without

    # Whole numbers of Python, whose sum cannot overflow.
    batch = _batch(context.data_sources.add_or_update_pandas(name), name, pd.DataFrame(counts, dtype=object))
    balanced = great_expectations().expectations.ExpectColumnSumToBeBetween
    return _verdicts(batch, [balanced(column=column, min_value=0, max_value=0) for column in counts])


def _imbalances(ledger: Ledger) -> dict[str, list[int]]:
    """What must be 0: in each stage, and of a run as a whole in the last row."""
    lines = ledger.lines
    left_over = [0, *(line.backlog_rows for line in lines)]
    processed = sum(line.processed_rows for line in lines)
    not_in_windows = sum(abs(one.rows - one.of_parts_rows) for one in ledger.windows)
    whole = [0] * len(lines)
    return {
        "not_admitted_rows": [*(abs(line.listed_rows - line.admitted_rows) for line in lines), 0],
        "not_taken_in_rows": [
            *(abs(before - line.backlog_in_rows) for before, line in zip(left_over, lines, strict=False)), 0
        ],
        "lost_in_stage_rows": [
            *(
                abs(line.admitted_rows + line.backlog_in_rows - line.processed_rows - line.backlog_rows)
                for line in lines
            ), 0
        ],
        "not_processed_rows": [*whole, abs(ledger.input_rows - processed)],
        "not_in_states_rows": [*whole, abs(processed + ledger.unchanged_rows - ledger.state_rows) + not_in_windows],
        "never_reduced_rows": [*whole, left_over[-1]],
    }  # fmt: skip


def _ledger_check(ledger: Ledger) -> Check:
    numbers = f"{ledger.input_rows:,} rows of input, {ledger.state_rows:,} rows in the states"
    return _own_check("ledger", "ledger_balances", ledger.balanced, numbers, "; ".join(ledger.problems) or numbers)


def _own_check(subject: str, kind: str, success: bool, observed: str, words: str, column: str = "") -> Check:
    """A check of ours, which is no expectation of Great Expectations."""
    sentence = f"{kind}({column}): {words}" if column else f"{kind}: {words}"
    return Check(
        subject=subject, expectation=kind, column=column, success=success, observed=observed, sentence=sentence
    )


# The result, as the committed files have it.


class _Found(NamedTuple):
    """The result as it was read: a frame, whether that is small and of a table, and the rules of that table."""

    frame: DataFrame
    small: bool
    in_table: bool
    rules: tuple[TableRule, ...]


@contextmanager
def _result_of(spark: SparkSession, run: RunDirectory, result: StepCommit) -> Iterator[_Found]:
    """The result, whose frame is kept in memory or on disk meanwhile."""
    rules = tuple[TableRule, ...]()
    job = run.job()
    if in_table := job.spec.output.is_table and last_step_of(job.spec).publishes:  # what is staged is published
        of_table = staged(run)
        rules = of_table.rules
        frame, size = staged_frame(spark, run, of_table), sum(file.size_bytes for file in of_table.files)
    else:
        files = result.of_kind(RESULT)
        frame, size = read_files(spark, run, files), sum(file.size_bytes for file in files)
    small = size <= ONE_PARTITION_BYTES
    frame = (frame.coalesce(1) if small else frame).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield _Found(frame, small, in_table, rules)
    finally:
        frame.unpersist()


def _result_verdicts(
    context: Any, spark: SparkSession, job: Job, found: _Found, rows: int, keys: int, own: list[Expectation],
    of_columns: dict[str, Any],
) -> tuple[list[Check], list[Verdict], list[Verdict]]:  # fmt: skip
    """The checks of the table's rules, the verdicts on what every result must meet, and those on the spec's own.

    What ``figure_columns`` computes beside them is put into a mapping.
    """
    key, of_table = job.spec.result_key, list[Check]()
    of_key, columns = _key_frame(found.frame, key)
    held = _result_expectations(job, rows, keys)
    observed = [one for one in own if keys or not _is_statistic(one)]
    if found.rules:
        of_table = rule_checks(found.frame, found.rules, OutputPart.of(job).values, job.output_path, key)
    from skewless_spark.quality.one_job_engine import OneJobEngine  # noqa: PLC0415  # imports Great Expectations

    beside = {_ROWS: F.count(F.lit(1)), **figure_columns(job, found.frame)}
    with planned_once(spark) if found.small else nullcontext():
        engine = OneJobEngine.knowing(beside=beside, found=of_columns)
        verdicts = _verdicts(_spark_batch(context, "result", found.frame, engine), [*held, *observed], key)
        engine = OneJobEngine.knowing(rows=of_columns.get(_ROWS))
        unique = _verdicts(_spark_batch(context, "keys", of_key, engine), [_keys_unique([*columns, _NULL_FLAG])])
    built_in = [*(one.about(columns, hidden=_NULL_FLAG) for one in unique), *verdicts[: len(held)]]
    of_spec = iter(verdicts[len(held) :])
    # An empty result has no mean, and cannot fail an expectation about it.
    judged = [next(of_spec) if one in observed else Verdict.nothing_to_observe(one) for one in own]
    return of_table, built_in, judged


def _is_statistic(expectation: Expectation) -> bool:
    return isinstance(expectation, great_expectations().expectations.expectation.ColumnAggregateExpectation)


def _result_expectations(job: Job, rows: int, keys: int) -> list[Expectation]:
    """The expectations that every result must meet, whatever the spec.

    Args:
        rows: of the input that the rows of the result stand for, all together.
        keys: rows of the result.
    """
    gxe = great_expectations().expectations
    calls = job.spec.aggregates
    counts = [name for name, call in calls.items() if call.function == "count" and call.column is None]
    full = [name for name, call in calls.items() if call.function in NEVER_NULL]
    # Great Expectations expects a column name with a dot in backticks.
    names = (*job.spec.result_key, *calls)
    columns = [f"`{name}`" if "." in name else name for name in names]
    return [
        gxe.ExpectTableColumnsToMatchSet(column_set=columns, exact_match=True),
        gxe.ExpectTableRowCountToEqual(value=keys),
        # Without keys, rows would be lost; with more keys than rows, keys would be invented.
        gxe.ExpectTableRowCountToBeBetween(min_value=min(rows, 1), max_value=rows),
        # The sum over no keys is null in SQL, which is correct if there were no rows.
        *(
            gxe.ExpectColumnSumToBeBetween(column=name, min_value=rows, max_value=rows)
            for name in counts
            if rows or keys
        ),
        *(gxe.ExpectColumnValuesToNotBeNull(column=name) for name in full),
    ]


_NULL_FLAG, _ROWS = "null_key", "rows"


def _key_frame(frame: DataFrame, key: Sequence[str]) -> tuple[DataFrame, dict[str, str]]:
    """The key columns under names that Great Expectations can handle, and a flag for null.

    Null is a key like any other and must occur at most once. Only the expectation about compound columns can count
    nulls, and it requires two columns. The flag is the second column for a key of one column.

    Returns:
        The frame, and for each of its key columns the name in the result.
    """
    names = {f"key_{position}": column for position, column in enumerate(key)}
    columns = [F.col(f"`{column.replace('`', '``')}`").alias(name) for name, column in names.items()]
    return frame.select(*columns).withColumn(_NULL_FLAG, F.col("key_0").isNull()), names


def _keys_unique(columns: list[str]) -> Expectation:
    kind = great_expectations().expectations.ExpectCompoundColumnsToBeUnique
    unique: Expectation = kind(column_list=columns, ignore_row_if="never")
    return unique


def rule_checks(
    frame: DataFrame, rules: Sequence[TableRule], parts: Mapping[str, Any], where: str, key: Sequence[str] = ()
) -> list[Check]:
    """Count the rows that break each rule, and name some. A condition that is null is broken, as in Delta.

    Args:
        frame: the rows, without the columns that name the part.
        rules: of the table; those without a condition are held by the writer of its files.
        key: the columns by which rows are named.

    Raises:
        SpecError: a condition is none that Spark can evaluate.
    """
    held = [rule for rule in rules if rule.condition]
    if not held:
        return []
    rows = frame.withColumns({name: F.lit(value) for name, value in parts.items()})
    broken = [~F.coalesce(F.expr(f"({rule.condition})").cast("boolean"), F.lit(False)) for rule in held]
    try:
        counts = rows.agg(*(F.count_if(one).alias(f"rule_{number}") for number, one in enumerate(broken))).collect()[0]
    except PySparkException as err:
        raise SpecError.saying(
            where, f"a rule of the table cannot be evaluated ({str(err).splitlines()[0][:200]}): "
            + ", ".join(f"{rule.name}: {rule.condition}" for rule in held),
            "drop that rule from the table, or publish into a table of its own",
        ) from None  # fmt: skip
    checks = []
    named = [F.col(f"`{column.replace('`', '``')}`") for column in key]
    for rule, of_rule, count in zip(held, broken, counts, strict=True):
        words = f"broken by {count:,} rows: {rule.condition}" if count else "holds"
        check = _own_check("result", "rule_of_the_table", not count, f"{count:,}", words, rule.name)
        some = rows.where(of_rule).select(*named).limit(SAMPLES).collect() if count and named else ()
        checks.append(check.model_copy(update={"keys": tuple(FailingKey(key=key_words(tuple(row))) for row in some)}))
    return checks
