"""Files of tables on a local disk: each is on the disk before its writer goes on, as after a power loss it must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from skewless.run.folder import make_folder, sync_file, sync_folder


class _SyncedStream:
    """An output stream of Arrow that has its file and its folder on the disk once it is closed."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path = stream, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> int:
        return int(self._stream.write(data))

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        sync_file(Path(self._path))
        sync_folder(Path(self._path).parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        make_folder(Path(self._path).parent)
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
