"""Native states that are made where rows are read, and then sent to their tasks in place of the rows.

A sum of a key in one input split is smaller than the key's rows there. Where nothing asks for the rows themselves in
their task, Spark combines states of each key before they cross the network. The task of a state is known from its key;
a row of a split key, or without a key, draws its task before it is added up. So each task has the same rows, keys and
counts as if the rows had been sent to it.

The rows themselves are sent where a task needs them: to keep to a budget, to see them in their order, for Python
aggregates, for states that are larger than a row, and for results that depend on the order in which states are merged
(a sum of floating-point numbers is rounded at each step).
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from skewless.documents.decision import EngineChoice
from skewless.routing.plan import RoutingPlan
from skewless_spark.stage.reduction import native_state_columns
from skewless_spark.stage.routing import DRAWN, route_drawn
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import NATIVE
from skewless_spark.states.python_reduction import ADMITTED, FORWARDED

#: Rows whose states one partition takes in.
_PARTITION_ROWS = 50_000


def makes_early_states(columns: JobColumns, plan: RoutingPlan) -> bool:
    """Whether the states of a routed stage are made before rows are sent to their tasks."""
    if plan.engine != "staged" or plan.budget_rows is not None or columns.python or columns.job.forwards_states:
        return False
    return all(one.definition.combines_exactly(one.spark_types) for one in columns.native)  # type: ignore[union-attr]


def state_partitions(columns: JobColumns, plan: RoutingPlan, backlog_rows: int, choice: EngineChoice | None) -> int:
    """Into how many partitions a stage shuffles: one for each task, or fewer if they would get few states.

    A partition costs some ten milliseconds and a file. There are at most as many states as rows.

    Args:
        columns: the job's columns.
        plan: the stage's plan.
        backlog_rows: the rows that the last stage left over.
        choice: of the stage's engine, with the states that it expects; None where none was made.
    """
    if plan.engine != "combine" and not makes_early_states(columns, plan):
        return len(plan.tasks)
    queued = columns.job.admitted_rows(plan.waves) + backlog_rows
    states = choice.states if choice is not None and plan.engine == "combine" and choice.states else queued
    return min(len(plan.tasks), -(-min(queued, states) // _PARTITION_ROWS) or 1)


def early_outcome(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """The states of a stage, as ``reduction.staged_outcome`` returns them.

    Args:
        queue: the rows, as ``queue.drawn_queue`` returns them.
        columns: the job's columns.
        plan: the stage's plan, which has no budget.
    """
    # Counts of another stage's rows are made only where there are such rows.
    came = {"admitted": ADMITTED, "forwarded": FORWARDED} if "arrival" in queue.columns else {}
    counts = [f"count(IF(arrival = {how}, 1, NULL)) AS {name}" for name, how in came.items()]
    made = native_state_columns(queue, columns, [*columns.groups, DRAWN], ["count(1) AS rows", *counts])
    rest = [] if came else ["rows AS admitted", "CAST(0 AS BIGINT) AS forwarded"]
    states = route_drawn(made, plan, columns.routing_sql())
    return states.selectExpr("*", *rest, "CAST(0 AS BIGINT) AS left_over", f"'{NATIVE}' AS kind")
