"""What an output's table asks of each row, looked at before the rows are published: no library of tables does that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.documents.quality import Check
from skewless.errors import SpecError
from skewless_lake.staged import TableRule


def rule_checks(frame: DataFrame, rules: Sequence[TableRule], parts: Mapping[str, Any], where: str) -> list[Check]:
    """Count the rows that break each rule. A condition that is null is broken, as in Delta.

    Args:
        frame: the rows, without the columns that name the part.
        rules: of the table; those without a condition are held by the writer of its files.
        parts: the values of the columns that name the part.
        where: the table, for messages.

    Raises:
        SpecError: a condition is none that Spark can evaluate.
    """
    held = [rule for rule in rules if rule.condition]
    if not held:
        return []
    rows = frame.withColumns({name: F.lit(value) for name, value in parts.items()})
    broken = [F.count_if(~F.coalesce(F.expr(f"({rule.condition})").cast("boolean"), F.lit(False))) for rule in held]
    try:
        counts = rows.agg(*(count.alias(f"rule_{number}") for number, count in enumerate(broken))).collect()[0]
    except PySparkException as err:
        raise SpecError.saying(
            where, f"a rule of the table cannot be evaluated ({str(err).splitlines()[0][:200]}): "
            + ", ".join(f"{rule.name}: {rule.condition}" for rule in held),
            "drop that rule from the table, or publish into a table of its own",
        ) from None  # fmt: skip
    return [_check(rule, count) for rule, count in zip(held, counts, strict=True)]


def _check(rule: TableRule, broken: int) -> Check:
    told = "holds" if not broken else f"broken by {broken:,} rows: {rule.condition}"
    return Check(
        subject="result",
        expectation="rule_of_the_table",
        column=rule.name,
        success=not broken,
        observed=f"{broken:,}",
        sentence=f"rule_of_the_table({rule.name}): {told}",
    )
