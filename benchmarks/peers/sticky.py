"""Peers that choose a task for each key once and keep to it (Partial Key Grouping, section 6.2, Q1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.peers.candidates import least_loaded_candidate, least_loaded_task
from benchmarks.peers.compiled import compiled
from benchmarks.peers.stream import Stream, Targets


def potc(stream: Stream) -> Targets:
    """PoTC: a new key goes to the less loaded of two distinct candidates, by true loads, and stays there."""
    return _place_new_keys(stream.keys, stream.ids, stream.distinct, stream.tasks, 2, stream.seed)


def on_greedy(stream: Stream) -> Targets:
    """On-Greedy: a new key goes to the least loaded of all tasks, by true loads, and stays there."""
    return _place_new_keys(stream.keys, stream.ids, stream.distinct, stream.tasks, stream.tasks, stream.seed)


def off_greedy(stream: Stream) -> Targets:
    """Off-Greedy: knowing all frequencies, keys go in descending order of them to the then least loaded task."""
    frequencies = np.bincount(stream.ids, minlength=stream.distinct)
    order = np.argsort(-frequencies, kind="stable")
    return _place_by_frequency(order, frequencies, stream.tasks)[stream.ids]


@compiled
def _place_new_keys(
    keys: npt.NDArray[np.uint64], ids: npt.NDArray[np.int64], distinct: int, tasks: int, choices: int, seed: np.uint64
) -> Targets:
    loads = np.zeros(tasks, dtype=np.int64)
    homes = np.full(distinct, -1, dtype=np.int32)
    targets = np.empty(ids.shape[0], dtype=np.int32)
    for message in range(ids.shape[0]):
        key = ids[message]
        if homes[key] < 0 and choices < tasks:
            homes[key] = least_loaded_candidate(loads, keys[message], choices, seed)
        elif homes[key] < 0:
            homes[key] = least_loaded_task(loads)
        targets[message] = homes[key]
        loads[homes[key]] += 1
    return targets


@compiled
def _place_by_frequency(order: npt.NDArray[np.int64], frequencies: npt.NDArray[np.int64], tasks: int) -> Targets:
    """The task of each key, shape (distinct,)."""
    loads = np.zeros(tasks, dtype=np.int64)
    homes = np.empty(order.shape[0], dtype=np.int32)
    for key in order:
        homes[key] = least_loaded_task(loads)
        loads[homes[key]] += frequencies[key]
    return homes
