"""A stage, and what is queued for it: the admitted wave and the backlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from skewless.documents.commit import CommittedFile, StepCommit
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.aggregates.keys import bounded
from skewless_spark.sources.unit_reading import ORIGIN, Tally, read_units
from skewless_spark.stage.routes import TASK, draw, drawing_rows, route
from skewless_spark.states.committed_files import BACKLOG, read_files
from skewless_spark.states.job_columns import JobColumns
from skewless_spark.states.python_reduction import ADMITTED, FORWARDED, STAYED

#: How a routed row came into the stage.
_ARRIVAL = f"CASE WHEN last_task IS NULL THEN {ADMITTED} WHEN last_task = {TASK} THEN {STAYED} ELSE {FORWARDED} END"


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage that is to be reduced.

    Attributes:
        tally: counts the rows that are read, where the listing does not.
        in_pieces: whether its tasks are reduced one by one, by clusters that share it.
    """

    spark: SparkSession
    run: RunDirectory
    columns: JobColumns
    plan: RoutingPlan
    tally: Tally | None = None
    in_pieces: bool = False

    @property
    def evaluates(self) -> bool:
        """Whether it writes results in place of states, which nothing else will read.

        A job with a window keeps its states. A stage that clusters share writes states: the task that
        counts them, and not the one that writes them, is the last to see them. So does a job with native and Python
        aggregates: they are reduced apart, and their results would have to be joined.
        """
        columns, plan = self.columns, self.plan
        takes_all = not plan.epoch and plan.waves == (0, len(columns.job.waves)) and plan.budget_rows is None
        alone = not (columns.job.window or self.in_pieces or (columns.native and columns.python))
        return takes_all and alone

    @cached_property
    def last(self) -> StepCommit | None:
        """The commit of the stage before; None before the first."""
        return self.run.committed(stage_step(self.plan.epoch - 1)) if self.plan.epoch else None

    @property
    def backlog(self) -> tuple[CommittedFile, ...]:
        """The files that the stage before left over."""
        return self.last.of_kind(BACKLOG) if self.last else ()

    @property
    def backlog_rows(self) -> int:
        """Their rows."""
        return self.last.count("backlog") if self.last else 0


def routed_queue(stage: Stage) -> DataFrame:
    """Wave and backlog, routed: ``c*``, origin, arrival, task."""
    columns, plan = stage.columns, stage.plan
    backlog, frames = _backlog(stage), []
    if backlog is None or _admits(stage):
        frames.append(_wave(stage, "CAST(NULL AS INT) AS last_task", located=True))
    if backlog is not None:
        frames.append(backlog)
    routed = route(_union(frames), plan, columns.routing_sql(), ORIGIN)
    return routed.selectExpr(*columns.rows, *columns.origins, f"CAST({_ARRIVAL} AS TINYINT) AS arrival", TASK)


def drawn_queue(stage: Stage) -> DataFrame:
    """Wave and backlog, with the task only of rows whose key does not say it.

    Returns:
        ``c*``, ``drawn`` (see ``routing.draw``), and ``arrival`` if there is a backlog. Rows whose task is not drawn
        may have no origin, unless an aggregate reads it.
    """
    columns, plan = stage.columns, stage.plan
    drawing = drawing_rows(plan, columns.routing_sql("s"))
    located = True if columns.reads_places or drawing is None else drawing
    backlog, frames = _backlog(stage), []
    if backlog is None or _admits(stage):
        wave = _wave(stage, located=located)
        arrival = f"CAST({ADMITTED} AS TINYINT) AS arrival"
        frames.append(wave if backlog is None else wave.selectExpr("*", arrival))
    if backlog is not None:
        routed = route(backlog, plan, columns.routing_sql(), ORIGIN)
        frames.append(routed.selectExpr(*columns.rows, *columns.origins, f"CAST({_ARRIVAL} AS TINYINT) AS arrival"))
    return draw(_union(frames), plan, columns.routing_sql(), ORIGIN)


def unrouted_queue(stage: Stage) -> DataFrame:
    """Wave and backlog, not routed: ``c*``, origin, arrival."""
    columns = stage.columns
    arrived = f"CAST({ADMITTED} AS TINYINT) AS arrival"
    backlog, frames = _backlog(stage), []
    if backlog is None or _admits(stage):
        frames.append(_wave(stage, arrived, located=columns.reads_places))
    if backlog is not None:
        stayed = f"CAST({STAYED} AS TINYINT) AS arrival"
        frames.append(backlog.selectExpr(*columns.rows, *columns.origins, stayed))
    return _union(frames)


def _admits(stage: Stage) -> bool:
    """Whether a stage reads input. Otherwise a frame without rows would have tasks, and a place in the query."""
    return bool(stage.columns.job.admitted_units(stage.plan.waves))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _wave(stage: Stage, *further: str, located: bool | str) -> DataFrame:
    columns = stage.columns
    admitted = columns.job.admitted_units(stage.plan.waves)
    wave = read_units(stage.spark, columns.job, admitted, columns.inputs, stage.tally, located=located)
    keys = [
        f"{bounded(number, columns.job.key_types[name], name)} AS {number}"
        for number, name in zip(columns.keys, columns.job.spec.key, strict=True)
    ]
    return wave.selectExpr(*keys, *columns.names[len(keys) :], *columns.parted, *columns.origins, *further)


def _backlog(stage: Stage) -> DataFrame | None:
    """The rows that the last stage left over: ``c*``, origin, and ``last_task``, the task that had a row."""
    columns, files = stage.columns, stage.backlog
    if not files:
        return None
    rows = read_files(stage.spark, stage.run, files)
    rows = rows.selectExpr(*columns.names, *columns.parted, *columns.origins, f"{TASK} AS last_task")
    return _renumbered(rows, stage.run.plan(stage.plan.epoch - 1), stage.plan)


def _renumbered(backlog: DataFrame, last: RoutingPlan, plan: RoutingPlan) -> DataFrame:
    """The last plan's task numbers translated to this plan's; -1 for a task that does not exist any more."""
    if last.tasks == plan.tasks:
        return backlog
    now = {task: number for number, task in enumerate(plan.tasks)}
    numbers = [now.get(task, -1) for task in last.tasks]
    listed = f"array({', '.join(map(str, numbers))})"
    return backlog.selectExpr("* EXCEPT (last_task)", f"get({listed}, last_task) AS last_task")
