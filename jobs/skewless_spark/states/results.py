"""Results of keys: computed from their states, by a stage that knows that a key has one, and otherwise by the merge.

A stage writes results in place of states (files of the kind ``EVALUATED``) if all rows of a run end in it, so that the
state of a key is its last one. Some keys may still have several, one for each task that had rows of theirs: keys that
the plan split, and null. Their rows have states and no result, and ``WHOLE`` is false there.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless_spark.states.columns import JobColumns

#: Whether a row of results is all that there is of its key.
WHOLE = "whole"


def result_name(columns: JobColumns, name: str) -> str:
    """The numbered name of a result until the last step: a user's name could equal that of an inner column."""
    return f"r{[one.name for one in columns.bound].index(name)}"


def result_names(columns: JobColumns) -> list[str]:
    """The numbered names of all results, in the order of the spec."""
    return [f"r{number}" for number in range(len(columns.bound))]


def own_names(columns: JobColumns) -> dict[str, str]:
    """The columns of the published result: for each numbered name of a key column or a result its own."""
    own = [*columns.job.spec.result_key, *(one.name for one in columns.bound)]
    return dict(zip([*columns.result_keys, *result_names(columns)], own, strict=True))


def named(result: DataFrame, columns: JobColumns) -> DataFrame:
    """Key columns and results by their own names."""
    return result.select(*(F.col(number).alias(name) for number, name in own_names(columns).items()))
