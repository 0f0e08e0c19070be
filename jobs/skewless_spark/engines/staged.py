"""The engine ``staged``: rows are routed to their tasks wave by wave, and the planner moves keys after each.

A sum of a key in one input split is smaller than the key's rows there. Where nothing asks for the rows themselves in
their task, Spark combines states of each key before they cross the network. The task of a state is known from its key;
a row of a split key, or without a key, draws its task before it is added up. So each task has the same rows, keys and
counts as if the rows had been sent to it.

The rows themselves are sent where a task needs them: to keep to a budget, to see them in their order, for Python
aggregates, for states that are larger than a row, and for results that depend on the order in which states are merged
(a sum of floating-point numbers is rounded at each step).
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from skewless.documents.commit import CommittedFile
from skewless_spark.branches import branches_of, outcome_of_tasks
from skewless_spark.branches.native import Native
from skewless_spark.engines.engine import Engine, few_partitions
from skewless_spark.session.versions import place_by
from skewless_spark.sources.unit_reading import placing_settings
from skewless_spark.stage.routes import DRAWN, TASK, Stage, drawn_queue, route_drawn, routed_queue
from skewless_spark.states.committed_files import NATIVE


class Staged(Engine):
    """Rows are routed by the plan, and reduced up to its budget."""

    def outcome(self, stage: Stage) -> DataFrame:
        """See ``Engine``."""
        if _combines_early(stage):
            return _early_states(stage)
        tasks = len(stage.plan.tasks)
        return outcome_of_tasks(place_by(routed_queue(stage), tasks, TASK), stage, placed=tasks)

    def partitions(self, stage: Stage) -> int:
        """One for each task; of states that are sent in place of rows there may be few."""
        return few_partitions(stage) if _combines_early(stage) else super().partitions(stage)

    def settings(self, stage: Stage, backlog: Sequence[CommittedFile]) -> dict[str, str]:
        """Spark's own splits, but where rows have places by them."""
        del backlog
        job = stage.columns.job
        return placing_settings(job, job.admitted_units(stage.plan.waves))


def _combines_early(stage: Stage) -> bool:
    keeps_rows = stage.plan.budget_rows is not None or stage.columns.job.forwards_states
    return not keeps_rows and all(one.combines_exactly for one in branches_of(stage.columns))


def _early_states(stage: Stage) -> DataFrame:
    columns, native, queue = stage.columns, Native(stage.columns), drawn_queue(stage)
    # Counts of another stage's rows are made only where there are such rows.
    came = ("admitted", "forwarded") if "arrival" in queue.columns else ()
    made = native.made(queue, [*columns.groups, DRAWN], ("rows", *came))
    rest = [] if came else ["rows AS admitted", "CAST(0 AS BIGINT) AS forwarded"]
    states = route_drawn(made, stage.plan, columns.routing_sql())
    states = states.selectExpr("*", *rest, "CAST(0 AS BIGINT) AS left_over", f"'{NATIVE}' AS kind")
    return native.with_results(states, stage) if stage.evaluates else states
