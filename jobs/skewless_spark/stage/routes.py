"""The queue of a stage, its wave and the backlog; and the routing plan as native expressions.

No row visits Python to find its task. Expressions are written as SQL: Spark parses a long text faster than it is told
a tree call by call. What is said here in Spark SQL, ``skewless.routing.plan.RoutingPlan.task_of`` says in Python; a
parity test holds the two to each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile, StepCommit
from skewless.routing.hashing import BUCKET_SALT
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan, Weights
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.aggregates.keys import bounded
from skewless_spark.session.versions import local_frame
from skewless_spark.sources.formats.input_files import text_literal
from skewless_spark.sources.unit_reading import ORIGIN, Tally, read_units
from skewless_spark.states.committed_files import BACKLOG, read_files
from skewless_spark.states.job_columns import JobColumns
from skewless_spark.states.python_reduction import ADMITTED, FORWARDED, STAYED

TASK = "task"
#: The task of a row whose key does not say it: a split key, or none.
DRAWN = "drawn"
#: The slot of a key on the ring, beside its only state or its result; null for a null key.
SLOT = "slot"

#: The slot table has a row for so many slots: of a ring of a million slots Spark sends 16,384 rows to its workers,
#: and a row that is copied on its way through the join carries no more than a few hundred bytes.
BLOCK_BITS = 6
#: A key is compared with the head keys of its block: about so many at most, where the ring has enough slots.
BLOCK_KEYS = 4

#: At most so many split keys, with so many weights, are compared one after the other; more of them are looked up.
LISTED_KEYS, LISTED_WEIGHTS = 16, 64

_UNSIGNED = 0xFFFFFFFF


def padded(key: str) -> str:
    """A key text, filled with NUL to a multiple of four bytes: there Spark's hash is murmur3_x86_32."""
    return f"rpad({key}, length({key}) + pmod(-octet_length({key}), 4), CAST(X'00' AS STRING))"


def key_hash(key: str) -> str:
    """``skewless.routing.hashing.key_hash``, as Spark's signed int of the same bits."""
    return f"hash({padded(key)})"


def bucket_hash(key: str) -> str:
    """``skewless.routing.hashing.bucket_hash``, as Spark's signed int of the same bits."""
    return f"hash({BUCKET_SALT}, {padded(key)})"


def slot(key: str, ring_bits: int) -> str:
    """The slot of the ring that a key text falls into."""
    return f"shiftrightunsigned({key_hash(key)}, {32 - ring_bits})"


def row_hash(origin: str, salt: int) -> str:
    """``RoutingPlan.row_hash``: an unsigned 32-bit number, as a bigint."""
    block = f"(CAST(hash(shiftright({origin}, 2), {salt}) AS BIGINT) & {_UNSIGNED}L)"
    return f"(({block} + shiftleft({origin} & 3L, 30)) & {_UNSIGNED}L)"


def route(rows: DataFrame, plan: RoutingPlan, key: str, origin: str) -> DataFrame:
    """Add the column ``task``: the index of the virtual task that each row goes to.

    Args:
        key: the key text in SQL, null for a row without a key.
    """
    drawn = row_hash(origin, plan.share_salt)
    routed, tail = _on_ring(rows, plan, key, plan.head)
    task = f"IF(cells IS NOT NULL, {_drawn_cell(drawn, 'cells')}, {tail})" if plan.head else tail
    task = f"IF(route_key IS NULL, {_drawn_task(drawn, plan)}, {task})"
    return _without_tables(routed, plan, f"CAST({task} AS INT) AS {TASK}", plan.head)


def drawing_rows(plan: RoutingPlan, key: str) -> str | None:
    """Which rows draw their task: a condition in SQL on the key text. None if too many split keys would be listed."""
    split = split_keys(plan)
    if len(split) > LISTED_KEYS or sum(map(len, split.values())) > LISTED_WEIGHTS:
        return None
    listed = f" OR {key} IN ({', '.join(map(text_literal, split))})" if split else ""
    return f"({key} IS NULL{listed})"


def whole_keys(plan: RoutingPlan, key: str) -> str:
    """Which keys have all of their rows in one task: a condition in SQL on the key text."""
    split = split_keys(plan)
    listed = f" AND {key} NOT IN ({', '.join(map(text_literal, split))})" if split else ""
    return f"({key} IS NOT NULL{listed})"


def draw(rows: DataFrame, plan: RoutingPlan, key: str, origin: str) -> DataFrame:
    """Add the column ``drawn``: the task of a row of a split key or without a key; null for all others.

    The arguments are those of ``route``. Rows of one key with the same ``drawn`` go to one task.
    """
    drawn, split = row_hash(origin, plan.share_salt), split_keys(plan)
    without_key = f"WHEN {key} IS NULL THEN {_drawn_task(drawn, plan)}"
    if drawing_rows(plan, key) is not None:
        # A few comparisons cost less than a look at a table, and need no table.
        cases = [f"WHEN {key} = {text_literal(one)} THEN {_weighed(drawn, weights)}" for one, weights in split.items()]
        return rows.selectExpr("*", f"CAST(CASE {without_key} {' '.join(cases)} END AS INT) AS {DRAWN}")
    cells = pa.array(map(share_cells, split.values()), pa.list_(pa.int32()))
    table = pa.table({"head_key": pa.array(split, pa.string()), "head_cells": cells})
    heads = F.broadcast(local_frame(rows.sparkSession, table))
    routed = rows.selectExpr("*", f"{key} AS route_key").join(heads, F.expr("route_key = head_key"), "left")
    of_key = _drawn_cell(drawn, "head_cells")
    task = f"CAST(CASE {without_key} WHEN head_key IS NOT NULL THEN {of_key} END AS INT) AS {DRAWN}"
    return routed.selectExpr("*", task).drop("route_key", "head_key", "head_cells")


def split_keys(plan: RoutingPlan) -> dict[str, Weights]:
    """The head keys whose rows go to several tasks."""
    return {key: weights for key, weights in plan.head.items() if len({task for task, _ in weights}) > 1}


def _weighed(drawn: str, weights: Weights) -> str:
    ends = accumulate(weight for _, weight in weights)
    cases = [f"WHEN shiftright({drawn}, 16) < {end} THEN {task}" for (task, _), end in zip(weights, ends, strict=True)]
    return f"CASE {' '.join(cases)} END"


def route_drawn(states: DataFrame, plan: RoutingPlan, key: str) -> DataFrame:
    """Replace the column ``drawn`` by ``task``: what ``route`` says of the rows that the states were made of."""
    split = split_keys(plan)
    pinned = {key: weights for key, weights in plan.head.items() if key not in split}
    routed, tail = _on_ring(states, plan, key, pinned)
    task = f"coalesce(cells[0], {tail})" if pinned else tail
    task = f"CAST(coalesce({DRAWN}, {task}) AS INT) AS {TASK}"
    return _without_tables(routed, plan, task, pinned, DRAWN)


def _on_ring(rows: DataFrame, plan: RoutingPlan, key: str, head: Mapping[str, Weights]) -> tuple[DataFrame, str]:
    """The rows beside their block of the slot table and the cells of their key, and the task of a tail key in SQL."""
    bits = _block_bits(plan, head)
    slotted = rows.selectExpr("*", f"{key} AS route_key").selectExpr(
        "*", f"{slot('route_key', plan.ring.ring_bits)} AS slot"
    )
    at_block = F.expr(f"shiftright(slot, {bits}) = block")
    routed = slotted.join(F.broadcast(_slot_table(rows.sparkSession, plan, head)), at_block, "left")
    if head:
        # There is no element at -1, where a key is not found.
        routed = routed.selectExpr(
            "*", "get(block_cells, CAST(array_position(block_keys, route_key) AS INT) - 1) AS cells"
        )
    within = f"slot & {(1 << bits) - 1}"
    tail = f"get(block_tasks, {within})"
    if plan.factors:
        factor = f"get(block_factors, {within})"
        tail = f"({tail} + IF({factor} > 1, pmod({bucket_hash('route_key')}, {factor}), 0))"
    return routed, tail


def _without_tables(
    routed: DataFrame, plan: RoutingPlan, task: str, head: Mapping[str, Weights], *further: str
) -> DataFrame:
    factors = ["block_factors"] if plan.factors else []
    of_head = ["block_keys", "block_cells", "cells"] if head else []
    names = ["route_key", "slot", "block", "block_tasks", *factors, *of_head, *further]
    return routed.selectExpr("*", task).drop(*names)


def _drawn_task(drawn: str, plan: RoutingPlan) -> str:
    return f"shiftright({drawn} * {len(plan.tasks)}, 32)"


def _drawn_cell(drawn: str, cells: str) -> str:
    return f"get({cells}, CAST(shiftright({drawn} * size({cells}), 32) AS INT))"


def _block_bits(plan: RoutingPlan, head: Mapping[str, Weights]) -> int:
    bits = plan.ring.ring_bits
    return max(0, min(BLOCK_BITS, bits, bits - (len(head) // BLOCK_KEYS).bit_length()))


def _slot_table(spark: SparkSession, plan: RoutingPlan, head: Mapping[str, Weights]) -> DataFrame:
    """The first task of each slot's reducer, and its factor where there are any, in blocks of slots that lie together.

    A block has the head keys in its slots, too, and the cells of each: a table of their own would cost another job.

    A table and no literal: a literal would be printed whole in every plan, and sent with every task.
    """
    bits = _block_bits(plan, head)
    size = 1 << bits
    blocks = len(plan.slot_tasks) // size
    columns = {"block": pa.array(range(blocks), pa.int32()), "block_tasks": _in_blocks(plan.slot_tasks, size)}
    if plan.factors:
        columns["block_factors"] = _in_blocks(plan.slot_factors, size)
    if head:
        keys: dict[int, list[str]] = {}
        for key in head:
            keys.setdefault(plan.ring.slot_of(key) >> bits, []).append(key)
        of_blocks = [keys.get(block, []) for block in range(blocks)]
        cells = [[share_cells(head[key]) for key in known] for known in of_blocks]
        columns["block_keys"] = pa.array(of_blocks, pa.list_(pa.string()))
        columns["block_cells"] = pa.array(cells, pa.list_(pa.list_(pa.int32())))
    return local_frame(spark, pa.table(columns))


def _in_blocks(by_slot: npt.NDArray[np.int32], size: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(np.arange(0, len(by_slot) + 1, size, dtype=np.int32), pa.array(by_slot, pa.int32()))


def share_cells(shares: Weights) -> list[int]:
    """The shares of a key as a table of tasks, each as often as its weight says, as short as can be.

    Its length is a power of two, so that the top bits of a draw name a cell: one cell for a
    pinned key, ``WHOLE_WEIGHT`` at most.
    """
    step = WHOLE_WEIGHT
    for _, weight in shares:
        while weight % step:
            step //= 2
    return [task for task, weight in shares for _ in range(weight // step)]


#: How a routed row came into the stage.
_ARRIVAL = f"CASE WHEN last_task IS NULL THEN {ADMITTED} WHEN last_task = {TASK} THEN {STAYED} ELSE {FORWARDED} END"


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage that is to be reduced."""

    spark: SparkSession
    run: RunDirectory
    columns: JobColumns
    plan: RoutingPlan
    tally: Tally | None = None
    """Counts the rows that are read, where the listing does not."""
    in_pieces: bool = False
    """Whether its tasks are reduced one by one, by clusters that share it."""

    @property
    def evaluates(self) -> bool:
        """Whether it writes results in place of states, which nothing else will read.

        A job with a window keeps its states. A stage that clusters share writes states: the task that
        counts them, and not the one that writes them, is the last to see them. So does a job with native and Python
        aggregates: they are reduced apart, and their results would have to be joined; and one whose states are.
        """
        columns, plan = self.columns, self.plan
        takes_all = not plan.epoch and plan.waves == (0, len(columns.job.waves)) and plan.budget_rows is None
        alone = not (columns.job.window or self.in_pieces or (columns.native and columns.python))
        return takes_all and alone and columns.job.spec.joined is None

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
    plan, last = stage.plan, stage.run.plan(stage.plan.epoch - 1)
    # In this plan's numbers; -1 is a task that does not exist any more.
    now = {task: number for number, task in enumerate(plan.tasks)}
    numbers = f"get(array({', '.join(str(now.get(task, -1)) for task in last.tasks)}), {TASK})"
    had = TASK if last.tasks == plan.tasks else numbers
    return rows.selectExpr(*columns.names, *columns.parted, *columns.origins, f"{had} AS last_task")
