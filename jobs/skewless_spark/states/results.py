"""Results of keys: computed from their states, by a stage that knows that a key has one, and otherwise by the merge.

A stage writes results in place of states (files of the kind ``EVALUATED``) if all rows of a run end in it, so that the
state of a key is its last one. Some keys may still have several, one for each task that had rows of theirs: keys that
the plan split, and null. Their rows have states and no result, and ``WHOLE`` is false there.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from skewless_spark.session.queries import map_in_batches
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.python_calls import PythonCall
from skewless_spark.states.python_evaluation import SPLITS, SPLITS_TYPE, evaluate_in_order

#: Whether a row of results is all that there is of its key.
WHOLE = "whole"


def with_native_results(states: DataFrame, columns: JobColumns, whole: str | None, also: Sequence[str]) -> DataFrame:
    """Native states with their results, see above.

    Args:
        states: of native aggregates.
        columns: the job's columns.
        whole: which keys have one state, a condition in SQL; None if all have.
        also: the names of further columns to keep.
    """
    kept = [F.col(name) for name in (*columns.keys, *also)]
    results = native_results(columns)
    if whole is None:
        return states.select(*kept, F.lit(True).alias(WHOLE), *results)
    is_whole = F.expr(whole)
    of_parts = [F.when(~is_whole, F.col(name)).alias(name) for one in columns.native for name in columns.states(one)]
    of_keys = [
        F.when(is_whole, result).alias(result_name(columns, one.name))
        for one, result in zip(columns.native, results, strict=True)
    ]
    return states.select(*kept, is_whole.alias(WHOLE), *of_parts, *of_keys)


def native_results(columns: JobColumns) -> list[Column]:
    """The results of the native aggregates, from their state columns."""
    return [
        one.definition.evaluate([F.col(name) for name in columns.states(one)], one.options, one.spark_type).alias(  # type: ignore[union-attr]
            result_name(columns, one.name)
        )
        for one in columns.native
    ]


def python_results_in_order(in_order: DataFrame, columns: JobColumns, *, splits: bool = False) -> DataFrame:
    """The results of a job with Python aggregates only.

    Args:
        in_order: its states, those of a key side by side, with the columns ``rows`` and ``python_rows``.
        columns: the job's columns.
        splits: whether to add the column ``SPLITS``; then the states are of one stage, and ``task`` is their split.

    Returns:
        One row per key: the key columns, ``rows``, and the results by their numbers.
    """
    calls = evaluating_calls(columns)
    text = [] if columns.key_is_text else [columns.key.cast("binary").alias("route_key")]
    about = ["rows", "python_rows", *(("task", "task_seconds", "setup_seconds") if splits else ())]
    batches = in_order.select(*columns.keys, *text, *about, *(call.state for call in calls))
    kinds = {field.name: field for field in batches.schema}
    schema = StructType([*(kinds[name] for name in [*columns.keys, "rows"]), *python_results(calls)])
    if splits:
        schema.add(SPLITS, from_arrow_type(SPLITS_TYPE))
    evaluate = evaluate_in_order(calls, columns.keys, newest=columns.job.forwards_states, splits=splits)
    return map_in_batches(batches, evaluate, schema)


def evaluating_calls(columns: JobColumns) -> list[PythonCall]:
    """The Python aggregates as they travel to workers that evaluate them."""
    return [call._replace(result=result_name(columns, call.name)) for call in columns.python_calls()]


def python_results(calls: Sequence[PythonCall]) -> list[StructField]:
    """The columns with the results of Python aggregates."""
    return [StructField(call.result, from_arrow_type(call.types.result)) for call in calls]


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
