"""Files of tables on a local disk: each is on the disk before its writer goes on, as after a power loss it must be."""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from skewless.run.folder import make_folder, sync_folder


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync_folder(Path(str(self.name)).parent)


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        make_folder(Path(self._path).parent)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's own files, with local ones synced."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write, by its URI or path."""
        plain = super().new_output(location)
        if not isinstance(plain._filesystem, LocalFileSystem):  # noqa: SLF001  # pyiceberg's own name for it
            return plain
        return _SyncedFile(location, plain._path, plain._filesystem)  # noqa: SLF001
