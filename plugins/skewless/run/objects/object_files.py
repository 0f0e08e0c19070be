"""The objects of a store as files of fsspec: what is written is there whole or not at all, and nothing is cached."""

from __future__ import annotations

import datetime as dt
import io
import posixpath
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import obstore
from obstore.fsspec import BufferedFile, FsspecStore

from skewless.run.objects.client import answered, bucket, create, require_first_writer

#: A file that is not larger is read in one request, and is in memory until it is uploaded.
_BLOCK = 1 << 20
#: The size of a part of an object that is uploaded in parts, and how many are on their way at a time.
_PART, _PARTS_AT_A_TIME = 16 << 20, 4


class ObjectFiles(FsspecStore):  # type: ignore[misc]  # as fsspec, it counts as untyped
    """The files of all buckets of a scheme, like ``s3a``. A path in it is ``BUCKET/KEY``.

    All methods are fsspec's own, with its arguments. They raise ``OSError`` and its kinds, as a local file system. That
    of obstore raises errors of its own, loads a file that it copies into memory, and uploads the file of a writer that
    has failed.
    """

    #: The environment may name another server by now.
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(name) for name in path]
        return str(path).rpartition("://")[2].rstrip("/")

    def _construct_store(self, bucket_name: str) -> Any:
        return bucket(str(self.protocol), bucket_name)

    def _split(self, path: str) -> tuple[Any, str, str]:
        """The client of a path's bucket, the bucket and the key."""
        place, key = self._split_path(self._strip_protocol(path))
        return self._construct_store(place), place, key

    def create(self, path: str, content: bytes) -> bool:
        """See ``client.create``; a ``RunDirectoryError`` if the store lets every writer win."""
        store, place, key = self._split(path)
        require_first_writer(f"{self.protocol}://{place}", store, posixpath.dirname(key))
        return create(store, key, content)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        store, place, key = self._split(path)
        if key:
            with suppress(FileNotFoundError), answered(path):
                return _facts(place, await obstore.head_async(store, key))
        await self._ls(path)
        return {"name": path, "size": 0, "type": "directory"}

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        with answered(path):
            return await super()._ls(self._strip_protocol(path), detail)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:  # fmt: skip
        """All objects below a folder, by one listing; fsspec's own passes over folders that it cannot list."""
        path = self._strip_protocol(path)
        store, place, key = self._split(path)
        with answered(path):
            entries = [_facts(place, entry) for page in obstore.list(store, key or None) for entry in page]
        if not entries and key:
            with suppress(FileNotFoundError), answered(path):
                entries = [_facts(place, obstore.head(store, key))]
        below = {entry["name"]: entry for entry in entries}
        if withdirs:
            for name in list(below):
                while len(name := posixpath.dirname(name)) > len(path):
                    below[name] = {"name": name, "size": 0, "type": "directory"}
        if maxdepth is not None:
            below = {name: entry for name, entry in below.items() if name[len(path) :].count("/") <= maxdepth}
        return dict(sorted(below.items())) if detail else sorted(below)

    async def _find(self, *args: Any, **kwargs: Any) -> Any:
        return self.find(*args, **kwargs)  # of ``glob``

    async def _cat_file(self, path: str) -> bytes:
        store, _, key = self._split(path)
        with answered(path):
            content: bytes = (await (await obstore.get_async(store, key)).bytes_async()).to_bytes()
        return content

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Copy an object into a local file."""
        store, _place, key = self._split(rpath)
        with answered(rpath), Path(lpath).open("wb") as out:
            out.writelines(obstore.get(store, key).stream())

    def modified(self, path: str) -> dt.datetime:
        """When an object was written."""
        moment: dt.datetime = self.info(path)["LastModified"]
        return moment

    async def _rm_file(self, path: str, **_: Any) -> None:
        with answered(path):
            await super()._rm_file(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        store, _place, key = self._split(path)
        if mode == "wb":
            return _Upload(lambda content: _upload(store, key, content))
        size = int(self.info(path)["size"])
        return io.BytesIO(self.cat_file(path)) if size <= _BLOCK else _Large(self, path, "rb", size=size)


class _Large(BufferedFile):  # type: ignore[misc]
    def read(self, length: int = -1) -> Any:
        with answered(self.path):
            return super().read(length)


class _Upload(tempfile.SpooledTemporaryFile[bytes]):
    """An object that is written. It is uploaded once it is complete: if its block ends in an error, there is none."""

    def __init__(self, upload: Callable[[IO[bytes]], None]) -> None:
        super().__init__(max_size=_BLOCK)
        self._upload: Callable[[IO[bytes]], None] | None = upload

    def close(self) -> None:
        upload, self._upload = self._upload, None
        try:
            if upload is not None:
                self.seek(0)
                upload(self)
        finally:
            super().close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._upload = None
        self.close()

    def __del__(self) -> None:
        self._upload = None  # nobody has closed it
        self.close()


def _upload(store: Any, key: str, content: IO[bytes]) -> None:
    """Upload a file from where it is read. A large one goes in parts, which are removed if one of them fails."""
    with answered(key):
        obstore.put(store, key, content, chunk_size=_PART, max_concurrency=_PARTS_AT_A_TIME)


def _facts(place: str, entry: Any) -> dict[str, Any]:
    return {
        "name": f"{place}/{entry['path']}", "size": int(entry["size"]), "type": "file",
        "ETag": entry["e_tag"], "LastModified": entry["last_modified"],
    }  # fmt: skip
