"""The engine ``bypass``: each row is sent to one task, which makes the only state of its key.

It does what Spark does without a partial aggregation (``spark.sql.execution.bypassPartialAggregation``, SPARK-57688):
where most keys have few rows in each input split, states made before the exchange would be as many as the rows, and
larger. But heavy keys are placed by the plan, and split, so that no task has more than its share. All other keys go
where a hash of Spark's sends them, which costs less than looking a key up on the ring. Rows are in no order, and carry
nothing but key, arguments and task.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from skewless_spark.branches import outcome_of_tasks
from skewless_spark.engines.engine import Engine
from skewless_spark.session.versions import local_frame, place_by
from skewless_spark.stage.routes import TASK, Stage, share_cells, unrouted_queue
from skewless_spark.states.python_reduction import ADMITTED

#: Steps of the draw of a row that may go to several tasks.
_DRAWS = 1 << 16


class Bypass(Engine):
    """Rows are sent to their tasks once, in no order unless Spark itself must see all rows of a key."""

    def outcome(self, stage: Stage) -> DataFrame:
        """See ``Engine``."""
        columns, plan = stage.columns, stage.plan
        origins = columns.origins if columns.reads_origin else []
        arrival = ["arrival"] if plan.epoch else []
        placed = _placed(unrouted_queue(stage), stage).select(*columns.rows, *origins, *arrival, TASK)
        placed = place_by(placed, len(plan.tasks), TASK)
        # Without a backlog, all rows came with the wave.
        came = placed if arrival else placed.withColumn("arrival", F.lit(ADMITTED).cast("tinyint"))
        return outcome_of_tasks(came, stage, in_order=columns.job.at_once, placed=len(plan.tasks))


def _placed(rows: DataFrame, stage: Stage) -> DataFrame:
    columns, plan = stage.columns, stage.plan
    tasks = len(plan.tasks)
    # The same for a row whenever its split is read again, where a join has another order. Neighbours draw far apart.
    held = [name for name, kind in rows.select(columns.names).dtypes if "map<" not in kind]
    by = held if columns.job.joined else [F.monotonically_increasing_id()]
    draw = F.pmod(F.hash(*by), F.lit(_DRAWS))
    task = F.pmod(F.hash(*columns.keys), F.lit(tasks))
    if plan.head:
        cells = pa.array(map(share_cells, plan.head.values()), pa.list_(pa.int32()))
        table = pa.table({"head_key": pa.array(plan.head, pa.string()), "cells": cells})
        heads = F.broadcast(local_frame(rows.sparkSession, table))
        rows = rows.join(heads, columns.routing_key == F.col("head_key"), "left")
        task = F.coalesce(F.get(F.col("cells"), _part(draw, F.size("cells"))), task)
    return rows.withColumn(TASK, F.when(columns.routing_key.isNull(), _part(draw, F.lit(tasks))).otherwise(task))


def _part(draw: Column, parts: Column) -> Column:
    return F.shiftright(draw.cast("bigint") * parts, _DRAWS.bit_length() - 1).cast("int")
