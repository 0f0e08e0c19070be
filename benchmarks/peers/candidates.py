"""Which tasks a key may go to: independent 64-bit hashes, and the least loaded of the tasks they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
#: 2**64 over the golden ratio, odd: the step between the states of SplitMix64.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


def compiled(kernel: Kernel) -> Kernel:
    """Compile a function of arrays and numbers, in numba's subset of Python, at its first call.

    Nothing is cached on disk, so a changed callee is never missed and a read-only checkout works.
    """
    return cast("Kernel", numba.njit(cache=False)(kernel))


@compiled
def mix(word: np.uint64) -> np.uint64:
    """Scramble 64 bits, one to one: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    word = (word ^ (word >> np.uint64(30))) * _FIRST_FACTOR
    word = (word ^ (word >> np.uint64(27))) * _SECOND_FACTOR
    return word ^ (word >> np.uint64(31))


@compiled
def hashed_task(key: np.uint64, function: int, tasks: int, seed: np.uint64) -> int:
    """The task in 0..tasks-1 that hash function number ``function`` gives to a key.

    The range is reduced by a product instead of a remainder (Lemire 2019); it takes the upper 32 bits of the hash.
    """
    word = mix(key ^ mix(seed + np.uint64(function + 1) * GOLDEN))
    # Signed at once: numba answers a sum of signed and unsigned words with a float.
    return int(np.int64(((word >> np.uint64(32)) * np.uint64(tasks)) >> np.uint64(32)))


@compiled
def candidate(key: np.uint64, index: int, tasks: int, seed: np.uint64) -> int:
    """Candidate number ``index`` of a key; the first two differ wherever there are two tasks.

    Further candidates are independent and may meet earlier ones.
    """
    if index != 1 or tasks == 1:
        return hashed_task(key, index, tasks, seed)
    # The second one of the tasks without the first, all equally likely.
    second = hashed_task(key, 1, tasks - 1, seed)
    return second + 1 if second >= hashed_task(key, 0, tasks, seed) else second


@compiled
def least_loaded_candidate(loads: npt.NDArray[np.int64], key: np.uint64, choices: int, seed: np.uint64) -> int:
    """The least loaded of a key's first ``choices`` candidates; the earliest of them on a tie.

    Args:
        loads: Load of each task as the chooser knows it, shape (tasks,).
        key: The key.
        choices: Number d of candidates, at least 1.
        seed: Seed of the hash functions.
    """
    tasks = loads.shape[0]
    best = candidate(key, 0, tasks, seed)
    for index in range(1, choices):
        other = candidate(key, index, tasks, seed)
        if loads[other] < loads[best]:
            best = other
    return best


@compiled
def least_loaded_task(loads: npt.NDArray[np.int64]) -> int:
    """The least loaded of all tasks; the lowest number on a tie."""
    best = 0
    for task in range(1, loads.shape[0]):
        if loads[task] < loads[best]:
            best = task
    return best
