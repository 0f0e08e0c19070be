"""The files of an input on a local or shared file system. What is not a plain file is refused, and not passed over."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from skewless.errors import InputError

_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}  # fmt: skip


def files_below(root: str, hidden: Callable[[str], bool]) -> Iterator[str]:
    """The file at a path, or the files in a folder and its subfolders. The path itself may be a link.

    Args:
        root: the path.
        hidden: whether a file or a folder is not data, by its name.

    Raises:
        InputError: something there is not a plain file, or a folder cannot be listed.
    """
    if not os.path.isdir(root):  # noqa: PTH112  # paths are text here, as fsspec has them
        yield _regular(root)
        return
    for folder, inner, names in os.walk(root, onerror=_refuse_unlisted):
        # No folder above is hidden, or it would not have been entered.
        inner[:] = [name for name in inner if not hidden(name)]
        for name in inner:
            _refuse_linked(f"{folder}/{name}")
        for name in names:
            if not hidden(name):
                yield _regular(f"{folder}/{name}")


def refuse_linked_on_the_way(pattern: str) -> None:
    """Refuse folders that fsspec would silently leave out of a glob.

    Raises:
        InputError: a folder that the glob matches is a link, or cannot be listed.
    """
    parts = pattern.split("/")
    first = next(number for number, part in enumerate(parts) if any(sign in part for sign in "*?["))
    base, wild = "/".join(parts[:first]) or "/", parts[first:-1]
    for folder, inner, _ in os.walk(base, onerror=_refuse_closed):
        depth = 0 if folder == base else len(os.path.relpath(folder, base).split("/"))
        inner[:] = [
            name for name in inner
            if ("**" in wild or (depth < len(wild) and fnmatch.fnmatchcase(name, wild[depth])))
            and (name[0] != "." or any(part.startswith(".") for part in wild))
        ]  # fmt: skip
        for name in inner:
            _refuse_linked(f"{folder.rstrip('/')}/{name}")


def _regular(path: str) -> str:
    """The path of a plain file, or of a link to one.

    Raises:
        InputError: it is something else; reading a FIFO, for example, would wait forever.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError as err:
        if not os.path.islink(path):  # noqa: PTH114
            raise _unreadable(path, err) from None
        led = "round in a circle" if err.errno == errno.ELOOP else "to nothing that can be read"
        raise _refusal(path, f"a link to {Path(path).readlink()}, which leads {led}") from None
    if stat.S_ISREG(mode):
        return path
    raise _refusal(path, _KINDS[stat.S_IFMT(mode)])


def _refusal(path: str, came: str) -> InputError:
    hint = "remove it, or give it a name that begins with an underscore"
    return InputError(f"input file {path}", "a plain file", came, hint)


def _refuse_linked(path: str) -> None:
    if os.path.islink(path):  # noqa: PTH114
        raise InputError(
            f"input folder {path}", "a folder that lies where it is listed", f"a link to {Path(path).readlink()}",
            "move the folder there, or name it in input.path",
        )  # fmt: skip


def _refuse_unlisted(err: OSError) -> None:
    raise _unreadable(str(err.filename), err) from None


def _refuse_closed(err: OSError) -> None:
    if isinstance(err, PermissionError):
        _refuse_unlisted(err)


def _unreadable(path: str, err: OSError) -> InputError:
    return InputError(f"input {path}", "a path that can be read", err.strerror or str(err), "mend its permissions")
