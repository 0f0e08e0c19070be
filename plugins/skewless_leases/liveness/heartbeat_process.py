"""The process that beats for the workers of a process: ``python -m skewless_leases.liveness.heartbeat_process``.

A thread of the worker would have to wait for the interpreter's lock whenever the worker computes in
a C extension; another process has only to be given a moment of a processor. It stops beating while the
worker's process is stopped, since a stopped worker does not work, and says so when that has ended.

It is told the parent's id. On its standard input it reads lines of JSON: for whom to begin, with the store's address,
which may hold a password and does not belong on a command line; and for whom to end. To each it answers with the
number that it was given, and with null or why the store will never take a beat of this worker. A worker's beats are in
a thread of their own, so that a store that does not answer costs no other worker a beat. The end of the input, or of
the parent, is the end of all workers.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import psutil

from skewless_leases.errors import LeaseError, StoreError
from skewless_leases.liveness.heartbeat import Lines
from skewless_leases.stores import open_store
from skewless_leases.stores.store import KeyValueStore
from skewless_leases.stores.tables import WORKERS, Presence, decode, encode

log = logging.getLogger(__name__)

#: How long a call may wait for an answer. It may wait three times: for the answer, for a new connection, and for
#: another one or the answer on it. That is six beats in all, of the ten in a maximum lease time.
ANSWER_BEATS = 2
#: How often it looks whether its parent is there.
_LOOK_SECONDS = 2.0


class Beat:
    """Writes a worker's presence; nobody else writes it, so that a beat is one call as a rule."""

    def __init__(self, store: KeyValueStore, worker: str, room: int) -> None:
        self.store, self.key, self.room = store, WORKERS + worker, room
        self._beat = 0
        self._version: str | None = None

    def once(self, *, gone: bool = False) -> bool:
        """Beat; with ``gone`` for the last time.

        Returns:
            False if somebody had removed or changed the record; the next call writes over what is there now.
        """
        self._beat += 1
        presence = Presence(self._beat, 0 if gone else self.room, gone=gone)
        version = self.store.put(self.key, encode(presence), self._version)
        if version is None:
            self._find()
            return False
        self._version = version
        return True

    def _find(self) -> None:
        row = self.store.get(self.key)
        self._version = row.version if row else None
        if row:
            # A heartbeat that was started anew goes on counting: a number that comes again is no beat.
            with contextlib.suppress(LeaseError):
                self._beat = max(self._beat, decode(Presence, row.value, self.key).beat)


def main() -> None:
    """Beat for workers until their process ends."""
    # A terminal and Airflow signal all processes of a group. This one ends when the workers have ended.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="heartbeat of %(threadName)s: %(message)s")
    parent, lines = int(sys.argv[1]), Lines(sys.stdin.fileno())
    beating: dict[int, threading.Event] = {}
    # A child that a worker has forked may hold the input open.
    while os.getppid() == parent:
        try:
            told = lines.next(_LOOK_SECONDS)
        except EOFError:
            break
        if told is None:
            continue
        number = told["number"]
        if told["every"] is None:
            beating.pop(number).set()
        else:
            over = beating[number] = threading.Event()
            threading.Thread(target=_beat, args=(told, parent, over), name=told["worker"]).start()
    for over in beating.values():
        over.set()


def is_stopped(pid: int) -> bool:
    """Whether a process is there and was told not to run: by SIGSTOP, by a terminal, or by a debugger that holds it.

    One that computes, sleeps or waits for a disk is not stopped.
    """
    try:
        return psutil.Process(pid).status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
    except psutil.NoSuchProcess:
        return False


def _beat(told: Mapping[str, Any], parent: int, over: threading.Event) -> None:
    """Beat for a worker until it has ended."""
    every = told["every"]
    try:
        os.environ.update(told["environment"])
        store = open_store(told["address"], durable=False, answer_seconds=ANSWER_BEATS * every)
        beat = Beat(store, told["worker"], told["room"])
        refusal = _refusal(beat)
    except LeaseError as err:
        refusal = _said(err)
    _answer(told, refusal)
    if refusal:
        return
    following = time.monotonic() + every
    while os.getppid() == parent and not over.wait(max(following - time.monotonic(), 0.0)):
        following = max(following + every, time.monotonic())
        if not is_stopped(parent):
            _try(beat)
    for _ in range(3):
        if _try(beat, gone=True):
            break
    _answer(told, None)


def _answer(told: Mapping[str, Any], refusal: tuple[str, ...] | None) -> None:
    line = json.dumps([told["number"], refusal]) + "\n"
    with contextlib.suppress(OSError):  # whoever asked has ended
        os.write(sys.stdout.fileno(), line.encode())


def _refusal(beat: Beat) -> tuple[str, ...] | None:
    """Beat for the first time; what a store says that will not take the next beat either."""
    try:
        beat.once()
    except StoreError as err:
        log.warning("%s", err)
    except LeaseError as err:
        return _said(err)
    return None


def _said(err: LeaseError) -> tuple[str, ...]:
    return err.where, err.required, err.came, err.hint


def _try(beat: Beat, *, gone: bool = False) -> bool:
    """Beat; a store that cannot be reached now may be reached at the next beat."""
    try:
        return beat.once(gone=gone)
    except LeaseError as err:
        log.warning("%s", err)
        return False


if __name__ == "__main__":
    main()
