"""Python aggregates: states are made, merged and evaluated by ``GroupsAccumulator``s in Spark's workers."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from skewless_spark.session.session import map_in_batches
from skewless_spark.session.versions import numbers_of
from skewless_spark.stage.routes import TASK, Stage, split_keys
from skewless_spark.states.committed_files import PYTHON, ROUTE_KEY, StatesAtRest, states_at_rest
from skewless_spark.states.job_columns import HASH, JobColumns
from skewless_spark.states.python_calls import PythonCall, evaluate_batches
from skewless_spark.states.python_reduction import reduce_batches, states_schema

#: The states of a key as a list.
STATES = "states"


class Python:
    """All Python aggregates of a job; their states are made in one pass over the rows of a task."""

    kind, combines_exactly = PYTHON, False
    #: Keys are numbered as they come. All slots wait for the sort, which takes far longer by text than by number.
    order: tuple[str, ...] = ()

    def __init__(self, columns: JobColumns) -> None:
        self.columns = columns

    def states(self, rows: DataFrame, stage: Stage | None, *, counts: bool, placed: int = 0) -> DataFrame:
        """States of the rows of a task that are ``kept``; where the stage evaluates, whole keys have results."""
        kept = numbers_of(rows.where("kept"), placed, TASK)
        return self.made(kept, stage, counted=counts).withColumn("kind", F.lit(PYTHON))

    def made(
        self, rows: DataFrame, stage: Stage | None = None, *, apart: bool = True, counted: bool = False
    ) -> DataFrame:
        """Per key and, if there is one, task: the states of the aggregates, and the number of rows that they saw.

        Args:
            stage: what they are queued for. Its plan tells where states of keys are, and which keys have results.
            counted: whether the states have the counts of the ledger, if no row is left over.
        """
        at_rest, split = (None, None) if stage is None else self._of_stage(stage)
        columns = self.columns
        calls = columns.python_calls() if split is None else self.calls()
        arguments = [
            columns.argument(one).alias(call.argument) for one, call in zip(columns.python, calls, strict=True)
        ]
        about = [name for name in (TASK, "arrival") if name in rows.columns]
        text = [] if columns.key_is_text else [columns.key.cast("binary").alias(ROUTE_KEY)]
        hashed = F.expr(columns.row_hash).alias(HASH)
        batches = rows.select(*about, *text, *columns.groups, hashed, *arguments)
        reduce = reduce_batches(calls, columns.keys, apart=apart, at_rest=at_rest, split=split)
        made = states_schema(calls, columns.keys, batches.columns, at_rest, split)
        types = {field.name: field.dataType for field in batches.schema}
        fields = [StructField(name, from_arrow_type(kind) if kind else types[name]) for name, kind in made.items()]
        states = map_in_batches(batches, reduce, StructType(fields))
        if not counted:
            return states
        counts = {name: F.col(f"python_{name}") for name in ("rows", "admitted", "forwarded")}
        counts[HASH] = F.col("python_hash")
        return states.withColumns({**counts, "left_over": F.lit(0).cast("bigint")})

    def _of_stage(self, stage: Stage) -> tuple[StatesAtRest | None, frozenset[str | None] | None]:
        """Where tasks find the states of their keys; and, where they evaluate, which keys other tasks have rows of."""
        if not stage.evaluates:
            return states_at_rest(stage.run, self.columns, stage.plan), None
        # Rows without a key are drawn one by one, unless each key has one state.
        drawn = () if self.columns.job.forwards_states else (None,)
        return None, frozenset([*split_keys(stage.plan), *drawn])

    def with_results(self, outcome: DataFrame, stage: Stage) -> DataFrame:
        """What a stage that evaluates has made: whole keys have their results already."""
        del stage
        return outcome.select("*", *self.columns.counts)

    def merges(self) -> list[Column]:
        """The states of a key as a list, as aggregate expressions over those of stages and tasks, in their order."""
        names = [self.columns.states(one)[0] for one in self.columns.python]
        present = F.col("python_rows").isNotNull()
        if self.columns.job.forwards_states:
            # A state goes on from the one before: the newest one stands for all rows of its key.
            newest = F.max_by(F.struct(*names), F.when(present, F.col("stage")))
            return [F.array_compact(F.array(newest)).alias(STATES)]
        ordered = F.sort_array(F.collect_list(F.when(present, F.struct("stage", TASK, *names))))
        return [F.transform(ordered, lambda one: F.struct(*(one[name].alias(name) for name in names))).alias(STATES)]

    def merges_kept(self, states: DataFrame, place: str | None) -> list[Column]:
        """The same over lists of parts, in the order of a column; without one they are of one part."""
        if place is None:
            return [F.flatten(F.sort_array(F.collect_list(STATES))).alias(STATES)]
        if STATES not in states.columns:
            return []
        lists = F.sort_array(F.collect_list(F.struct(place, STATES)))
        return [F.flatten(F.transform(lists, lambda one: one[STATES])).alias(STATES)]

    def to_evaluate(self) -> list[Column]:
        """Accumulators that open keys need the text of a key, and so do error messages."""
        return [self.columns.key.cast("binary").alias(ROUTE_KEY), F.col(STATES)]

    def evaluated(self, selected: DataFrame) -> DataFrame:
        """What ``to_evaluate`` has selected, with results in place of states."""
        calls, kinds = self.calls(), {field.name: field for field in selected.schema}
        passed = [name for name in kinds if name not in {ROUTE_KEY, STATES}]
        results = [StructField(call.result, from_arrow_type(call.types.result)) for call in calls]
        schema = StructType([*(kinds[name] for name in passed), *results])
        return map_in_batches(selected, evaluate_batches(calls, passed), schema)

    def calls(self) -> list[PythonCall]:
        """The aggregates as they travel to workers that evaluate them."""
        return [call._replace(result=self.columns.result(call.name)) for call in self.columns.python_calls()]
