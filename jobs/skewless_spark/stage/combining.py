"""The engine ``combine``: states are made where rows are read, and merged before they are written where that is all.

Spark itself combines native states key by key. The Python states of a run that ends in its stage are merged and
evaluated behind an exchange of the same query, in the order of keys and splits, as the merge would do it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from skewless.document import LARGEST_COUNT
from skewless.documents.stage_report import LONGEST_HEAD_KEY
from skewless.routing.plan import RoutingPlan
from skewless_spark.stage.reduction import (
    COUNTS,
    SLOT,
    counted_python_states,
    native_state_columns,
    python_states,
    slot_of_key,
    union_of,
)
from skewless_spark.stage.routing import TASK
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import NATIVE, PYTHON
from skewless_spark.states.python_evaluation import SPLITS
from skewless_spark.states.python_reduction import ADMITTED
from skewless_spark.states.results import (
    WHOLE,
    evaluates_in_stage,
    python_results_in_order,
    result_names,
    with_native_results,
)

#: The text of a key that has one state or one result, if it is heavy.
HEAVY = "heavy_key"
#: What a row of results keeps of its state: the rest is the same for all, or can be told from these.
KEPT = (TASK, "rows", "admitted", SLOT)


class StateCounts:
    """Rows that the states of the engine ``combine`` stand for, counted while they are written.

    Native and Python states are counted separately, since each of the two must have seen every row.
    """

    def __init__(self) -> None:
        self._observed: dict[str, Observation] = {}

    def counting(self, states: DataFrame, kind: str) -> DataFrame:
        """Count the rows of a frame of states, or of results, with the columns ``rows`` and ``admitted``."""
        self._observed[kind] = Observation(f"skewless {kind}")
        sums = [F.sum(name).alias(name) for name in ("rows", "admitted")]
        return states.observe(self._observed[kind], *sums)

    def of(self, kind: str) -> tuple[int, int] | None:
        """All rows, and the rows that came with the wave; None if no such states were written."""
        observed = self._observed.get(kind)
        if observed is None:
            return None
        return int(observed.get.get("rows") or 0), int(observed.get.get("admitted") or 0)


def combined_outcome(
    native: DataFrame | None, python: DataFrame | None, columns: JobColumns, plan: RoutingPlan, counts: StateCounts
) -> DataFrame:
    """States made where rows are read, or the results of all keys if the run ends in this stage.

    Args:
        native: the rows for the native states; None if there are none.
        python: the rows for the Python states; None if there are none.
        columns: the job's columns.
        plan: the stage's plan.
        counts: told the rows of both.
    """
    evaluated, branches = evaluates_in_stage(columns, plan), []
    if native is not None:
        made = ["count(1) AS rows", f"count(IF(arrival = {ADMITTED}, 1, NULL)) AS admitted"]
        states = native_state_columns(native, columns, columns.groups, made)
        # A key has one native state, combined from all splits, so it belongs to no split.
        nothing = [f"CAST(0 AS BIGINT) AS {name}" for name in ("left_over", "forwarded")]
        about = [f"0 AS {TASK}", f"'{NATIVE}' AS kind", *nothing, *_named(columns, plan)]
        states = counts.counting(states, NATIVE).selectExpr("*", *about)
        if evaluated:
            return with_native_results(states, columns, None, (*KEPT, HEAVY))
        branches.append(states)
    if python is not None:
        # Without a backlog, all rows came with the wave. States, not rows, are given the number of their split.
        rows = python if plan.epoch else python.drop("arrival")
        if evaluated:
            return _evaluated(rows, columns, plan, counts)
        seen = counted_python_states(rows.withColumn("kept", F.lit(True)), columns, apart=False)
        seen = seen.withColumn(TASK, F.spark_partition_id())
        seen = counts.counting(seen, PYTHON).withColumn("kind", F.lit(PYTHON))
        branches.append(seen if native is None else seen.drop(*COUNTS))
    return union_of(branches)


def _evaluated(rows: DataFrame, columns: JobColumns, plan: RoutingPlan, counts: StateCounts) -> DataFrame:
    """The result of each key, from the Python states of all splits."""
    states = python_states(rows, columns, apart=False).withColumns(
        {TASK: F.spark_partition_id(), "rows": F.col("python_rows")}
    )
    # In as many partitions as the stage shuffles into, see ``state_partitions``. The states of a key are merged in the
    # order of splits, since sums of floating-point numbers are rounded at each step.
    in_order = states.repartition(*columns.keys).sortWithinPartitions(*columns.keys, TASK)
    results = python_results_in_order(in_order, columns, splits=True)
    about = [f"0 AS {TASK}", "rows", "rows AS admitted", *_named(columns, plan), f"true AS {WHOLE}", SPLITS]
    return counts.counting(results.selectExpr(*columns.keys, *about, *result_names(columns)), PYTHON)


def _named(columns: JobColumns, plan: RoutingPlan) -> list[str]:
    """In SQL, the columns ``SLOT`` and ``HEAVY`` of rows that are one for each key.

    A key is heavy if it has at least one in ``head_limit`` of all listed rows: at most ``head_limit`` keys have.
    """
    key, limit = columns.routing_sql(), columns.job.spec.routing.head_limit
    least = -(-columns.job.admitted_rows(plan.waves) // limit) if limit else LARGEST_COUNT
    heavy = f"is_valid_utf8({key}) AND length({key}) <= {LONGEST_HEAD_KEY} AND rows >= {least}"
    return [slot_of_key(columns, plan), f"IF({heavy}, {key}, NULL) AS {HEAVY}"]
