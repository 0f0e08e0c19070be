"""Peers of one choice (hashing, salting, shuffling), of one choice for ever, and of two choices for each message.

Those that choose a task for each key once and keep to it are of Partial Key Grouping, section 6.2, Q1 (Nasir et al.,
2015), and so are the others that look at loads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.peers.candidates import compiled, hashed_task, least_loaded_candidate, least_loaded_task
from benchmarks.peers.measurement import Stream, Targets

#: Messages between two probes: the minute of section 6.2, Q2, at the rate of its Wikipedia log (22 M messages a day).
PROBE_EVERY_MESSAGES = 15_000


def hashing(stream: Stream) -> Targets:
    """Key grouping, H: each key goes to the task its hash names."""
    return _hash_each(stream.keys, stream.tasks, 1, stream.seed)


def salting(stream: Stream, salts: int = 16) -> Targets:
    """Salting by hand: message t of the stream goes to the task that (key, t mod ``salts``) hashes to.

    Only the first of its two phases is routed here. The second one merges partial states by key, as it must after
    every peer that splits keys; what it costs is said by the states per key.
    """
    return _hash_each(stream.keys, stream.tasks, salts, stream.seed)


def shuffle(stream: Stream) -> Targets:
    """Shuffle grouping, SG: round robin over the tasks."""
    return (np.arange(stream.keys.size) % stream.tasks).astype(np.int32)


@compiled
def _hash_each(keys: npt.NDArray[np.uint64], tasks: int, salts: int, seed: np.uint64) -> Targets:
    targets = np.empty(keys.shape[0], dtype=np.int32)
    for message in range(keys.shape[0]):
        targets[message] = hashed_task(keys[message], message % salts, tasks, seed)
    return targets


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


def pkg_global(stream: Stream, choices: int = 2) -> Targets:
    """G: true loads decide between a key's candidates, of which the first two differ."""
    return _route(stream.keys, stream.tasks, np.zeros(stream.keys.size, np.int32), choices, 0, stream.seed)


def pkg_local(stream: Stream, choices: int = 2) -> Targets:
    """L: every source decides by the load it has sent itself."""
    return _route(stream.keys, stream.tasks, stream.senders, choices, 0, stream.seed)


def pkg_probing(stream: Stream, choices: int = 2, probe_every: int = PROBE_EVERY_MESSAGES) -> Targets:
    """LP: as L, and after so many messages of the whole stream (at least 1) every source takes the true loads."""
    return _route(stream.keys, stream.tasks, stream.senders, choices, probe_every, stream.seed)


@compiled
def _route(
    keys: npt.NDArray[np.uint64], tasks: int, senders: npt.NDArray[np.int32], choices: int, probe_every: int,
    seed: np.uint64,
) -> Targets:  # fmt: skip
    """Place all messages; a ``probe_every`` of 0 means never."""
    loads = np.zeros(tasks, dtype=np.int64)
    estimates = np.zeros((senders.max() + 1, tasks), dtype=np.int64)
    targets = np.empty(keys.shape[0], dtype=np.int32)
    for message in range(keys.shape[0]):
        if probe_every > 0 and message % probe_every == 0:
            estimates[:] = loads
        source = senders[message]
        target = least_loaded_candidate(estimates[source], keys[message], choices, seed)
        estimates[source, target] += 1
        loads[target] += 1
        targets[message] = target
    return targets
