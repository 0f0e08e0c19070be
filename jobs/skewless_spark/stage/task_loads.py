"""The load of each task of a stage: its rows, states and seconds, read from the counts that it wrote."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import SplitLoad, TaskLoad
from skewless.errors import LedgerError
from skewless.routing.plan import RoutingPlan
from skewless_spark.stage.routing import TASK
from skewless_spark.stage.state_counts import COUNTS, SECONDS, CountsRead
from skewless_spark.states.committed_files import EVALUATED, NATIVE, PYTHON, of_kinds

#: A Python aggregate that takes less time than this per row, or a task that takes less in total, costs next to nothing.
#: Its time is not reported: it says more about other work of the machine, and no plan may depend on it.
SLOW_ROW_SECONDS = 3e-5
SLOW_TASK_SECONDS = 0.05
#: A task's light rows tell how fast it is if there are at least this many of them.
LEAST_LIGHT_ROWS = 100
#: Standard errors by which they must take longer or shorter than those of the median task. Otherwise it may be that the
#: keys of the task are dearer, and not that the task is slower.
SURE = 3.0
#: What is told of an input split.
_LOADS = ("rows", "states", "seconds")
#: Sums over the states of one task; seconds that were not measured are None.
TaskCounts = Mapping[str, Any]


def task_counts(read: CountsRead, plan: RoutingPlan, files: Sequence[CommittedFile]) -> dict[int, TaskCounts]:
    """The counts of each task, by its number.

    Returns:
        ``rows``, ``left_over``, ``admitted``, ``forwarded`` and ``states``; for Python aggregates also
        ``python_rows``, the figures of timing and the seconds. Tasks without rows are left out.

    Raises:
        LedgerError: Python states and native states saw different rows.
    """
    parts = read.sums(of_kinds(files, EVALUATED, NATIVE, PYTHON))
    if not parts:
        return {}
    sums = pa.concat_tables(parts, promote_options="default")
    names = [name for name in sums.column_names if name != TASK]
    summed = sums.group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
    # Without Python aggregates nothing was timed.
    nothing = {**dict.fromkeys((*COUNTS, "states", "python_rows", "light_rows"), 0), **dict.fromkeys(SECONDS)}
    loads: dict[int, TaskCounts] = {}
    for row in summed.to_pylist():
        found = {name: row[f"{name}_sum"] for name in names}
        loads[int(row[TASK])] = nothing | {name: value for name, value in found.items() if value is not None}
    if "python_rows" in names:
        _require_same_rows(plan, loads)
    return loads


def split_loads(read: CountsRead, files: Sequence[CommittedFile]) -> tuple[SplitLoad, ...]:
    """The loads of the input splits that made Python states, by split number; empty without such states."""
    names = [TASK, "python_rows", "python_states", "task_seconds", "setup_seconds"]
    parts = []
    for sums in read.sums(of_kinds(files, PYTHON)):
        split, rows, states, *seconds = (sums[name] for name in names)
        both = pc.add(*(pc.fill_null(one, 0.0) for one in seconds))
        parts.append(pa.table([split, rows, states, both], names=["split", *_LOADS]))
    return splits_of(parts)


def splits_of(parts: Iterable[pa.Table]) -> tuple[SplitLoad, ...]:
    """The loads of input splits by their numbers, from tables of ``split``, ``rows``, ``states`` and ``seconds``."""
    known = pa.table({"split": pa.array([], pa.int32())})
    # Added up at once, as there may be many: each task may have a row for each split.
    for part in parts:
        both = pa.concat_tables([known, part], promote_options="permissive").group_by("split", use_threads=False)
        known = both.aggregate([(name, "sum") for name in _LOADS]).rename_columns(["split", *_LOADS])
    splits = [SplitLoad(rows=0, states=0) for _ in range(1 + max(known["split"].to_pylist(), default=-1))]
    for one in known.to_pylist():
        seconds = round(one["seconds"], 6)
        splits[one["split"]] = SplitLoad(rows=one["rows"], states=one["states"], busy_seconds=seconds)
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
    """The time of a light row on each task, relative to the median task; empty unless every task can be measured.

    It is 1 where the difference may be that of the task's keys. If the costs of keys differ by the variance ``v``, in
    units of their mean squared, then the mean cost of rows of light keys, n of each, has the variance
    ``v sum(n^2) / sum(n)^2``.
    """
    rates = {}
    for number, row in loads.items():
        if _busy(row) is None or int(row["light_rows"]) < LEAST_LIGHT_ROWS:
            return {}
        rates[number] = max(0.0, float(row["task_seconds"]) - float(row["key_seconds"] or 0.0)) / int(row["light_rows"])
    if len(rates) < tasks or min(rates.values()) <= 0:
        return {}
    middle, variance = float(np.median(list(rates.values()))), _variance_of_keys(loads)
    found = {}
    for number, rate in rates.items():
        error = math.sqrt(variance * float(loads[number]["light_squares"])) / int(loads[number]["light_rows"])
        sure = abs(math.log(rate / middle)) > SURE * error
        found[number] = round(rate / middle, 4) if sure else 1.0
    return found


def _variance_of_keys(loads: Mapping[int, TaskCounts]) -> float:
    """The variance of what a row costs, between the keys of a task that were timed apart, over the mean squared."""
    freedom, squares = 0, 0.0
    for row in loads.values():
        keys = int(row["timed_keys"])
        if keys > 1 and row["rates"]:
            mean = float(row["rates"]) / keys
            squares += max(0.0, float(row["rates_squared"]) - keys * mean**2) / mean**2
            freedom += keys - 1
    return squares / freedom if freedom else 0.0


def _require_same_rows(plan: RoutingPlan, loads: Mapping[int, TaskCounts]) -> None:
    odd = next((number for number, row in loads.items() if row["rows"] != row["python_rows"]), None)
    if odd is not None:
        raise LedgerError(
            f"stage {plan.epoch}, task {plan.tasks[odd]}", f"{loads[odd]['rows']:,} rows in its Python states",
            f"{loads[odd]['python_rows']:,}", "nothing was committed",
        )  # fmt: skip
