"""Paths as users wrote them. fsspec opens them, but its own spelling of them is neither recorded nor shown."""

from __future__ import annotations

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skewless.errors import RunDirectoryError


def as_written(fs: fsspec.AbstractFileSystem, location: str, inner: str) -> str:
    """The path of a file, spelled like the location by which its file system was opened.

    fsspec reduces a location to a path in its file system. The URI that it makes from this path may have another scheme
    (``s3://`` for ``s3a://``) or lack a part of the authority (the account of ``abfss://container@account/``). Spark,
    which reads through Hadoop's file systems, would look elsewhere.

    Args:
        fs: what fsspec made of the location.
        location: as a spec, a setting or a command has it.
        inner: the path as the file system lists it, on the same bucket, container or host.

    Returns:
        A local path without a scheme; any other one with the scheme and the authority of the location.

    Raises:
        RunDirectoryError: the path is of another bucket, container or host.
    """
    if isinstance(fs, LocalFileSystem):
        return inner
    scheme, _, rest = location.partition("://")
    place = f"{scheme}://{rest.partition('/')[0]}"
    base = str(fs._strip_protocol(place)).rstrip("/")  # noqa: SLF001  # fsspec's own name for it
    if not f"{inner}/".startswith(f"{base}/"):
        raise RunDirectoryError(place, "a path in it", repr(inner)[:200], "name the place by its own scheme and host")
    below = inner.removeprefix(base).lstrip("/")
    return f"{place}/{below}" if below else place
