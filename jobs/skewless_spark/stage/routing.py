"""The routing plan as native column expressions: no row visits Python to find its task.

What is said here in Spark SQL, ``skewless.routing.plan.RoutingPlan.task_of`` says in
Python; a parity test holds the two to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.routing.hashing import BUCKET_SALT
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan, Weights

TASK = "task"

#: The slot table has a row for so many slots: of a ring of a million slots Spark sends 16,384 rows to its workers,
#: and a row that is copied on its way through the join carries no more than a few hundred bytes.
BLOCK_BITS = 6

_UNSIGNED = 0xFFFFFFFF


def padded(key: Column) -> Column:
    """A key text, filled with NUL to a multiple of four bytes: there Spark's hash is murmur3_x86_32."""
    return F.rpad(key, F.length(key) + F.pmod(-F.octet_length(key), F.lit(4)), "\0")


def key_hash(key: Column) -> Column:
    """``skewless.routing.hashing.key_hash``, as Spark's signed int of the same bits."""
    return F.hash(padded(key))


def bucket_hash(key: Column) -> Column:
    """``skewless.routing.hashing.bucket_hash``, as Spark's signed int of the same bits."""
    return F.hash(F.lit(BUCKET_SALT), padded(key))


def slot(key: Column, ring_bits: int) -> Column:
    """The slot of the ring that a key text falls into."""
    return F.shiftrightunsigned(key_hash(key), 32 - ring_bits)


def row_hash(origin: Column, salt: int) -> Column:
    """``RoutingPlan.row_hash``: an unsigned 32-bit number, as a bigint."""
    block = F.hash(F.shiftright(origin, 2), F.lit(salt)).cast("bigint").bitwiseAND(F.lit(_UNSIGNED))
    quarter_turns = F.shiftleft(origin.bitwiseAND(F.lit(3)), 30)
    return (block + quarter_turns).bitwiseAND(F.lit(_UNSIGNED))


def route(rows: DataFrame, plan: RoutingPlan, key: Column, origin: str) -> DataFrame:
    """Add the column ``task``: the index of the virtual task that each row goes to.

    Args:
        rows: any columns, the origin among them.
        plan: says where keys go.
        key: the key text, null for a row without a key.
        origin: the name of the origin column, a bigint.
    """
    spark = rows.sparkSession
    columns = [F.col(name) for name in rows.columns]
    keyed = rows.withColumn("route_key", key)
    slotted = keyed.withColumn("slot", slot(F.col("route_key"), plan.ring.ring_bits))
    at_block = F.shiftright(F.col("slot"), _block_bits(plan)) == F.col("block")
    routed = slotted.join(F.broadcast(_slot_table(spark, plan)), at_block, "left")
    drawn = row_hash(F.col(origin), plan.share_salt)
    within = F.col("slot").bitwiseAND(F.lit((1 << _block_bits(plan)) - 1))
    tail = F.get(F.col("block_tasks"), within)
    if plan.factors:
        factor = F.get(F.col("block_factors"), within)
        tail = tail + F.when(factor > 1, F.pmod(bucket_hash(F.col("route_key")), factor)).otherwise(0)
    task = tail
    if plan.head:
        routed = routed.join(F.broadcast(_head_table(spark, plan)), F.col("route_key") == F.col("head_key"), "left")
        task = F.when(F.col("head_key").isNotNull(), F.get(F.col("head_cells"), _cell(drawn))).otherwise(tail)
    by_origin = F.shiftright(drawn * len(plan.tasks), 32).cast("int")
    task = F.when(F.col("route_key").isNull(), by_origin).otherwise(task)
    return routed.select(*columns, task.cast("int").alias(TASK))


def _cell(drawn: Column) -> Column:
    """Which cell of a head key's table a draw falls into: ``draw * cells / 2**32``, rounded down."""
    return F.shiftright(drawn * F.size(F.col("head_cells")), 32).cast("int")


def _block_bits(plan: RoutingPlan) -> int:
    return min(BLOCK_BITS, plan.ring.ring_bits)


def _slot_table(spark: SparkSession, plan: RoutingPlan) -> DataFrame:
    """The first task of each slot's reducer, and its factor where there are any, in blocks of slots that lie together.

    A table and no literal: a literal would be printed whole in every plan, and sent with every task.
    """
    size = 1 << _block_bits(plan)
    blocks = len(plan.slot_tasks) // size
    columns = {"block": pa.array(range(blocks), pa.int32()), "block_tasks": _in_blocks(plan.slot_tasks, size)}
    if plan.factors:
        columns["block_factors"] = _in_blocks(plan.slot_factors, size)
    return spark.createDataFrame(pa.table(columns))


def _in_blocks(by_slot: npt.NDArray[np.int32], size: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(np.arange(0, len(by_slot) + 1, size, dtype=np.int32), pa.array(by_slot, pa.int32()))


def _head_table(spark: SparkSession, plan: RoutingPlan) -> DataFrame:
    table = pa.table(
        {
            "head_key": pa.array(plan.head, pa.string()),
            "head_cells": pa.array(map(share_cells, plan.head.values()), pa.list_(pa.int32())),
        }
    )
    return spark.createDataFrame(table)


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
