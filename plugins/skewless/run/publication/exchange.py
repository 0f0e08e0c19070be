"""Putting one folder in the place of another at once, on the disk before anybody relies on it."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from skewless.errors import SpecError

#: How the name of an old version ends between two renames.
ASIDE = ".aside"
#: How the name of a folder begins in which the file system is tried.
PROBE = "probe-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_SOMETHING_THERE = frozenset({errno.EEXIST, errno.ENOTEMPTY})


def exchange(draft: Path, target: Path, *, allow_gap: bool) -> None:
    """Put ``draft`` in the place of ``target``; what was there, if anything, ends up at ``draft``.

    Both are on one file system. Where it cannot exchange folders, two renames will do with ``allow_gap``: for an
    instant there is no target.

    Raises:
        FileNotFoundError: the draft is gone: somebody has moved it away. The target is as it was.
        SpecError: folders cannot be exchanged here.
    """
    while True:
        try:
            if not target.exists():
                draft.rename(target)
            elif not _renamed_across(draft, target):
                _rename_twice(draft, target, allow_gap=allow_gap)
        except FileNotFoundError:
            if draft.exists() and target.parent.exists():
                continue  # the target went, as another publisher has two renames for it
            raise
        except OSError as err:
            # Another run that publishes the day for the first time too has come in between.
            if err.errno not in _SOMETHING_THERE:
                raise
            continue
        return


def require_exchange(folder: Path, *, allow_gap: bool) -> None:
    """Try in a folder of ours whether its file system can exchange folders; a ``SpecError`` if it must and cannot."""
    if allow_gap:
        return
    place = folder / f"{PROBE}{secrets.token_hex(8)}"
    names = [place / "a", place / "b"]
    for name in names:
        name.mkdir(parents=True)
    try:
        if not _renamed_across(*names):
            raise _refusal(folder)
    finally:
        for name in (*names, place):
            name.rmdir()


def put_back(aside: Path, target: Path) -> None:
    """Undo the first of two renames; if the target is there again, the old version stays where it is."""
    try:
        aside.rename(target)
    except FileNotFoundError:
        return  # somebody has put it back already
    except OSError as err:
        if err.errno not in _SOMETHING_THERE:
            raise
    sync_folder(target.parent)


def sync_file(path: Path) -> None:
    """See to it that a file's bytes are on the disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """See to it that the names in a folder are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(path: Path) -> None:
    """Make a folder and those it lies in, on the disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename_twice(draft: Path, target: Path, *, allow_gap: bool) -> None:
    if not allow_gap:
        raise _refusal(target)
    draft.stat()  # one whose draft was moved away has no say, and does not touch the day of a later run
    aside = draft.with_name(draft.name + ASIDE)
    target.rename(aside)
    try:
        draft.rename(target)
    except OSError:
        put_back(aside, target)
        raise
    with suppress(FileNotFoundError):  # a later run has moved it to the kept versions
        aside.rename(draft)


def _refusal(folder: Path) -> SpecError:
    return SpecError(
        f"field output.path, {folder}", "a file system that can exchange two folders at once (renameat2)",
        "one that cannot", "choose another one, or set output.allow_gap: true, and a day that is published again is "
        "absent for an instant",
    )  # fmt: skip


def _renamed_across(draft: Path, target: Path) -> bool:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(target))
