"""The process that beats for a worker: ``python -m skewless_leases.liveness.heartbeat_process``.

A thread of the worker would have to wait for the interpreter's lock whenever the worker computes in
a C extension; another process has only to be given a moment of a processor. It stops beating while the
worker is stopped, since a stopped worker does not work, and says so when the worker has ended.

It reads one line of JSON from its standard input (the store's address may hold a password, and does not
belong on a command line) and answers with another one: null, or why the store will never take a beat of this
worker. Anything more on its input, the end of that, or the end of its parent is the end of the worker.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time

from skewless_leases.errors import LeaseError, StoreError
from skewless_leases.liveness.beat import Beat
from skewless_leases.liveness.process_state import is_stopped
from skewless_leases.stores.address import open_store

log = logging.getLogger(__name__)

#: How long a call may wait for an answer. It may wait three times: for the answer, for a new connection, and for
#: another one or the answer on it. That is six beats in all, of the ten in a maximum lease time.
ANSWER_BEATS = 2


def main() -> None:
    """Beat until the worker ends."""
    # A terminal and Airflow signal all processes of a group. This one ends when the worker has ended.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    told = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="heartbeat of " + told["worker"] + ": %(message)s")
    worker_pid, every = told["pid"], told["every"]
    store = open_store(told["address"], durable=False, answer_seconds=ANSWER_BEATS * every)
    beat = Beat(store, told["worker"], told["room"])
    refusal = _refusal(beat)
    print(json.dumps(refusal), flush=True)  # noqa: T201 - the handle waits for it
    if refusal:
        return
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


def _refusal(beat: Beat) -> tuple[str, str, str, str] | None:
    """Beat for the first time; what a store says that will not take the next beat either."""
    try:
        beat.once()
    except StoreError as err:
        log.warning("%s", err)
    except LeaseError as err:
        return err.where, err.required, err.came, err.hint
    return None


def _tried(beat: Beat, *, gone: bool = False) -> bool:
    """Beat; a store that cannot be reached now may be reached at the next beat."""
    try:
        return beat.once(gone=gone)
    except LeaseError as err:
        log.warning("%s", err)
        return False


if __name__ == "__main__":
    main()
