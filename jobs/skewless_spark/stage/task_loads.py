"""The load of each task of a stage: its rows, states and seconds, read from the counts that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import SplitLoad, TaskLoad
from skewless.errors import LedgerError
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless_spark.stage.reduction import COUNTS
from skewless_spark.stage.routing import TASK
from skewless_spark.states.committed_files import PYTHON, counting

#: A Python aggregate that takes less time than this per row, or a task that takes less in total, costs next to nothing.
#: Its time is not reported: it says more about other work of the machine, and no plan may depend on it.
SLOW_ROW_SECONDS = 3e-5
SLOW_TASK_SECONDS = 0.05
#: A task's light rows tell how fast it is if there are at least this many of them.
LEAST_LIGHT_ROWS = 100

#: Rows that are read at a time, some megabytes of counts.
_BATCH_ROWS = 1 << 18
_SECONDS = ("key_seconds", "task_seconds", "setup_seconds")

#: Sums over the states of one task; seconds that were not measured are None.
TaskCounts = Mapping[str, Any]


def task_counts(run: RunDirectory, plan: RoutingPlan, files: Sequence[CommittedFile]) -> dict[int, TaskCounts]:
    """The counts of each task, by its number.

    A few columns of numbers are read through Arrow, file by file. That is cheaper than a Spark job, and reads no keys.

    Args:
        run: the run directory.
        plan: the stage's plan.
        files: what the stage wrote.

    Returns:
        ``rows``, ``left_over``, ``admitted``, ``forwarded`` and ``states``; for Python aggregates also
        ``python_rows``, ``light_rows`` and the seconds. Tasks without rows are left out.

    Raises:
        LedgerError: Python states and native states saw different rows.
    """
    python = [file for file in files if file.kind == PYTHON]
    with ThreadPoolExecutor(max_workers=8) as pool:
        counted = list(pool.map(lambda file: _summed(run, file, [TASK, *COUNTS]), counting(files)))
        timed = list(pool.map(lambda file: _summed(run, file, [TASK, "python_rows", *_SECONDS]), python))
    parts = [part for part in (*counted, *timed) if part is not None]
    if not parts:
        return {}
    sums = pa.concat_tables(parts, promote_options="default")
    names = [name for name in sums.column_names if name != TASK]
    summed = sums.group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
    # Without Python aggregates nothing was timed. A task that has only carried states has no rows.
    nothing = {**dict.fromkeys((*COUNTS, "states", "python_rows", "light_rows"), 0), **dict.fromkeys(_SECONDS)}
    loads: dict[int, TaskCounts] = {}
    for row in summed.to_pylist():
        found = {name: row[f"{name}_sum"] for name in names}
        loads[int(row[TASK])] = nothing | {name: value for name, value in found.items() if value is not None}
    if python:
        _require_same_rows(plan, loads)
    return loads


def _summed(run: RunDirectory, file: CommittedFile, columns: Sequence[str]) -> pa.Table | None:
    """The sums of some columns of a file by task; None if it has no rows."""
    parts = []
    with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
        for batch in pq.ParquetFile(opened, page_checksum_verification=True).iter_batches(
            _BATCH_ROWS, columns=list(columns)
        ):
            table = pa.Table.from_batches([_with_flags(batch)])
            names = [name for name in table.column_names if name != TASK]
            part = table.group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
            parts.append(part.rename_columns([name.removesuffix("_sum") for name in part.column_names]))
    return pa.concat_tables(parts) if parts else None


def _with_flags(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add ``states`` or ``python_states``, 1 if a state saw rows, and ``light_rows``, rows of keys not timed apart."""
    if "rows" in batch.schema.names:
        return batch.append_column("states", pc.greater(batch["rows"], 0).cast(pa.int64()))
    apart = pc.is_valid(batch["key_seconds"])
    batch = batch.append_column("python_states", pc.greater(batch["python_rows"], 0).cast(pa.int64()))
    return batch.append_column("light_rows", pc.if_else(apart, pa.scalar(0, pa.int64()), batch["python_rows"]))


def split_loads(run: RunDirectory, files: Sequence[CommittedFile]) -> tuple[SplitLoad, ...]:
    """The loads of the input splits that made Python states, by split number; empty without such states."""
    python = [file for file in files if file.kind == PYTHON]
    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(lambda file: _summed(run, file, [TASK, "python_rows", *_SECONDS]), python))
    parts = [part for part in found if part is not None]
    if not parts:
        return ()
    rows = pa.concat_tables(parts, promote_options="default").to_pylist()
    splits = [SplitLoad(rows=0, states=0) for _ in range(1 + max(int(row[TASK]) for row in rows))]
    for row in rows:
        before, number = splits[int(row[TASK])], int(row[TASK])
        seconds = (before.busy_seconds or 0.0) + (row["task_seconds"] or 0.0) + (row["setup_seconds"] or 0.0)
        splits[number] = SplitLoad(
            rows=before.rows + int(row["python_rows"]),
            states=(before.states or 0) + int(row["python_states"]),
            busy_seconds=round(seconds, 6),
        )
    return tuple(splits)


def task_loads(plan: RoutingPlan, loads: Mapping[int, TaskCounts]) -> tuple[TaskLoad, ...]:
    """The loads of all tasks of a plan, in its order, from ``task_counts``."""
    slowness = _slowness(len(plan.tasks), loads)
    return tuple(
        _task_load(str(task), loads.get(number), slowness.get(number)) for number, task in enumerate(plan.tasks)
    )


def _task_load(name: str, row: TaskCounts | None, slowness: float | None) -> TaskLoad:
    if row is None:
        return TaskLoad(task=name, queued_rows=0, processed_rows=0, backlog_rows=0, states=0)
    processed, left_over = int(row["rows"]), int(row["left_over"])
    return TaskLoad(
        task=name, queued_rows=processed + left_over, processed_rows=processed, backlog_rows=left_over,
        states=int(row["states"]), busy_seconds=_busy(row), slowness=slowness,
    )  # fmt: skip


def _busy(row: TaskCounts) -> float | None:
    """Seconds in the Python aggregates; None if too few to matter, since native aggregates may take longer."""
    if row["task_seconds"] is None:
        return None
    seconds = float(row["task_seconds"]) + float(row["setup_seconds"] or 0.0)
    slow = seconds >= max(SLOW_TASK_SECONDS, SLOW_ROW_SECONDS * int(row["rows"]))
    return round(seconds, 6) if slow else None


def _slowness(tasks: int, loads: Mapping[int, TaskCounts]) -> dict[int, float]:
    """The time of a light row on each task, relative to the median task; empty unless every task can be measured."""
    rates = {}
    for number, row in loads.items():
        if _busy(row) is None or int(row["light_rows"]) < LEAST_LIGHT_ROWS:
            return {}
        rates[number] = max(0.0, float(row["task_seconds"]) - float(row["key_seconds"] or 0.0)) / int(row["light_rows"])
    if len(rates) < tasks or min(rates.values()) <= 0:
        return {}
    middle = float(np.median(list(rates.values())))
    return {number: round(rate / middle, 4) for number, rate in rates.items()}


def _require_same_rows(plan: RoutingPlan, loads: Mapping[int, TaskCounts]) -> None:
    odd = next((number for number, row in loads.items() if row["rows"] != row["python_rows"]), None)
    if odd is not None:
        raise LedgerError(
            f"stage {plan.epoch}, task {plan.tasks[odd]}", f"{loads[odd]['rows']:,} rows in its Python states",
            f"{loads[odd]['python_rows']:,}", "nothing was committed",
        )  # fmt: skip
