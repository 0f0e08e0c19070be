"""Peers that look at no load: hashing, salting, shuffling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.peers.candidates import hashed_task
from benchmarks.peers.compiled import compiled
from benchmarks.peers.stream import Stream, Targets


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
