"""A simulated object store, under the functions of obstore that the product calls.

An object is there whole or not at all, and a listing shows what is there. A request may be lost; its answer may be
lost, and then the client may send it again; or it may arrive after its client has given up.
"""

import datetime as dt
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from obstore.exceptions import AlreadyExistsError, BaseError

from tests.simulation.world import World

Answer = TypeVar("Answer")
#: How long after its client has given up a request arrives at the latest.
LATE_SECONDS = 40.0


class Got:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def bytes(self) -> Any:
        return self.content

    def to_bytes(self) -> Any:
        return self.content

    async def bytes_async(self) -> "Got":
        return self


def at_once(_: object, asked: Callable[..., Coroutine[Any, Any, Answer]], *args: Any, **kwargs: Any) -> Answer:
    """What ``fsspec.asyn.sync`` returns, without its thread: nothing here waits for anything but its turn."""
    try:
        asked(*args, **kwargs).send(None)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    raise AssertionError("it waits")


class Store:
    """The client of a bucket, with the methods that ``FsspecStore`` calls."""

    def __init__(self, bucket: "Bucket") -> None:
        self.bucket = bucket

    async def list_with_delimiter_async(self, prefix: str | None = None) -> dict[str, Any]:
        return self.bucket.list_with_delimiter(prefix)

    async def delete_async(self, key: str) -> None:
        self.bucket.delete(self, [key])


class Bucket:
    """All objects, by their keys: content and time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[str, tuple[bytes, float]] = {}

    def put(self, _: object, key: str, content: Any, *, mode: str = "overwrite", **__: Any) -> None:
        whole = content if isinstance(content, bytes) else content.read()

        def write() -> None:
            if mode == "create" and key in self.objects:
                raise AlreadyExistsError(key)
            self.objects[key] = (whole, self.world.now)

        self._asked(f"put {key}", write)

    def delete(self, _: object, keys: Sequence[str]) -> None:
        for key in keys:
            self._asked(f"delete {key}", partial(self.objects.pop, key, None))

    def get(self, _: object, key: str) -> "Got":
        return Got(self._asked(f"get {key}", lambda: self._found(key)[0]))

    async def get_async(self, _: object, key: str) -> "Got":
        return self.get(_, key)

    def head(self, _: object, key: str) -> dict[str, Any]:
        return self._asked(f"head {key}", lambda: self._facts(key))

    async def head_async(self, _: object, key: str) -> dict[str, Any]:
        return self.head(_, key)

    def list(self, _: object, prefix: str | None = None, offset: str | None = None) -> Sequence[Any]:
        return [self._asked(f"list {prefix}", lambda: [self._facts(key) for key in self._below(prefix, offset)])]

    def list_with_delimiter(self, prefix: str | None = None) -> dict[str, Any]:
        def listed() -> dict[str, Any]:
            length = len(prefix) + 1 if prefix else 0
            keys = self._below(prefix)
            folders = sorted({key[: key.index("/", length)] for key in keys if "/" in key[length:]})
            return {
                "objects": [self._facts(key) for key in keys if "/" not in key[length:]], "common_prefixes": folders
            }  # fmt: skip

        return self._asked(f"list {prefix}/", listed)

    def _asked(self, what: str, act: Callable[[], Answer]) -> Answer:
        self.world.call(what)
        writes = what[0] in "pd" and what[1] in "ue"
        mishap = self.world.loses("request", *(("answer", "sent again", "late") if writes else ()))
        if mishap == "late":
            self.world.begin(f"late {what}", lambda: _arrives(act), after=self._late(), restarts=0)
        elif mishap in {"answer", "sent again"}:
            _arrives(act)
        if mishap in {"", "sent again"}:
            answer = act()
            self.world.call(f"{what}: answered")
            return answer
        raise BaseError("Generic S3 error: Error performing PUT http://store/key in 1s - request timed out")

    def _late(self) -> float:
        return self.world.draws.uniform(0, LATE_SECONDS)

    def _below(self, prefix: str | None, offset: str | None = None) -> Sequence[str]:
        below = f"{prefix}/" if prefix else ""
        return sorted(key for key in self.objects if key.startswith(below) and (offset is None or key > offset))

    def _found(self, key: str) -> tuple[bytes, float]:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def _facts(self, key: str) -> dict[str, Any]:
        content, moment = self._found(key)
        at = dt.datetime.fromtimestamp(moment, dt.UTC)
        return {"path": key, "size": len(content), "e_tag": "", "last_modified": at}


def _arrives(act: Callable[[], object]) -> None:
    try:
        act()
    except BaseError:
        return
