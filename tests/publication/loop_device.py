"""A file system of its own in one file, and what it holds after the power went: a copy of that file, mounted anew."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SIZE = 64 << 20


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


@contextmanager
def ext4(disk: Path) -> Iterator[Path]:
    """A new ext4 in the file ``disk``; where it is mounted. Skips the test where nobody may mount one."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("only root can mount an image, and only with mkfs.ext4")
    with disk.open("xb") as out:
        out.truncate(_SIZE)
    _run("mkfs.ext4", "-q", disk)
    with _mounted(disk) as place:
        yield place


@contextmanager
def power_lost(disk: Path) -> Iterator[Path]:
    """A mounted disk as it would be if the power had gone now: what has reached it, and its journal replayed."""
    copy = disk.with_name(f"{disk.name}.copy")
    _run("cp", "--sparse=always", disk, copy)
    try:
        with _mounted(copy) as place:
            yield place
    finally:
        copy.unlink()


@contextmanager
def _mounted(disk: Path) -> Iterator[Path]:
    place = disk.with_name(f"{disk.name}.mounted")
    place.mkdir()
    try:
        _run("mount", "-o", "loop", disk, place)
    except subprocess.CalledProcessError as err:
        place.rmdir()
        pytest.skip(f"no loop device here: {err.stderr.decode()[:200]}")
    try:
        yield place
    finally:
        _run("umount", place)
        place.rmdir()
