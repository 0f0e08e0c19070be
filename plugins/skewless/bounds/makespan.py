"""How long tasks take side by side."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt


def makespan(loads: npt.NDArray[np.float64], parallelism: int) -> float:
    """When the last task is done, if ``parallelism`` tasks run side by side and are started in their order.

    Spark starts the tasks of a stage by partition, each as soon as another task has ended (list
    scheduling, Graham 1966). If no task waits it is the largest load.

    Args:
        loads: of each task, shape ``(tasks,)``, in rows or seconds.
        parallelism: tasks that run side by side, at least 1.
    """
    if len(loads) <= parallelism:
        return float(loads.max(initial=0.0))
    ends = loads[:parallelism].tolist()
    heapq.heapify(ends)
    for load in loads[parallelism:].tolist():
        heapq.heapreplace(ends, ends[0] + load)
    return float(max(ends))
