"""Keys in quarantine: rows of a result that fail an expectation are written beside those that are published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple, cast

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.quality import Check, Quarantine
from skewless.run.directory import Attempt
from skewless.spec.result import QUARANTINE_COLUMNS, ROW_OF
from skewless_spark.quality.last_good import last_good
from skewless_spark.quality.verdict import Verdict
from skewless_spark.result.output_formats import in_order, published_files
from skewless_spark.sources.uris import quoted
from skewless_spark.states.committed_files import QUARANTINED, RESULT, read_files, write_files, written

#: Where an attempt at the validation writes the keys that are published, and those in quarantine.
_KEPT, _HELD = "kept", "quarantine"
_REASON, _VALUE = QUARANTINE_COLUMNS


class Split(NamedTuple):
    """A result in two parts, as an attempt has written it.

    Attributes:
        files: those that are published in place of the result's own, and those in quarantine.
        kept: rows of the result that are published.
        held: rows in quarantine.
        rows: of the input that those in quarantine stand for; None if the result does not count them.
        flagged: of those in quarantine, how many fail each expectation.
        in_place: rows of earlier parts that are published in their place.
    """

    files: tuple[CommittedFile, ...]
    kept: int
    held: int
    rows: int | None
    flagged: tuple[int, ...] = ()
    in_place: int = 0

    def quarantine(self, released: int = 0) -> Quarantine:
        """What is in quarantine, as the report of the run has it."""
        return Quarantine(keys=self.held, rows=self.rows, released=released, in_place=self.in_place)


def balance_of_keys(kept: int, held: int, keys: int, wrong: str = "") -> Check:
    """Whether each key of the result is published or in quarantine, and no other.

    Args:
        wrong: which rows that fail an expectation are not in quarantine; empty if all are.
    """
    numbers = f"{keys:,} keys of the result, {kept:,} published, {held:,} in quarantine"
    return Check(
        subject="quarantine", expectation="keys_balance", column="", success=kept + held == keys and not wrong,
        observed=numbers, sentence=f"keys_balance: {numbers}{f'; {wrong}' if wrong else ''}",
    )  # fmt: skip


def set_apart(
    spark: SparkSession, attempt: Attempt, job: Job, result: DataFrame, checks: Sequence[Check], own: Sequence[Verdict]
) -> tuple[Split, str] | None:
    """Write the keys that fail an expectation of severity quarantine beside all others.

    Args:
        checks: all of the run; the last ones are those on ``own``, the spec's expectations.

    Returns:
        The two parts, and which rows that fail an expectation are not in quarantine, or "" if all are; None if there
        are none, or if nothing is published anyway: then nothing is read or written. Where the spec asks for
        ``in_place`` and the output is a folder, rows are always written anew, as they get the column ``ROW_OF``.
    """
    last = checks[len(checks) - len(own) :]
    failing = [one for one, check in zip(own, last, strict=True) if check.verdict == "quarantined"]
    rewritten = job.spec.quality.columns and not job.spec.output.is_table
    if not (failing or rewritten) or any(check.fails for check in checks):
        return None
    longer = "_" * max(map(len, result.columns))  # so that no column of the result has the name of a flag
    flags = {f"{longer}{at}": F.coalesce(cast("Column", one.condition), F.lit(False)) for at, one in enumerate(failing)}
    found = split(spark, attempt, job, _with_reasons(result, failing, flags), flags)
    wrong = [
        f"{flagged:,} rows in quarantine of {one.unexpected:,} that fail {one.name}"
        for one, flagged in zip(failing, found.flagged, strict=True)
        if flagged != one.unexpected
    ]
    return found, "; ".join(wrong)


def _with_reasons(result: DataFrame, failing: Sequence[Verdict], flags: Mapping[str, Column]) -> DataFrame:
    """A result with the flags, the expectations that a row fails, and the values that fail; null if it fails none.

    Conditions may be of windows over the whole result, such as that values are unique.
    """
    reasons, values = (
        [F.when(F.col(flag), text) for flag, text in zip(flags, texts, strict=True)]
        for texts in ([F.lit(one.name) for one in failing], [_values(result, one.columns) for one in failing])
    )
    some = reduce(or_, map(F.col, flags), F.lit(False))
    return result.withColumns(dict(flags)).withColumns(
        {_REASON: F.when(some, F.concat_ws("; ", *reasons)), _VALUE: F.when(some, F.concat_ws("; ", *values))}
    )


def split(spark: SparkSession, attempt: Attempt, job: Job, marked: DataFrame, flags: Collection[str] = ()) -> Split:
    """Write the rows of a result without a reason as those that are published, and all others beside them.

    Args:
        marked: a result with the two columns of the quarantine.
        flags: further columns, that say which rows fail each expectation.
    """
    columns = [_column(name) for name in marked.columns if name not in {*QUARANTINE_COLUMNS, *flags}]
    output, calls = job.spec.output, job.spec.aggregates
    counts = [name for name, call in calls.items() if call.function == "count" and call.column is None]
    counted, held = Observation("keys in quarantine"), marked.where(F.col(_REASON).isNotNull()).coalesce(1)
    if flags:
        held = held.observe(counted, *(F.count_if(flag).alias(flag) for flag in flags))
    write_files(held.select(*columns, *QUARANTINE_COLUMNS), attempt, _HELD)
    of_held = [file for file in written(attempt, QUARANTINED, _HELD, keep_empty=True) if file.rows]
    kept, earlier, rows = marked.where(F.col(_REASON).isNull()).select(*columns), None, 0 if counts else None
    if of_held:
        apart = read_files(spark, attempt.run, of_held)
        if counts:
            rows = int(apart.agg(F.sum(_column(counts[0]))).collect()[0][0])
        if job.spec.quality.columns and (earlier := last_good(spark, job, apart, kept)) is not None:
            kept = kept.unionByName(earlier)
    write_files(in_order(kept, output) if output.sort else kept.coalesce(output.files), attempt, _KEPT)
    of_kept = written(attempt, RESULT, _KEPT) or written(attempt, RESULT, _KEPT, keep_empty=True)[:1]
    in_place = (
        0 if earlier is None else read_files(spark, attempt.run, of_kept).where(F.col(ROW_OF).isNotNull()).count()
    )
    return Split(
        (*of_kept, *published_files(spark, attempt, of_kept, job), *of_held),
        sum(file.rows for file in of_kept) - in_place,
        sum(file.rows for file in of_held),
        rows,
        tuple(int(counted.get[flag]) for flag in flags),
        in_place,
    )


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _values(result: DataFrame, columns: Sequence[str]) -> Column:
    """What is in some columns, as text; bytes in base64, as not all are text."""
    texts = [
        F.base64(name) if isinstance(result.schema[name].dataType, BinaryType) else F.col(name).cast("string")
        for name in columns
    ]
    return F.concat_ws(", ", *(F.coalesce(text, F.lit("null")) for text in texts))
