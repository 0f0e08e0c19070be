"""Which file system a path is on: object stores by the client of this project, everything else by fsspec."""

from __future__ import annotations

from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

#: What the client reaches. ``s3a`` is Hadoop's name for S3, ``abfss`` that for Azure.
OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})


def open_location(location: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it.

    Raises:
        ImportError: a package is not installed; the error names it.
        ValueError: the scheme is unknown, or no bucket is named.
    """
    if not is_object(location):
        fs, path = fsspec.core.url_to_fs(location)
        return fs, str(path)
    try:
        from skewless.run.objects.files import ObjectFiles  # noqa: PLC0415  # its client is an extra
    except ImportError:
        raise ImportError("no package obstore, which skewless[object-stores] installs") from None
    scheme, _, path = location.partition("://")
    if not path.partition("/")[0]:
        raise ValueError(f"{scheme}:// is followed by no bucket")
    return ObjectFiles(scheme), path.rstrip("/")


def for_short_reads(fs: Any, path: str) -> IO[bytes]:
    """A file, opened for a few short reads; a local one without fsspec's own layers, which take twice as long.

    Args:
        fs: its file system.
        path: the path in it.

    Raises:
        OSError: it cannot be opened.
    """
    opened: IO[bytes] = open(path, "rb", buffering=0) if isinstance(fs, LocalFileSystem) else fs.open(path, "rb")  # noqa: PTH123, SIM115
    return opened


def is_object(location: str) -> bool:
    """Whether a path is on an object store."""
    scheme, mark, _ = location.partition("://")
    return bool(mark) and scheme in OBJECT_SCHEMES


def plain_path(location: str) -> str:
    """A location as paths are spelled everywhere else: without the scheme of local files, of which there are two forms.

    >>> plain_path("file:///lake/clicks"), plain_path("file:/lake/clicks"), plain_path("s3://lake/clicks")
    ('/lake/clicks', '/lake/clicks', 's3://lake/clicks')
    """
    for scheme in ("file://", "file:"):
        if location.startswith(scheme):
            return "/" + location.removeprefix(scheme).lstrip("/")
    return location
