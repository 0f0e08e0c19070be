"""Streams of integer keys, drawn anew from a seed: the synthetic workloads of the balance benchmarks.

The distributions are those of "Partial Key Grouping" (Nasir et al., 2015), section 6.1. A stream is an array of keys
in order of arrival; a key is one integer, a message one element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: A stream of keys in order of arrival, shape (messages,).
Keys = npt.NDArray[np.int64]


def zipf(keys: int, exponent: float, messages: int, seed: int) -> Keys:
    """Draw independently from Zipf's law over the keys 1..``keys`` (inclusive).

    Key r has probability r**-z / sum over x of x**-z (Partial Key Grouping, section 6.1), z being the exponent.
    """
    return draw_ranks(np.random.default_rng(seed), keys, exponent, messages)


def lognormal_1(messages: int = 10_000_000, seed: int = 0) -> Keys:
    """Draw the workload LN1 of Partial Key Grouping, Table I: 16 k keys, the hottest with 14.7 % of 10 M messages.

    Keys are at least 0; the hottest is 0.
    """
    return _draw_lognormal(1.789, 2.366, messages, seed)


def lognormal_2(messages: int = 10_000_000, seed: int = 0) -> Keys:
    """Draw the workload LN2 of Partial Key Grouping, Table I: 1.1 k keys, the hottest with 7.0 % of 10 M messages.

    Keys are at least 0; the hottest is 3.
    """
    return _draw_lognormal(2.245, 1.133, messages, seed)


def drift(keys: int, exponent: float, messages: int, epochs: int = 10, seed: int = 0) -> Keys:
    """Draw from Zipf's law, whose hot keys are others in every epoch.

    The stream is cut into ``epochs`` parts of equal length (they differ by at most one message). Each part permutes
    anew which key has which rank, so the law stays and the identities change, as in the cash tags of
    Partial Key Grouping, Figure 3, but at once. Keys are 1..``keys`` (inclusive).
    """
    random = np.random.default_rng(seed)
    ranks = draw_ranks(random, keys, exponent, messages)
    parts = np.array_split(ranks, epochs)
    return np.concatenate([random.permutation(keys)[part - 1] + 1 for part in parts])


def draw_ranks(random: np.random.Generator, keys: int, exponent: float, messages: int) -> Keys:
    """The ranks of so many draws from Zipf's law, from 1."""
    cumulative = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -exponent)
    cumulative /= cumulative[-1]
    # A draw is below 1, the last sum is 1: so "right" never answers a rank past the last.
    return np.searchsorted(cumulative, random.random(messages), side="right").astype(np.int64) + 1


def _draw_lognormal(mean: float, deviation: float, messages: int, seed: int) -> Keys:
    """Round log-normal draws; ``mean`` and ``deviation`` are those of the logarithm."""
    return np.rint(np.random.default_rng(seed).lognormal(mean, deviation, messages)).astype(np.int64)


def numbered(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Keys]:
    """Number keys in ascending order.

    Args:
        keys: integers or texts, shape (messages,), at least one.

    Returns:
        The distinct keys, ascending, and the number of each message's key among them, shape (messages,).
    """
    if keys.dtype.kind not in "iu" or keys.min() < 0 or keys.max() > 10 * keys.size + 10_000_000:
        distinct, numbers = np.unique(keys, return_inverse=True)
        return distinct, numbers.astype(np.int64)
    # Small keys need no sort: ten million messages are numbered in a tenth of the time.
    present = np.zeros(int(keys.max()) + 1, dtype=np.bool_)
    present[keys] = True
    return np.flatnonzero(present).astype(keys.dtype), (np.cumsum(present) - 1)[keys]
