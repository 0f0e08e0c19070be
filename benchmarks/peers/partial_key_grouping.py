"""Partial Key Grouping (Nasir et al., 2015): each message goes to the less loaded of its key's two candidates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.peers.candidates import least_loaded_candidate
from benchmarks.peers.compiled import compiled
from benchmarks.peers.stream import Stream, Targets

#: Messages between two probes: the minute of section 6.2, Q2, at the rate of its Wikipedia log (22 M messages a day).
PROBE_EVERY_MESSAGES = 15_000


def pkg_global(stream: Stream, choices: int = 2) -> Targets:
    """G: true loads decide.

    Args:
        stream: What to place.
        choices: Candidates per key; the first two differ, further ones are independent.
    """
    return _route(stream.keys, stream.tasks, 1, choices, 0, stream.seed)


def pkg_local(stream: Stream, choices: int = 2) -> Targets:
    """L: every source decides by the load it has sent itself.

    Args:
        stream: What to place.
        choices: Candidates per key; the first two differ, further ones are independent.
    """
    return _route(stream.keys, stream.tasks, stream.sources, choices, 0, stream.seed)


def pkg_probing(stream: Stream, choices: int = 2, probe_every: int = PROBE_EVERY_MESSAGES) -> Targets:
    """LP: as L, and from time to time every source takes the true loads for its own.

    Args:
        stream: What to place.
        choices: Candidates per key; the first two differ, further ones are independent.
        probe_every: Messages of the whole stream between two probes, at least 1.
    """
    return _route(stream.keys, stream.tasks, stream.sources, choices, probe_every, stream.seed)


@compiled
def _route(
    keys: npt.NDArray[np.uint64], tasks: int, sources: int, choices: int, probe_every: int, seed: np.uint64
) -> Targets:
    """Place all messages; a ``probe_every`` of 0 means never."""
    loads = np.zeros(tasks, dtype=np.int64)
    estimates = np.zeros((sources, tasks), dtype=np.int64)
    targets = np.empty(keys.shape[0], dtype=np.int32)
    for message in range(keys.shape[0]):
        if probe_every > 0 and message % probe_every == 0:
            estimates[:] = loads
        source = message % sources
        target = least_loaded_candidate(estimates[source], keys[message], choices, seed)
        estimates[source, target] += 1
        loads[target] += 1
        targets[message] = target
    return targets
