"""Threads for many short calls that wait for a file system."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")

#: Threads that inspect files; most of the time they wait for an object store.
THREADS = 16
#: Portions for each thread, so that none waits long for the last. A call takes some microseconds on a local disk, and
#: handing it to a thread on its own would take as long again.
_PORTIONS = 8
#: Calls are made without threads for so long: to start sixteen threads takes about as long as hundreds of such calls.
_ALONE_SECONDS = 0.02


def in_threads(call: Callable[[Given], Found], given: Iterable[Given]) -> Iterator[Found]:
    """The result of each call, in the order of the arguments.

    Raises:
        Exception: the one of the first argument, in this order, whose call raised.
    """
    arguments = list(given)
    until, done = time.monotonic() + _ALONE_SECONDS, 0
    while done < len(arguments) and time.monotonic() < until:
        yield call(arguments[done])
        done += 1
    left = arguments[done:]
    if not left:
        return
    size = -(-len(left) // (THREADS * _PORTIONS))
    portions = (left[start : start + size] for start in range(0, len(left), size))
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        yield from chain.from_iterable(pool.map(lambda portion: [call(one) for one in portion], portions))
