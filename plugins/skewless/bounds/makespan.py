"""How long tasks take side by side."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt


def makespan(loads: npt.NDArray[np.float64], slots: int) -> float:
    """When the last task is done, if ``slots`` tasks run side by side and are started in their order.

    Spark starts the tasks of a stage by partition, each in the next slot that is free (list
    scheduling, Graham 1966). With a slot for each task it is the largest load.

    Args:
        loads: of each task, shape ``(tasks,)``, in rows or seconds.
        slots: at least 1.
    """
    if len(loads) <= slots:
        return float(loads.max(initial=0.0))
    ends = loads[:slots].tolist()
    heapq.heapify(ends)
    for load in loads[slots:].tolist():
        heapq.heapreplace(ends, ends[0] + load)
    return float(max(ends))
