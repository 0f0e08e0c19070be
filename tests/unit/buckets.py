"""Buckets and containers as folders of this machine, by the schemes that object stores go by.

A real file system behind fsspec's real registry: s3fs, gcsfs and adlfs are not installed, and what they do to a
location is what this does: scheme and account go, the bucket or the container stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

#: As s3fs, gcsfs and adlfs name theirs: the first one is what they put before a path that they are asked for.
STORES = (("s3", "s3a"), ("gs", "gcs"), ("abfs", "abfss", "az"))


class BucketFileSystem(AbstractFileSystem):
    """Files below a folder, by ``bucket/key``; not ``LocalFileSystem``, as an object store is none."""

    root: ClassVar[Path]
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        _, scheme, rest = path.rpartition("://")
        if not scheme:
            return path.rstrip("/")
        place, slash, key = rest.partition("/")
        return f"{place.partition('@')[0]}{slash}{key}".rstrip("/")  # adlfs: the container stands before the account

    def _local(self, path: str) -> str:
        return str(self.root / self._strip_protocol(path))

    def _named(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "name": str(Path(facts["name"]).relative_to(self.root))}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = [self._named(one) for one in LocalFileSystem().ls(self._local(path), detail=True)]
        return found if detail else [one["name"] for one in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return self._named(LocalFileSystem().info(self._local(path)))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        LocalFileSystem().makedirs(self._local(path), exist_ok=exist_ok)

    def modified(self, path: str) -> Any:
        return LocalFileSystem().modified(self._local(path))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return Path(self._local(path)).open(mode)


@contextmanager
def registered(root: Path) -> Iterator[None]:
    """fsspec opens the schemes of object stores below a folder, until the end of the block."""
    known = import_module("fsspec.registry")._registry  # fsspec.registry is a view of it
    before = dict(known)
    for schemes in STORES:
        kind = type(f"{schemes[0].title()}Buckets", (BucketFileSystem,), {"root": root, "protocol": schemes})
        for scheme in schemes:
            fsspec.register_implementation(scheme, kind, clobber=True)
    try:
        yield
    finally:
        known.clear()
        known.update(before)
