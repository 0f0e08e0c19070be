"""Keys in quarantine: rows of a result that fail an expectation are written beside those that are published."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.quality import Check, Quarantine
from skewless.run.directory import Attempt
from skewless.spec.result import QUARANTINE_COLUMNS
from skewless_spark.quality.expectations import great_expectations
from skewless_spark.quality.verdict import Verdict
from skewless_spark.result.output_formats import in_order, published_files
from skewless_spark.session.versions import nested_types
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.states.committed_files import QUARANTINED, RESULT, read_files, write_files, written

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

#: Where an attempt at the validation writes the keys that are published, and those in quarantine.
_KEPT, _HELD = "kept", "quarantine"


class Apart(NamedTuple):
    """A result in two parts, as an attempt has written it."""

    files: tuple[CommittedFile, ...]
    """Those that are published in place of the result's own, and those in quarantine; none if all is published."""
    quarantine: Quarantine
    """What is left out, and what is accepted."""
    balance: Check
    """Whether each key of the result is published or in quarantine, and each that fails is in quarantine."""


def set_apart(
    spark: SparkSession,
    attempt: Attempt,
    job: Job,
    result: DataFrame,
    keys: int,
    failing: Sequence[Verdict],
    engine: Any,
) -> Apart:
    """Write the keys that fail an expectation of severity quarantine beside all others, but for those accepted.

    Args:
        result: the rows of the result, each of another key.
        failing: the verdicts that put keys in quarantine.
        engine: of Great Expectations, which has reached them.
    """
    names = job.spec.result_key
    own = "_" * (1 + max(map(len, result.columns)))  # no column of the result has a name that begins so
    # Columns of the rows that fail: their key, which expectation it is, its text, and the values that fail it.
    key_columns, at, reason, value = [f"{own}{number}" for number in range(len(names))], f"{own}a", f"{own}r", f"{own}v"
    failed = reduce(DataFrame.unionByName, [
        # A condition may be of a window, which no filter can have.
        rows.withColumn(f"{own}u", condition).where(F.col(f"{own}u")).select(
            *(F.col(quoted(name)).alias(column) for name, column in zip(names, key_columns, strict=True)),
            F.lit(number).alias(at),
            F.lit(verdict.name).alias(reason),
            values_as_text(result.schema, verdict.columns).alias(value),
        )
        for number, verdict in enumerate(failing)
        for rows, condition in [_unexpected_rows(engine, verdict.expectation)]
    ]).persist()  # fmt: skip
    try:
        counts = {row[at]: row["count"] for row in failed.groupBy(at).count().collect()}
        wrong = [
            f"{counts.get(number, 0):,} rows of {verdict.unexpected:,} that fail {verdict.name}"
            for number, verdict in enumerate(failing)
            if counts.get(number, 0) != verdict.unexpected
        ]
        left, accepted, unmatched = _without_accepted(spark, job, failed, result.schema, key_columns)
        by_key = left.groupBy(*key_columns).agg(F.sort_array(F.collect_list(F.struct(at, reason, value))).alias(own))
        texts = [F.concat_ws("; ", F.col(own)[field]).alias(name)
                 for field, name in zip((reason, value), QUARANTINE_COLUMNS, strict=True)]  # fmt: skip
        same = reduce(and_, (F.col(quoted(name)).eqNullSafe(F.col(column))
                             for name, column in zip(names, key_columns, strict=True)))  # fmt: skip
        columns = [F.col(quoted(name)) for name in result.columns]
        marked = result.join(by_key, same, "left")
        held = marked.where(F.col(own).isNotNull()).select(*columns, *texts)
        write_files(held.coalesce(1), attempt, _HELD)
        of_held = [file for file in written(attempt, QUARANTINED, _HELD, keep_empty=True) if file.rows]
        files = list(of_held)
        if of_held:
            kept, output = marked.where(F.col(own).isNull()).select(*columns), job.spec.output
            write_files(in_order(kept, output) if output.sort else kept.coalesce(output.files), attempt, _KEPT)
            of_kept = written(attempt, RESULT, _KEPT) or written(attempt, RESULT, _KEPT, keep_empty=True)[:1]
            files = [*of_kept, *published_files(spark, attempt, of_kept, job), *of_held]
    finally:
        failed.unpersist()
    in_quarantine = sum(file.rows for file in of_held)
    published = sum(file.rows for file in of_kept) if of_held else keys
    numbers = f"{keys:,} keys of the result, {published:,} published, {in_quarantine:,} in quarantine"
    balance = Check(
        subject="quarantine", expectation="keys_balance", column="", observed=numbers,
        success=published + in_quarantine == keys and not wrong, found="; ".join([numbers, *wrong]),
    )  # fmt: skip
    rows = _rows_of(spark, attempt, job, of_held)
    quarantine = Quarantine(keys=in_quarantine, rows=rows, accepted=accepted, unmatched=unmatched)
    return Apart(tuple(files), quarantine, balance)


def _unexpected_rows(engine: Any, expectation: Expectation) -> tuple[DataFrame, Column]:
    """The rows that an expectation of single rows is about, and whether one fails it, as the engine has them."""
    gx, metric = great_expectations().validator, getattr(expectation, "map_metric", "")
    counted = expectation.get_validation_dependencies(engine).metric_configurations[f"{metric}.unexpected_count"]
    condition, rows, columns = gx.metrics_calculator.MetricsCalculator(engine).get_metric(
        gx.metric_configuration.MetricConfiguration(
            f"{metric}.condition", counted.metric_domain_kwargs, counted.metric_value_kwargs
        )
    )
    return engine.get_domain_records({**rows, **columns}), condition


def _without_accepted(
    spark: SparkSession, job: Job, failed: DataFrame, schema: StructType, key_columns: Sequence[str]
) -> tuple[DataFrame, int, int]:
    """The rows that fail and are not accepted; how many keys are accepted, and how many of ``accept`` fail nothing."""
    accept = job.spec.quality.accept
    if not accept:
        return failed, 0, 0
    if accept == "all":
        return failed.limit(0), failed.select(*key_columns).distinct().count(), 0
    # With several windows, the key of a result is that which is accepted, and the window.
    columns = zip(job.spec.of_results.key, key_columns, strict=False)
    named = {f"{column}t": (column, schema[name].dataType) for name, column in columns}
    texts = [*named]
    with_text = failed.withColumns({
        text: F.hex(column) if isinstance(kind, BinaryType) else F.col(column).cast("string")
        for text, (column, kind) in named.items()
    })  # fmt: skip
    listed = spark.createDataFrame([*{*accept}], ", ".join(f"k{number} string" for number in range(len(texts))))
    same = reduce(and_, (F.col(text).eqNullSafe(F.col(f"k{number}")) for number, text in enumerate(texts)))
    matched = with_text.join(F.broadcast(listed), same, "left_semi")
    accepted = matched.select(*key_columns).distinct().count()
    unmatched = len({*accept}) - matched.select(*texts).distinct().count()
    return with_text.join(F.broadcast(listed), same, "left_anti"), accepted, unmatched


def _rows_of(spark: SparkSession, attempt: Attempt, job: Job, held: Sequence[CommittedFile]) -> int | None:
    """How many rows of the input the keys in quarantine stand for; None if the result does not count them."""
    calls = job.spec.values.items()
    counts = [name for name, call in calls if call is not None and call.function == "count" and call.column is None]
    if not counts or not held:
        return 0 if counts else None
    return int(read_files(spark, attempt.run, held).agg(F.sum(F.col(quoted(counts[0])))).collect()[0][0])


def values_as_text(schema: StructType, columns: Sequence[str]) -> Column:
    """What is in some columns, as text."""
    return F.concat_ws(", ", *(F.coalesce(_text(name, schema[name].dataType), F.lit("null")) for name in columns))


def _text(name: str, kind: DataType) -> Column:
    column = F.col(quoted(name))
    if isinstance(kind, BinaryType):
        return F.base64(column)
    if isinstance(kind, nested_types()):
        return F.to_json(column, {"ignoreNullFields": "false"})
    return column.cast("string")
