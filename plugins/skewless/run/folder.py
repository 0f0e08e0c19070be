"""Where files are: object stores by our client, everything else by fsspec; and the folders that runs are made in.

The folder of a run is made for its owner alone, or for a group that owns it together: it holds keys, and who can write
there decides what is published. Where executors or pages run as other users, the folder belongs to a group. All files
below it then belong to the group, too, and a default ACL keeps them open to the group, whatever the umask.
"""

import errno
import grp
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from skewless.errors import RunDirectoryError
from skewless.run import OBJECT_SCHEMES

#: The variable of the environment that names the group, for the faces.
RUN_GROUP = "SKEWLESS_RUN_GROUP"
#: The variable of the environment that names the folder of all runs, a path or a URL; ``runs`` below the data root
#: without it.
RUNS_FOLDER = "SKEWLESS_RUNS"

#: How the name of a folder ends before it belongs to its group.
MAKING = ".making"

#: ``struct posix_acl_xattr_header`` and its entries, as Linux has them: owner and group rwx, others nothing.
_ACL_VERSION, _NO_ID = 2, 0xFFFFFFFF
_USER, _GROUP, _OTHER = 0x01, 0x04, 0x20
_OPEN_TO_GROUP = struct.pack("<I", _ACL_VERSION) + b"".join(
    struct.pack("<HHI", tag, rights, _NO_ID) for tag, rights in ((_USER, 7), (_GROUP, 7), (_OTHER, 0))
)


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


def inner_path(fs: AbstractFileSystem, location: str) -> str:
    """A location as a path in its file system."""
    return str(fs._strip_protocol(location))  # noqa: SLF001  # fsspec's own name for it


def as_written(fs: AbstractFileSystem, location: str, inner: str) -> str:
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


def runs_below(root: str) -> str:
    """Where all run directories are, as the environment or the data root says: a folder for each job and run in it."""
    return os.environ.get(RUNS_FOLDER, "").rstrip("/") or f"{root.rstrip('/')}/runs"


def absolute_root(root: str) -> str:
    """A data root as documents have it: a URL as it was written, a path from the top.

    >>> absolute_root("s3a://lake/data/"), absolute_root("/data/")
    ('s3a://lake/data', '/data')
    """
    if "://" in root:
        return root.rstrip("/")
    return str(Path(root).absolute())


def sync_file(path: Path, flags: int = os.O_RDONLY) -> None:
    """See to it that a file's bytes are on the disk."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """See to it that the names in a folder are on the disk."""
    sync_file(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(path: Path) -> None:
    """Make a folder and those it lies in, on the disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def folders_in(fs: Any, root: str) -> list[str]:
    """The folders in a folder; none where it cannot be listed."""
    try:
        return sorted(
            str(entry["name"]).rstrip("/") for entry in fs.ls(root, detail=True) if entry["type"] == "directory"
        )
    except OSError:
        return []


def folders_of_jobs(runs_folder: str) -> tuple[AbstractFileSystem, list[str]]:
    """The file system of a folder of runs, and in it the folder of each job.

    Raises:
        RunDirectoryError: the folder cannot be opened.
    """
    try:
        fs, root = open_location(runs_folder)
    except (ImportError, ValueError) as err:
        raise RunDirectoryError(f"runs folder {runs_folder}", "a path that fsspec can open", str(err)) from None
    return fs, folders_in(fs, str(root).rstrip("/"))


def make_run_folder(root: str, group: str = "") -> None:
    """Make the folder of a run for its owner and a group. A folder that exists keeps the rights that it has.

    Folders above it are made as the umask says. If the group cannot be set, the error is a ``RunDirectoryError``.
    """
    if os.path.isdir(root):  # noqa: PTH112  # paths are text here, as fsspec has them
        return
    Path(root).parent.mkdir(parents=True, exist_ok=True)
    if not group:
        with suppress(FileExistsError):
            Path(root).mkdir(mode=0o700)
        return
    # It gets its name after it belongs to the group: files that others make in it before would not belong to it.
    draft = Path(f"{root}.{secrets.token_hex(8)}{MAKING}")
    draft.mkdir(mode=0o700)
    try:
        _share(draft, group)
        draft.rename(root)
    except OSError as err:
        if err.errno not in {errno.EEXIST, errno.ENOTEMPTY}:  # else somebody was faster, and has begun
            raise RunDirectoryError(
                f"run directory {root}", f"a folder that can be given to the group {group!r}",
                err.strerror or str(err), f"be a member of it, or set {RUN_GROUP} to another one",
            ) from None  # fmt: skip
    finally:
        with suppress(FileNotFoundError):
            draft.rmdir()


def _share(folder: Path, group: str) -> None:
    try:
        ident = grp.getgrnam(group).gr_gid
    except KeyError:
        raise OSError(errno.ENOENT, "no such group") from None
    os.chown(folder, -1, ident)
    folder.chmod(0o2770)
    try:
        os.setxattr(folder, "system.posix_acl_default", _OPEN_TO_GROUP)
    except OSError as err:
        if err.errno != errno.EOPNOTSUPP:
            raise
    probe = folder / "probe"
    probe.mkdir()
    try:
        seen = probe.stat()
    finally:
        probe.rmdir()
    if seen.st_gid != ident or seen.st_mode & 0o070 != 0o070:  # no ACLs here, and the umask takes the rights away
        raise OSError(errno.EOPNOTSUPP, "a file system without POSIX ACLs, under a umask that is not 007")
