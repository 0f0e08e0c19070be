"""The files of an input: finding them, opening them, and noticing that they have changed."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import fsspec

from skewless.errors import InputError
from skewless.job import Job
from skewless.written_path import as_written

#: Threads that look at files: waiting for an object store is most of the work.
LOOKERS = 16

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
        InputError: there is nothing, or a name that Hadoop cannot read.
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
    if not fs.exists(root):
        # Only now a glob: a folder may be called "[1]".
        matched = [str(one) for one in fs.glob(root)] if _is_glob(root) else []
        files = [file for one in matched for file in _inside(fs, one)]
        if not files:
            raise InputError("input.path", "an existing file, folder or glob", f"no such path {path}", "check the path")
        return sorted(set(files))
    return _inside(fs, root)


def _inside(fs: fsspec.AbstractFileSystem, root: str) -> list[str]:
    if fs.isfile(root):
        return [root]
    inner = [str(file) for file in fs.find(root)]
    return sorted(file for file in inner if not _hidden(posixpath.relpath(file, root)))


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _hidden(name: str) -> bool:
    """Spark's own rule: names that begin with ``_`` or ``.`` are not data."""
    return any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))


def open_file(path: str) -> IO[bytes]:
    """A file for reading in order: of a remote file system ahead of the reader, a compressed one as its text."""
    fs, file = fsspec.core.url_to_fs(path)
    compression = "infer" if path.endswith(COMPRESSED) else None
    opened: IO[bytes] = fs.open(file, "rb", compression=compression)
    return opened


def size_and_version(fs: fsspec.AbstractFileSystem, file: str) -> tuple[int, str]:
    """The length of a file, and what tells its content from a later one."""
    info = fs.info(file)
    stamp = next((info[name] for name in ("ETag", "etag", "mtime", "LastModified", "updated") if name in info), "")
    return int(info["size"]), str(stamp)


def require_unchanged(job: Job, ordinals: Sequence[int]) -> None:
    """Hold files to what they were when the run was prepared, down to the time of their last change.

    A run reads its input bit by bit; files rewritten in between would give a result of two versions.

    Raises:
        InputError: names the first file that is gone or has changed.
    """
    known = {job.units[ordinal].path: job.units[ordinal] for ordinal in ordinals}

    def change(path: str) -> str:
        fs, file = fsspec.core.url_to_fs(path)
        try:
            now = size_and_version(fs, file)
        except FileNotFoundError:
            return f"input file {path} is gone"
        return "" if now == (known[path].size_bytes, known[path].version) else f"input file {path} was rewritten"

    with ThreadPoolExecutor(max_workers=LOOKERS) as pool:
        for found in pool.map(change, known):
            if found:
                raise InputError(
                    job.input_path, "the files that the run was prepared with", found,
                    "nothing was committed; start a new run over the new input",
                )  # fmt: skip
