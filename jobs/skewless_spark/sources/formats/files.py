"""The files of an input: finding them and opening them."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from typing import IO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skewless.errors import InputError
from skewless.run.written_path import as_written
from skewless_spark.sources.formats.local_files import files_below, refuse_linked_on_the_way

#: Endings of compressed texts, which are read from their beginning and never cut.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def open_input(path: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of an input and the path in it.

    Raises:
        InputError: nobody here knows such a file system.
    """
    try:
        fs, root = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as err:
        raise InputError(
            "input.path", "a path that fsspec can open", f"{path} ({err})", "install what it asks for"
        ) from None
    return fs, root.rstrip("/")


def find(path: str) -> list[str]:
    """The data files at a path (a file, a folder with folders in it, or a glob), sorted.

    Returns:
        Their paths in the file system.

    Raises:
        InputError: there is nothing, a name that Hadoop cannot read, or what is no file that can be read to its end.
    """
    fs, root = open_input(path)
    files = _found(fs, root, path)
    odd = next((file for file in files if ":" in posixpath.basename(file)), None)
    if odd is not None:
        # Hadoop reads "b:c.parquet" as a URI of the scheme "b".
        named = f"input file {as_written(fs, path, odd)}"
        raise InputError(named, "a file name without ':'", "one that Hadoop cannot read", "rename it")
    return files


def _found(fs: fsspec.AbstractFileSystem, root: str, path: str) -> list[str]:
    local = isinstance(fs, LocalFileSystem)
    if not (os.path.lexists(root) if local else fs.exists(root)):
        # Only now a glob: a folder may be called "[1]".
        if local and _is_glob(root):
            refuse_linked_on_the_way(root)
        matched = [str(one) for one in fs.glob(root)] if _is_glob(root) else []
        matched = [one for one in matched if not _dotted(root, one)]
        files = [file for one in matched for file in _inside(fs, one)]
        if not files:
            raise InputError("input.path", "an existing file, folder or glob", f"no such path {path}", "check the path")
        return sorted(set(files))
    return _inside(fs, root)


def _inside(fs: fsspec.AbstractFileSystem, root: str) -> list[str]:
    if isinstance(fs, LocalFileSystem):
        return sorted(files_below(root, _hidden))
    if fs.isfile(root):
        return [root]
    inner = [str(file) for file in fs.find(root)]
    return sorted(file for file in inner if not _hidden(posixpath.relpath(file, root)))


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _hidden(name: str) -> bool:
    """Spark's own rule: names that begin with ``_`` or ``.`` are not data."""
    return any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))


def _dotted(pattern: str, match: str) -> bool:
    """Whether a wildcard has come to a name that begins with a dot: as in a shell, a pattern has to say the dot.

    fsspec's wildcards match it without. Beside a published folder are its old versions, in a folder of such a name.
    """
    said = [part for part in pattern.split("/") if part.startswith(".")]
    dotted = [part for part in match.split("/") if part.startswith(".")]
    return any(not any(fnmatch.fnmatchcase(part, one) for one in said) for part in dotted)


def open_file(path: str) -> IO[bytes]:
    """A file for reading in order: of a remote file system ahead of the reader, a compressed one as its text."""
    fs, file = fsspec.core.url_to_fs(path)
    compression = "infer" if path.endswith(COMPRESSED) else None
    opened: IO[bytes] = fs.open(file, "rb", compression=compression)
    return opened
