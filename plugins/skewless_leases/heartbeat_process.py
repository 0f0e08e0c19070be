"""The process that beats for a worker: ``python -m skewless_leases.heartbeat_process``.

A thread of the worker would have to wait for the interpreter's lock whenever the worker computes in
a C extension; another process has only to be given a moment of a processor. It stops beating while the
worker is stopped, since a stopped worker does not work, and says so when the worker has ended.

It reads one line of JSON from its standard input (the store's address may hold a password, and does not
belong on a command line) and answers "beating". The end of its input, or of its parent, is the end of the
worker.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time

from skewless_leases.address import open_store
from skewless_leases.beat import Beat
from skewless_leases.errors import LeaseError
from skewless_leases.process_state import is_stopped

log = logging.getLogger(__name__)


def main() -> None:
    """Beat until the worker ends."""
    # A terminal and Airflow signal all processes of a group. This one ends when the worker has ended.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    told = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="heartbeat of " + told["worker"] + ": %(message)s")
    worker_pid, every = told["pid"], told["every"]
    # An answer that is late must not cost more than the next few beats.
    store = open_store(told["address"], durable=False, answer_seconds=5 * every)
    beat = Beat(store, told["worker"], told["room"])
    _tried(beat)
    print("beating", flush=True)  # noqa: T201 - the handle waits for it
    following = time.monotonic() + every
    while os.getppid() == worker_pid and not _input_ended(following - time.monotonic()):
        following = max(following + every, time.monotonic())
        if not is_stopped(worker_pid):
            _tried(beat)
    for _ in range(3):
        if _tried(beat, gone=True):
            return


def _input_ended(within: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], max(within, 0.0))
    return bool(ready)


def _tried(beat: Beat, *, gone: bool = False) -> bool:
    """Beat; a store that cannot be reached now may be reached at the next beat."""
    try:
        return beat.once(gone=gone)
    except LeaseError as err:
        log.warning("%s", err)
        return False


if __name__ == "__main__":
    main()
