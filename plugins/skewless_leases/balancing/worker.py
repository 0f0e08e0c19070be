"""A worker with real time: its heartbeat and its looks are threads."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Self

from skewless_leases.balancing.member import Member, Work
from skewless_leases.lease_errors import LeaseError, StoreError
from skewless_leases.liveness.heartbeat import Heartbeat
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant
from skewless_leases.stores import open_store

log = logging.getLogger(__name__)


class Worker:
    """Takes part while it is entered: ``with Worker(...) as worker:``.

    The thread that looks at the tables may be late by as much as the work lets it wait; then it takes
    and gives back later, and is asked in vain for no longer than the maximum shutdown time.

    Args:
        address: of the store, as ``open_store`` takes it.
        name: a name for people; each life of a worker gets a name of its own from it.
        room: how many partitions it can hold.
        partitions: all that are to be held now, given what was committed by partition; asked at each look. A mapping
            says what each weighs.
        spans: the five time spans, the same for all workers.
        work: is told what is granted, asked back and lost, in the thread that looks.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        room: int,
        partitions: Callable[[Mapping[str, str]], Collection[str]],
        spans: TimeSpans,
        work: Work,
    ) -> None:
        self.name = f"{name}-{secrets.token_hex(4)}"
        self.store, self.spans = open_store(address), spans
        self._member = Member(self.store, self.name, partitions, spans, work)
        self._heartbeat = Heartbeat(address, self.name, room, spans.beat_every)
        self._leaving, self._sooner = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leases of {self.name}", daemon=True)
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        """Begin to beat, then to look."""
        self._heartbeat.begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give everything back. The caller has stopped its work."""
        self._leaving.set()
        self._sooner.set()
        self._thread.join()
        # In this order: nobody gives partitions to a worker that is gone, and nobody waits for it.
        self._heartbeat.stop()
        self._member.leave()
        if error is None:
            self._raise_failure()

    def grants(self) -> Mapping[str, Grant]:
        """What this worker held at its last look, by partition.

        This is to know what to work on. What makes a late writer harmless is ``commit``.

        Raises:
            LeaseError: the thread that looks has failed, and this worker holds nothing any more.
        """
        self._raise_failure()
        return self._member.grants

    def look_soon(self) -> None:
        """Look at the tables now and not when it is time: for whoever has just committed, and has room."""
        self._sooner.set()

    def _run(self) -> None:
        try:
            while not self._leaving.is_set():
                try:
                    self._member.step(time.monotonic())
                except StoreError as err:
                    log.warning("%s could not look at the tables, and tries again: %s", self.name, err)
                self._sooner.wait(self.spans.look_every)
                self._sooner.clear()
        except Exception as err:  # the work's own failure: told where the worker is asked
            log.exception("%s stops taking part", self.name)
            self._failure = err
            self._heartbeat.stop()

    def _raise_failure(self) -> None:
        if isinstance(self._failure, LeaseError):
            raise self._failure
        if self._failure is not None:
            came = f"{type(self._failure).__name__}: {self._failure}"
            raise LeaseError(
                f"worker {self.name}", "work that takes its calls", came, "its partitions go to others"
            ) from self._failure
