"""The objects of a store as files of fsspec: what is written is there whole or not at all, and nothing is cached."""

from __future__ import annotations

import datetime as dt
import errno
import io
import posixpath
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import obstore
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from skewless.errors import RunDirectoryError
from skewless.run.objects.client import (
    TRIES,
    TWO_FIRST_WRITERS,
    answered,
    bucket,
    create,
    delete,
    refuses_second_writer,
)

#: A file that is not larger is fetched in one request, and is in memory until it is uploaded; of a larger one at least
#: so much is fetched at a time.
_BLOCK = 1 << 20
#: The size of a part of an object that is uploaded in parts, and how many are on their way at a time.
_PART, _PARTS_AT_A_TIME = 16 << 20, 4
#: The clients of buckets that were found to honour the condition that there is no object.
_trusted: list[Any] = []


class ObjectFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files of all buckets of a scheme, like ``s3a``. A path in it is ``BUCKET/KEY``.

    All methods are fsspec's own, with its arguments. They raise ``OSError`` and its kinds, as a local file system.
    """

    def __init__(self, scheme: str) -> None:
        super().__init__()
        self.protocol = scheme

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(path).rpartition("://")[2].rstrip("/")

    def create(self, path: str, content: bytes) -> bool:
        """See ``client.create``; a ``RunDirectoryError`` if the store lets every writer win."""
        store, key = self._split(path)
        if not any(store is one for one in _trusted):
            if not refuses_second_writer(store, posixpath.dirname(key)):
                raise RunDirectoryError.saying(
                    f"{self.protocol}://{path.partition('/')[0]}", TWO_FIRST_WRITERS,
                    "choose a store that honours it, or a folder of a shared file system",
                )  # fmt: skip
            _trusted.append(store)
        return create(store, key, content)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Size, tag and time of an object; of a folder, that it is one."""
        path = self._strip_protocol(path)
        store, key = self._split(path)
        if key:
            with suppress(FileNotFoundError), answered(path):
                return _facts(path, obstore.head(store, key))
        with answered(path):
            found = obstore.list_with_delimiter(store, key or None)
        if found["objects"] or found["common_prefixes"] or not key:
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is such an object or folder; fsspec would say no where the store does not answer."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # as fsspec has it
        """What is directly in a folder."""
        path = self._strip_protocol(path)
        store, key = self._split(path)
        with answered(path):
            found = obstore.list_with_delimiter(store, key or None)
        place = path.partition("/")[0]
        listed = [
            *(
                {"name": f"{place}/{folder}".rstrip("/"), "size": 0, "type": "directory"}
                for folder in found["common_prefixes"]
            ),
            *(_facts(f"{place}/{one['path']}", one) for one in found["objects"]),
        ]
        if not listed:
            listed = [self.info(path)]
        return listed if detail else [one["name"] for one in listed]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:  # fmt: skip
        """All objects below a folder, by one listing."""
        path = self._strip_protocol(path)
        store, key = self._split(path)
        place = path.partition("/")[0]
        with answered(path):
            listed = [one for page in obstore.list(store, key or None) for one in page]
        found = {f"{place}/{one['path']}": _facts(f"{place}/{one['path']}", one) for one in listed}
        if not found and key:
            with suppress(FileNotFoundError), answered(path):
                found[path] = _facts(path, obstore.head(store, key))
        if withdirs:
            for name in list(found):
                while len(name := posixpath.dirname(name)) > len(path):
                    found[name] = {"name": name, "size": 0, "type": "directory"}
        if maxdepth is not None:
            found = {name: one for name, one in found.items() if name[len(path) :].count("/") <= maxdepth}
        return dict(sorted(found.items())) if detail else sorted(found)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes of an object, or some of them."""
        path = self._strip_protocol(path)
        store, key = self._split(path)
        with answered(path):
            if start is None and end is None:
                return bytes(obstore.get(store, key).bytes())
            size = int(self.info(path)["size"])
            begin, stop = _bounded(start, 0, size), _bounded(end, size, size)
            return bytes(obstore.get_range(store, key, start=begin, end=stop)) if begin < stop else b""

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Copy an object into a local file."""
        path = self._strip_protocol(rpath)
        store, key = self._split(path)
        with answered(path), Path(lpath).open("wb") as out:
            out.writelines(obstore.get(store, key).stream())

    def modified(self, path: str) -> dt.datetime:
        """When an object was written."""
        moment: dt.datetime = self.info(path)["LastModified"]
        return moment

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: a folder is there as soon as something is in it."""

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Nothing, as ``makedirs``."""

    def rm_file(self, path: str) -> None:
        """Remove an object; one that is gone is no error."""
        store, key = self._split(self._strip_protocol(path))
        delete(store, [key])

    def rm(self, path: str | Sequence[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove objects, or with ``recursive`` all below a folder; a ``FileNotFoundError`` if there is nothing."""
        del maxdepth
        for one in [path] if isinstance(path, str) else path:
            found = self.find(one) if recursive else [self._strip_protocol(one)]
            if not found:
                raise FileNotFoundError(one)
            store, _ = self._split(found[0])
            delete(store, [self._split(file)[1] for file in found])

    def put_whole(self, path: str, content: IO[bytes]) -> None:
        """Upload a file from its beginning. A large one goes in parts, which are removed if one of them fails."""
        store, key = self._split(path)
        for _ in range(TRIES):
            content.seek(0)
            # S3 says 409 if another request for the key is on its way; the client takes it for an object that exists.
            with suppress(FileExistsError), answered(path):
                obstore.put(store, key, content, chunk_size=_PART, max_concurrency=_PARTS_AT_A_TIME)
                return
        raise OSError(errno.EBUSY, "the store says again and again that another request is on its way", path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode == "rb":
            size = int(self.info(path)["size"])
            kind = "all" if size <= _BLOCK else "readahead"
            return _Read(self, path, "rb", block_size=_BLOCK, cache_type=kind, size=size)
        if mode != "wb":
            raise ValueError(f"an object is opened for reading or for writing, and not as {mode!r}")
        return _Upload(self, path)

    def _split(self, path: str) -> tuple[Any, str]:
        place, _, key = path.partition("/")
        return bucket(str(self.protocol), place), key


class _Read(AbstractBufferedFile):  # type: ignore[misc]
    """An object that is read: the ranges that are asked for are fetched."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        store, key = self.fs._split(self.path)  # noqa: SLF001  # of the same module
        with answered(self.path):
            return bytes(obstore.get_range(store, key, start=start, end=end)) if start < end else b""


class _Upload(io.RawIOBase):
    """An object that is written. It is uploaded once it is complete: if its block ends in an error, there is none."""

    def __init__(self, fs: ObjectFiles, path: str) -> None:
        super().__init__()
        self._fs, self._path, self._given_up = fs, path, False
        self._file = tempfile.SpooledTemporaryFile(max_size=_BLOCK)  # noqa: SIM115  # closed with the object

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if not self._given_up:
                self._fs.put_whole(self._path, self._file)
        finally:
            self._file.close()
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._given_up = self._given_up or kind is not None
        self.close()

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        self._given_up = True  # nobody has closed it
        self.close()


def _facts(path: str, said: Any) -> dict[str, Any]:
    return {
        "name": path,
        "size": int(said["size"]),
        "type": "file",
        "ETag": said["e_tag"],
        "LastModified": said["last_modified"],
    }


def _bounded(place: int | None, default: int, size: int) -> int:
    if place is None:
        return default
    return max(0, size + place) if place < 0 else min(place, size)
