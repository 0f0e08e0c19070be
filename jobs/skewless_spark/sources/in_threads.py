"""Threads for many short calls that wait for a file system."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")

#: Threads that inspect files; most of the time they wait for an object store or a shared disk.
THREADS = 16
#: Calls that take less than so long on average do not wait. Python runs one thread at a time, and to go from one to
#: another costs more than such a call: a footer on a local disk takes 35 us, and 130 us with sixteen threads.
_QUICK_SECONDS = 2e-4
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
    began, done = time.monotonic(), 0
    while done < len(arguments) and time.monotonic() < began + max(_ALONE_SECONDS, done * _QUICK_SECONDS):
        yield call(arguments[done])
        done += 1
    left = arguments[done:]
    if not left:
        return
    size = -(-len(left) // (THREADS * _PORTIONS))
    portions = (left[start : start + size] for start in range(0, len(left), size))
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        yield from chain.from_iterable(pool.map(lambda portion: [call(one) for one in portion], portions))
