"""One machine: its disk, its bucket, its clock and its random numbers are simulated, and the product is what it is."""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self, cast
from unittest.mock import patch

from fsspec import asyn

from skewless.run.objects import client, files
from skewless.run.publication import exchange
from skewless_leases.errors import LeaseError
from skewless_leases.liveness import heartbeat_process
from skewless_leases.ownership import lease
from skewless_leases.stores import object_store
from tests.simulation.bucket import Bucket, Store, at_once
from tests.simulation.disk import Disk, mounted
from tests.simulation.world import Process, World


class Machine:
    """What the processes of a history share."""

    def __init__(self, world: World) -> None:
        self.world, self.disk, self.bucket = world, Disk(world), Bucket(world)
        self.store = Store(self.bucket)
        world.power_lost.append(self.disk.lose_power)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Let the product run on this machine."""
        world = self.world
        clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now, sleep=world.sleep)
        replaced: list[tuple[Any, str, Any]] = [
            (secrets, "token_hex", lambda count=32: world.draws.randbytes(count).hex()),
            (os, "getpid", lambda: 1),
            (os, "getppid", self._parent),
            (exchange, "ctypes", self._libc()),
            (lease, "time", clock),
            (lease, "Heartbeat", self.heartbeat),
            (heartbeat_process, "time", clock),
            (heartbeat_process, "is_stopped", self._is_stopped),
            (heartbeat_process, "_answer", lambda told, refusal: told["answers"].append(refusal)),
            *((module, "obstore", self.bucket) for module in (client, files, object_store)),
            (client, "from_url", lambda *_, **__: self.store),
            (client, "_trusted", []),
            (asyn, "sync", at_once),
            (object_store, "KEPT_VERSIONS", 4),  # so that numbers are removed, and given again to whoever sleeps
            (object_store, "ThreadPoolExecutor", _InTurn),
        ]
        client._bucket.cache_clear()
        logging.disable(logging.CRITICAL)
        with mounted(self.disk):
            patches = [patch.object(*one) for one in replaced]
            for one in patches:
                one.start()
            try:
                yield
            finally:
                for one in reversed(patches):
                    one.stop()
                client._bucket.cache_clear()
                logging.disable(logging.NOTSET)

    def heartbeat(self, address: str, worker: str, room: int, every: float) -> _Heartbeat:
        """The heartbeat of a process under a worker's name."""
        return _Heartbeat(self.world, address, worker, room, every)

    def _libc(self) -> Any:
        errors = [0]

        def renameat2(_: int, source: bytes, __: int, target: bytes, ___: int) -> int:
            try:
                self.disk.exchange(os.fsdecode(source), os.fsdecode(target))
            except OSError as err:
                errors[0] = err.errno or 0
                return -1
            return 0

        def cdll(*_: Any, **__: Any) -> Any:
            return SimpleNamespace(renameat2=renameat2)

        return SimpleNamespace(CDLL=cdll, get_errno=lambda: errors[0], c_int=ctypes.c_int)

    def _parent(self) -> int:
        me = self.world.running
        parent = me.parent if me else None
        return 1 if parent is None or parent.ended or parent.dead else parent.pid

    def _is_stopped(self, pid: int) -> bool:
        me = self.world.running
        return bool(me and me.parent and me.parent.pid == pid and me.parent.stopped)


class _Heartbeat:
    """A worker's heartbeat: the product's own loop, in a simulated process beside the worker's."""

    def __init__(self, world: World, address: str, worker: str, room: int, every: float) -> None:
        self._world, self._over = world, _Event(world)
        self._beats: Process | None = None
        self._told: dict[str, Any] = {
            "number": 0, "address": address, "environment": {}, "worker": worker, "room": room, "every": every,
            "answers": list[Any](),
        }  # fmt: skip
        self._answers: list[Any] = self._told["answers"]

    def keep(self) -> None:
        me = self._world.running
        if me is None or self._beats:
            return
        self._beats = self._world.begin(
            f"heartbeat of {me.name}", lambda: heartbeat_process._beat(self._told, me.pid, cast(Any, self._over)),
            restarts=0, serves=True,
        )  # fmt: skip
        self._wait(1)
        if not self._answers:
            raise LeaseError.saying(f"heartbeat of {me.name}", "it did not begin")
        if refusal := self._answers[0]:
            raise LeaseError(*refusal)

    def stop(self) -> None:
        self._over.happened = True
        self._wait(2)

    def _wait(self, answers: int) -> None:
        while self._beats and not self._beats.ended and len(self._answers) < answers:
            self._world.sleep(0.05)


class _Event:
    """An event that is waited for in simulated time."""

    def __init__(self, world: World) -> None:
        self._world, self.happened = world, False

    def wait(self, seconds: float) -> bool:
        until = self._world.now + seconds
        while not self.happened and self._world.now < until:
            self._world.sleep(min(0.5, until - self._world.now))
        return self.happened


class _InTurn:
    """A pool that does one thing after the other."""

    def __init__(self, _: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, act: Callable[[Any], Any], many: Any) -> list[Any]:
        return [act(one) for one in many]
