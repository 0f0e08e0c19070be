"""Which file system a path is on, and how it is spelled: object stores by our client, everything else by fsspec."""

from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skewless.errors import RunDirectoryError
from skewless.run import OBJECT_SCHEMES


def open_location(location: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it.

    A package that is not installed is an ``ImportError``, an unknown scheme, or none of a bucket, a ``ValueError``.
    """
    if not is_object(location):
        fs, path = fsspec.core.url_to_fs(location)
        return fs, str(path)
    try:
        from skewless.run.object_client import ObjectFiles  # noqa: PLC0415  # its client is an extra
    except ImportError:
        raise ImportError("no package obstore, which skewless[object-stores] installs") from None
    scheme, _, path = location.partition("://")
    if not path.partition("/")[0]:
        raise ValueError(f"{scheme}:// is followed by no bucket")
    return ObjectFiles(scheme), path.rstrip("/")


def for_short_reads(fs: Any, path: str) -> IO[bytes]:
    """A file, opened for a few short reads; a local one without fsspec's own layers, which take twice as long."""
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


def inner_path(fs: fsspec.AbstractFileSystem, location: str) -> str:
    """A location as a path in its file system."""
    return str(fs._strip_protocol(location))  # noqa: SLF001  # fsspec's own name for it


def as_written(fs: fsspec.AbstractFileSystem, location: str, inner: str) -> str:
    """The path of a file, spelled like the location by which its file system was opened; a local one without a scheme.

    fsspec reduces a location to a path in its file system. The URI that it makes from this path may have another scheme
    (``s3://`` for ``s3a://``) or lack a part of the authority (the account of ``abfss://container@account/``). Spark,
    which reads through Hadoop's file systems, would look elsewhere.

    Raises:
        RunDirectoryError: the path is of another bucket, container or host.
    """
    if isinstance(fs, LocalFileSystem):
        return inner
    scheme, _, rest = location.partition("://")
    place = f"{scheme}://{rest.partition('/')[0]}"
    base = inner_path(fs, place).rstrip("/")
    if not f"{inner}/".startswith(f"{base}/"):
        raise RunDirectoryError(place, "a path in it", repr(inner)[:200], "name the place by its own scheme and host")
    below = inner.removeprefix(base).lstrip("/")
    return f"{place}/{below}" if below else place
