"""One machine: its disk, its bucket, its clock and its random numbers are simulated, and the product is what it is."""

import ctypes
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

from fsspec import asyn

from skewless.publication import places
from skewless.run import object_client
from skewless_leases import lease, object_store
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
            (places, "ctypes", self._libc()),
            (lease, "time", clock),
            (lease, "threading", SimpleNamespace(Event=lambda: _Event(world), Thread=partial(_Thread, world))),
            *((module, "obstore", self.bucket) for module in (object_client, object_store)),
            (object_client, "from_url", lambda *_, **__: self.store),
            (object_client, "_trusted", []),
            (asyn, "sync", at_once),
            (object_store, "KEPT_VERSIONS", 4),  # so that numbers are removed, and given again to whoever sleeps
            (object_store, "ThreadPoolExecutor", _InTurn),
        ]
        object_client._bucket.cache_clear()
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
                object_client._bucket.cache_clear()
                logging.disable(logging.NOTSET)

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


class _Thread:
    def __init__(self, world: World, target: Callable[[], object], name: str, daemon: bool) -> None:
        self._world, self._target, self._name, self._serves = world, target, name, daemon
        self._running: Process | None = None

    def start(self) -> None:
        me = self._world.running
        if me is not None:  # else nobody runs who could be killed
            self._running = self._world.begin(self._name, self._target, restarts=0, serves=self._serves, owner=me)

    def join(self, seconds: float) -> None:
        until = self._world.now + seconds
        while self._running and not self._running.ended and self._world.now < until:
            self._world.sleep(0.05)


class _Event:
    def __init__(self, world: World) -> None:
        self._world, self.happened = world, False

    def set(self) -> None:
        self.happened = True

    def wait(self, seconds: float) -> bool:
        until = self._world.now + seconds
        while not self.happened and self._world.now < until:
            self._world.sleep(min(0.5, until - self._world.now))
        return self.happened


class _InTurn:
    def __init__(self, _: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, act: Callable[[Any], Any], many: Any) -> list[Any]:
        return [act(one) for one in many]
