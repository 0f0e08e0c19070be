"""A staged policy on one stream: the real planner in the simulation, and the figures it is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.outcome import Outcome, imbalance
from benchmarks.simulation import MERGEABLE, Floats, Ints, Simulation, simulated_job
from benchmarks.workloads import numbered
from skewless.documents.job import Algebra
from skewless.documents.stage_report import StageReport

#: Relative sizes of the slices of the input that the stages admit.
WAVES = (1.0, 4.0, 15.0, 80.0)
#: Source partitions that a stream is cut into, if it has as many messages.
UNITS = 1000


def simulate(
    keys: npt.NDArray[Any],
    tasks: int,
    policy: str,
    waves: Sequence[float] = WAVES,
    budget: float | None = None,
    *,
    units: int = UNITS,
    in_order: bool = False,
    overhead: float = 0.0,
    costs: Floats | None = None,
    speeds: Floats | None = None,
    mergeable: bool = True,
    **routing: Any,
) -> tuple[Outcome, Simulation]:
    """Play a whole run of a staged policy.

    Args:
        keys: integers or texts in order of arrival, shape (messages,), at least one.
        tasks: number W of reducers, and of tasks side by side.
        policy: its name in ``skewless.planner.policies.POLICIES``.
        waves: relative sizes of the slices that the stages admit.
        budget: rows a task may reduce in a stage, as a multiple of the fair share; null lets the planner choose.
        units: source partitions of equal size, in order of arrival, that the waves are made of.
        in_order: a wave is the next partitions, and not, as in a real run, a sample of all of them.
        overhead: what a stage costs beside its rows, as a part of T*. The planner measures it as it goes,
            but for 0, which it is told.
        costs: seconds to reduce a message of each distinct key, keys ascending, shape (distinct keys,); 1 by default.
        speeds: seconds of work that each task does in a second, shape (at least one,), the last one's for all
            tasks beyond; 1 by default.
        mergeable: whether a key may be split.
        routing: further fields of the spec's routing.

    Returns:
        The figures, and the run they were taken from.
    """
    distinct, numbers = numbered(keys)
    if not overhead:
        routing.setdefault("stage_overhead", 0.0)
    chosen = {} if budget is None else {"budget": budget}
    job = simulated_job(
        unit_sizes(len(keys), units), in_order=in_order,
        algebra=MERGEABLE if mergeable else Algebra(mergeable=False, ordered=False),
        policy=policy, reducers=tasks, waves=tuple(waves), **chosen, **routing,
    )  # fmt: skip
    ideal = ideal_makespan(numbers, tasks, costs, speeds)
    simulation = Simulation(job, texts_of(distinct), numbers, costs, speeds, overhead_seconds=overhead * ideal)
    simulation.play()
    return outcome_of(simulation, ideal), simulation


def outcome_of(simulation: Simulation, ideal: float) -> Outcome:
    """Judge a run that has been played by the makespan T* that it is held to, in the run's seconds."""
    job, reports, messages = simulation.job, simulation.reports, len(simulation.rows)
    by_stage = imbalances(reports)
    processed = np.array([report.processed_rows for report in reports], dtype=np.float64)
    return Outcome(
        policy=job.spec.routing.policy.name,
        tasks=job.spec.routing.reducers,
        messages=messages,
        makespan_over_ideal=sum(simulation.makespans) / ideal,
        imbalance_fraction=float(by_stage @ processed / processed.sum()) / messages,
        imbalance_final=float(by_stage[-1]) / messages,
        states_per_key=simulation.state_pairs / len(simulation.texts),
        rows_forwarded=sum(report.forwarded_rows for report in reports),
        stages=len(reports),
    )


def imbalances(reports: Sequence[StageReport]) -> Floats:
    """I(t) at the end of each stage, by all rows that each task has processed until then, shape (stages,).

    A task is a virtual task by its name; one that came later starts with nothing.
    """
    loads: dict[str, int] = {}
    found = []
    for report in reports:
        for load in report.tasks:
            loads[load.task] = loads.get(load.task, 0) + load.processed_rows
        found.append(imbalance(np.fromiter(loads.values(), dtype=np.int64)))
    return np.array(found)


def ideal_makespan(numbers: Ints, tasks: int, costs: Floats | None, speeds: Floats | None) -> float:
    """T*: all cost over all speeds, in seconds."""
    total = float(len(numbers)) if costs is None else float(np.bincount(numbers, minlength=len(costs)) @ costs)
    if speeds is None:
        return total / tasks
    return total / float(speeds[np.minimum(np.arange(tasks), len(speeds) - 1)].sum())


def unit_sizes(messages: int, units: int) -> list[int]:
    """Messages of each source partition; none is empty, and they differ by at most one."""
    units = min(units, messages)
    return [messages // units + (number < messages % units) for number in range(units)]


def texts_of(distinct: npt.NDArray[Any]) -> list[str]:
    """The text of each key."""
    if distinct.dtype.kind == "S":
        return [key.decode() for key in distinct.tolist()]
    return [str(key) for key in distinct.tolist()]
