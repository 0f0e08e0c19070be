"""Checks of ours on the rows of a result, beside those of Great Expectations, which has no null keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.documents.quality import Check, FailingKey
from skewless.errors import SpecError
from skewless_lake.staged_files import TableRule
from skewless_spark.quality.verdict import key_words
from skewless_spark.sources.uris import quoted

#: At most so many keys that fail are named.
SAMPLES = 10


def own_check(
    subject: str, kind: str, success: bool, observed: str, outcome: str, column: str = "", keys: Sequence[Any] = ()
) -> Check:
    """A check of ours, which is no expectation of Great Expectations."""
    sentence = f"{kind}({column}): {outcome}" if column else f"{kind}: {outcome}"
    named = tuple(FailingKey(key=key_words(tuple(key))) for key in keys)
    return Check(
        subject=subject, expectation=kind, column=column, success=success, observed=observed, sentence=sentence,
        keys=named,
    )  # fmt: skip


def columns_check(frame: DataFrame, columns: Sequence[str]) -> Check:
    """Whether a result has the columns of the spec and no other."""
    odd = sorted({*frame.columns} ^ {*columns})
    outcome = f"lacking or not of the spec: {', '.join(odd)}"[:300] if odd else "holds"
    return own_check("result", "columns_of_the_spec", not odd, f"{len(frame.columns)}", outcome)


def key_check(frame: DataFrame, key: Sequence[str]) -> Check:
    """Whether each key occurs once; null is a key as any other."""
    names = [f"k{number}" for number in range(len(key))]
    rows = frame.select(*(F.col(quoted(column)).alias(name) for column, name in zip(key, names, strict=True)))
    twice = rows.groupBy(*names).count().where("count > 1")
    some = twice.select(*names).limit(SAMPLES).collect()
    count = twice.count() if len(some) == SAMPLES else len(some)
    outcome = f"{count:,} keys occur more than once" if count else "holds"
    return own_check("result", "each_key_once", not count, f"{count:,}", outcome, ", ".join(key), some)


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
    named = [F.col(quoted(column)) for column in key]
    for rule, of_rule, count in zip(held, broken, counts, strict=True):
        outcome = f"broken by {count:,} rows: {rule.condition}" if count else "holds"
        some = rows.where(of_rule).select(*named).limit(SAMPLES).collect() if count and named else ()
        checks.append(own_check("result", "rule_of_the_table", not count, f"{count:,}", outcome, rule.name, some))
    return checks
