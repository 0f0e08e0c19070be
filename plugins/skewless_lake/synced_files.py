"""Files of tables on a local disk: each is on the disk before its writer goes on, as after a power loss it must be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class _SyncedStream:
    """An output stream of Arrow that has its file and its folder on the disk once it is closed."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path = stream, path

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: bytes) -> int:
        return int(self._stream.write(data))

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return int(self._stream.tell())

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        _sync(self._path)
        _sync(str(Path(self._path).parent))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class _SyncedFile(PyArrowFile):
    """A file of a local disk."""

    def create(self, overwrite: bool = False) -> OutputStream:
        """Open the file for writing."""
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(super().create(overwrite), self._path)


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's own files, with local ones synced."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write, by its URI or path."""
        plain = super().new_output(location)
        if not isinstance(plain._filesystem, LocalFileSystem):  # noqa: SLF001  # pyiceberg's own name for it
            return plain
        path = plain._path  # noqa: SLF001
        return _SyncedFile(location, path, plain._filesystem, plain._buffer_size)  # noqa: SLF001
