"""Jobs, reports and whole runs without Spark: keys with exact counts, reduced by arithmetic alone."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt

from benchmarks.simulation import MERGEABLE, Simulation, simulated_job, simulated_spec
from skewless.documents.job import Algebra, Job, Unit
from skewless.documents.stage_report import Histogram, StageReport, TaskLoad
from skewless.routing.plan import RoutingPlan

Counts = npt.NDArray[np.int64]

WHOLE = Algebra(mergeable=False, ordered=False)
spec = simulated_spec


def job(wave_rows: Sequence[int], algebra: Algebra = MERGEABLE, output_path: str = "/out", **routing: Any) -> Job:
    return Job(
        spec=spec(**routing),
        date=dt.date(2026, 11, 20),
        input_path="/in",
        output_path=output_path,
        units=tuple(
            Unit(path=f"/in/{number}.parquet", rows=rows, size_bytes=1) for number, rows in enumerate(wave_rows)
        ),
        waves=tuple((number,) for number in range(len(wave_rows))),
        key_types={"key": "string"},
        column_types={},
        algebra={"occurrences": algebra},
        turn=1,
    )


def report(
    plan: RoutingPlan,
    seen: Mapping[str, int],
    backlog: Mapping[str, int] | None = None,
    head: Sequence[str] | None = None,
) -> StageReport:
    """A consistent report of a stage that saw these keys and left these rows, each where the plan puts it.

    All keys are reported one by one, unless ``head`` names those that are.
    """
    left = dict(backlog or {})
    named = list(seen) if head is None else list(head)
    slots = 1 << plan.ring.ring_bits
    seen_tail, left_tail = [0] * slots, [0] * slots
    for key in set(seen) - set(named):
        seen_tail[plan.ring.slot_of(key)] += seen[key]
        left_tail[plan.ring.slot_of(key)] += left.get(key, 0)
    loads = [0] * len(plan.tasks)
    for key, rows in left.items():
        loads[plan.head[key][0][0] if key in plan.head else plan.tail_task(key)] += rows
    total, over = sum(seen.values()), sum(left.values())
    return StageReport(
        stage=plan.epoch,
        waves=plan.waves,
        admitted_rows=total,
        backlog_in_rows=0,
        forwarded_rows=0,
        processed_rows=total - over,
        backlog_rows=over,
        stage_seconds=1.0,
        tasks=tuple(
            TaskLoad(task=str(task), queued_rows=rows, processed_rows=0, backlog_rows=rows, states=0)
            for task, rows in zip(plan.tasks, loads, strict=True)
        ),
        histogram=Histogram(
            seen_rows=total,
            seen_null_rows=0,
            backlog_null_rows=0,
            head={key: (seen.get(key, 0), left.get(key, 0)) for key in named},
            seen_tail=tuple(seen_tail),
            backlog_tail=tuple(left_tail),
        ),
    )


def zipf_rows(keys: int, exponent: float, rows: int) -> Counts:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    counts: Counts = np.maximum(1, np.round(weights / weights.sum() * rows)).astype(np.int64)
    return counts


def simulated(counts: Counts, waves: Sequence[float] = (1, 4, 15, 80), **routing: Any) -> Simulation:
    """A run over keys ``key-0``, ``key-1``, ... with these rows, well mixed, in a thousand partitions.

    Stages cost nothing, unless the caller says otherwise.
    """
    numbers = np.repeat(np.arange(len(counts)), counts)
    mixed = [mmh3.hash(number.to_bytes(8, "little"), 7, signed=False) for number in range(len(numbers))]
    order = np.argsort(mixed, kind="stable")
    sizes = np.diff(np.linspace(0, len(numbers), 1001).astype(int)).tolist()
    frozen = simulated_job(sizes, waves=tuple(waves), **{"stage_overhead": 0, **routing})
    return Simulation(frozen, [f"key-{n}" for n in range(len(counts))], numbers[order])
