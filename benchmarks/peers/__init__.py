"""The policies that Skewless is compared with, simulated message by message.

>>> from benchmarks.peers import PEERS
>>> from benchmarks.workloads import zipf
>>> outcome = PEERS["pkg"](zipf(keys=1000, exponent=1.2, messages=10_000, seed=0), tasks=8, sources=5, seed=0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.outcome import Outcome
from benchmarks.peers.head_choices import d_choices, w_choices
from benchmarks.peers.measurement import Stream, Targets, measure
from benchmarks.peers.routes import (
    hashing,
    off_greedy,
    on_greedy,
    pkg_global,
    pkg_local,
    pkg_probing,
    potc,
    salting,
    shuffle,
)


@dataclass(frozen=True)
class Peer:
    """A policy of one pass: where it sends each message, and how that turns out."""

    #: The name that results say.
    policy: str
    #: Decides the task of each message, in order of arrival.
    route: Callable[..., Targets]

    def __call__(
        self, keys: npt.NDArray[np.int64], tasks: int, sources: int = 5, seed: int = 0, **options: Any
    ) -> Outcome:
        """Place a stream and measure it; see ``Stream``.

        Args:
            keys: Keys in order of arrival, shape (messages,), at least one.
            tasks: Number of tasks, at least one.
            sources: Number of sources, at least one.
            seed: Seed of the hash functions, at least 0.
            options: What the policy takes besides, as ``choices`` of PKG or ``probe_every`` of its probing variant.

        Raises:
            ValueError: There is no message, no task or no source.
        """
        stream = Stream.of(keys, tasks, sources, seed)
        return measure(self.policy, stream, self.route(stream, **options))


_ROUTES: dict[str, Callable[..., Targets]] = {
    "hashing": hashing,
    "potc": potc,
    "on_greedy": on_greedy,
    "off_greedy": off_greedy,
    "pkg": pkg_local,
    "pkg_g": pkg_global,
    "pkg_l": pkg_local,
    "pkg_lp": pkg_probing,
    "d_choices_stream": d_choices,
    "w_choices_stream": w_choices,
    "salting": salting,
    "shuffle": shuffle,
}

#: All peers by name.
PEERS: dict[str, Peer] = {policy: Peer(policy, route) for policy, route in _ROUTES.items()}
