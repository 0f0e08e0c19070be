"""Validation: what must hold before anything is published, from top to bottom, with Great Expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from skewless.documents.commit import CommittedFile, StepCommit
from skewless.documents.job import Job
from skewless.documents.ledger import balance
from skewless.documents.quality import InputChecks, QualityReport
from skewless.history import failed_checks, figures_of, judged
from skewless.run.directory import INPUT_CHECKS, QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, Fence, RunDirectory
from skewless.run.step_names import last_step_of
from skewless_lake.publication import nights_of
from skewless_lake.staged_files import OutputPart
from skewless_lake.staging import table_rules
from skewless_spark.quality.expectations import (
    SAMPLES,
    check_expectations,
    columns_check,
    great_expectations,
    key_check,
    own_check,
    rule_checks,
)
from skewless_spark.quality.quarantine import set_apart
from skewless_spark.quality.verdict import NEVER_NULL, Verdict, column_figures, write_reports
from skewless_spark.result.output_formats import stage
from skewless_spark.session.session import planned_once
from skewless_spark.session.step_lease import once
from skewless_spark.states.committed_files import RESULT, read_files

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation


#: In the ``meta`` of an expectation, while it is validated: its position among all.
_POSITION = "skewless position"
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
    return once(run, QUALITY_STEP, run.quality, partial(_validate, spark, run))


def _validate(spark: SparkSession, run: RunDirectory, fence: Fence | None) -> QualityReport:
    job, result = run.job(), run.committed(RESULT_STEP)
    attempt, keys, key = run.new_attempt(QUALITY_STEP, fence), result.count("keys"), job.spec.result_key
    own = check_expectations(job.spec, "job.json")
    # The input, as prepare has judged it, and the ledger.
    checks = list(run.read(INPUT_CHECKS, InputChecks).checks if job.facts is not None else ())
    ledger = balance(job, run.reports(), result.count("rows"), run.part_lines(), result.counts.get("hash"))
    numbers = f"{ledger.input_rows:,} rows of input, {ledger.state_rows:,} rows in the states"
    outcome = "; ".join(ledger.problems) or numbers
    checks.append(own_check("ledger", "ledger_balances", ledger.balanced, numbers, outcome))
    # Of several windows, the result has the rows of each.
    rows = sum(line.rows for line in ledger.windows) if job.spec.covered.several else result.count("rows")
    rules, names = table_rules(OutputPart.of(job)) if _is_in_table(job) else ((), [])
    with _result_of(spark, run, result) as (frame, small), planned_once(spark) if small else nullcontext():
        # The result: its columns and keys, what the table asks of its rows, and what Great Expectations says of it.
        of_result = [columns_check(frame, job.spec.published), *([key_check(frame, key)] if job.spec.keyed else [])]
        # A column that the table has and the result lacks is null in each row.
        lacking = dict.fromkeys(name for name in names if name not in frame.columns)
        of_result += rule_checks(frame, rules, lacking | OutputPart.of(job).values, job.output_path, key)
        built_in = _built_in(job, rows, keys)
        validation = _validated(frame, [*built_in, *own], key, job.spec.quality.show, empty=not keys)
        of_result += [verdict.check("result") for verdict in validation.verdicts[: len(built_in)]]
        of_spec = validation.verdicts[len(built_in) :]
        judgements = [
            verdict.judged(expectation, keys)
            for verdict, expectation in zip(of_spec, job.spec.quality.expectations, strict=True)
        ]
        # Its figures, beside those of the nights around.
        figures = figures_of(job, run.reports(), ledger, keys, column_figures(job, frame))
        bands = judged(job, figures, nights_of)
        checks += [*failed_checks(bands), *of_result]
        # The keys that are left out. If nothing is published anyway, nothing is written.
        failing = [
            verdict for verdict, check in zip(of_spec, judgements, strict=True) if check.verdict == "quarantined"
        ]
        apart = None
        if failing and not any(check.fails for check in (*checks, *judgements)):
            apart = set_apart(spark, attempt, job, frame, keys, failing, validation.batch.data.execution_engine)
            checks.append(apart.balance)
    checks += judgements
    report = QualityReport(
        success=not any(check.fails for check in checks),
        keys=keys,
        checks=tuple(checks),
        ledger=ledger,
        columns={field.name: field.dataType.simpleString() for field in frame.schema.fields},
        quarantine=apart.quarantine if apart else None,
        figures=figures,
        bands=bands,
    )
    files = apart.files if apart else tuple[CommittedFile, ...]()
    if report.success and _is_in_table(job):
        stage(run, attempt, files, rules)
    attempt.write(QUALITY_REPORT, report)
    reports = write_reports(attempt, job, report, validation.document)
    attempt.commit([*files, *reports], {"checks": len(checks), "failed": sum(check.fails for check in checks)})
    return report


def _is_in_table(job: Job) -> bool:
    return job.spec.output.is_table and last_step_of(job.spec).publishes


@contextmanager
def _result_of(spark: SparkSession, run: RunDirectory, result: StepCommit) -> Iterator[tuple[DataFrame, bool]]:
    files = result.of_kind(RESULT)
    small = sum(file.size_bytes for file in files) <= ONE_PARTITION_BYTES
    frame = read_files(spark, run, files)
    frame = (frame.coalesce(1) if small else frame).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame, small
    finally:
        frame.unpersist()


def _built_in(job: Job, rows: int, keys: int) -> list[Expectation]:
    """The expectations that every result must meet, whatever the spec.

    Args:
        rows: of the input that the rows of the result stand for, all together.
    """
    gxe = great_expectations().expectations
    spec = job.spec
    calls = {name: call for name, call in spec.values.items() if call is not None}
    joined = spec.joined is not None or (spec.result is not None and spec.result.query is not None)
    left_out = joined or (spec.result is not None and spec.result.where is not None)
    counts = (
        [] if left_out else [name for name, call in calls.items() if call.function == "count" and call.column is None]
    )
    full = [name for name, call in calls.items() if call.function in NEVER_NULL]
    # Without keys, rows would be lost; with more keys than rows, keys would be invented, unless lookups make them.
    least, most = 0 if left_out else min(rows, 1), len(spec.covered.lengths) or 1 if spec.of_all_rows else 0
    between = gxe.ExpectTableRowCountToBeBetween(min_value=least, max_value=max(rows, most))
    return [
        gxe.ExpectTableRowCountToEqual(value=keys),
        *(() if joined else (between,)),
        # The sum over no keys is null in SQL, which is correct if there were no rows.
        *(
            gxe.ExpectColumnSumToBeBetween(column=name, min_value=rows, max_value=rows)
            for name in counts
            if rows or keys
        ),
        *(gxe.ExpectColumnValuesToNotBeNull(column=name) for name in full),
    ]


class _Validation(NamedTuple):
    """What Great Expectations says of a result: a verdict on each expectation, in their order; and all as JSON."""

    batch: Any
    verdicts: list[Verdict]
    document: dict[str, Any]


def _validated(
    frame: DataFrame, expectations: Sequence[Expectation], key: Sequence[str], show: Sequence[str], *, empty: bool
) -> _Validation:
    """Validate a result, all expectations at once, so that Great Expectations computes them in few Spark jobs.

    Args:
        key: the columns by which rows with unexpected values are named.
        show: further columns of these rows that are shown.
        empty: whether it has no rows: it has no mean, and cannot fail an expectation about one.
    """
    gx = great_expectations()
    context = gx.get_context(mode="ephemeral")  # it neither reads nor writes the user's home
    context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
    source = context.data_sources.add_or_update_spark("spark", persist=False)
    batches = source.add_dataframe_asset("result").add_batch_definition_whole_dataframe("result")
    batch = batches.get_batch({"dataframe": frame})
    # SUMMARY returns at most a sample of values, whatever the size of the result. Samples take jobs for each
    # expectation, and most have nothing unexpected.
    counts: dict[str, Any] = {"result_format": "SUMMARY", "partial_unexpected_count": 0}
    names = list(dict.fromkeys([*key, *show]))
    samples = {**counts, "partial_unexpected_count": SAMPLES, "unexpected_index_column_names": names}
    statistics = gx.expectations.expectation.ColumnAggregateExpectation
    asked = [(number, one) for number, one in enumerate(expectations) if not (empty and isinstance(one, statistics))]
    for number, expectation in asked:  # results come in another order than expectations
        expectation.meta = {**(expectation.meta or {}), _POSITION: number}
    suite = gx.ExpectationSuite(name="result", expectations=[expectation for _, expectation in asked])
    document = batch.validate(suite, result_format=counts).to_json_dict()
    results = {result["expectation_config"]["meta"].pop(_POSITION): result for result in document["results"]}
    verdicts = []
    for number, expectation in enumerate(expectations):
        if number not in results:
            verdicts.append(Verdict(expectation, {"success": True, "result": {}}))
            continue
        verdict = Verdict.of(expectation, results[number])
        # An expectation that Spark cannot evaluate fails all that share its job: these are evaluated one by one.
        if verdict.fault or verdict.unexpected:
            again = batch.validate(expectation, result_format=samples)
            verdict = Verdict.of(expectation, again.to_json_dict(), key)
        verdicts.append(verdict)
    document["results"] = [verdicts[number].found for number, _ in asked]
    for config in (result["expectation_config"] for result in document["results"]):
        config["meta"].pop(_POSITION, None)
        if "id" in config["meta"]:  # only now: no suite takes what has an id of another one
            config["id"] = config["meta"]["id"]
    return _Validation(batch, verdicts, document)
