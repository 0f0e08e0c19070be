"""An ext4 in a file of its own, mounted over a loop device, whose power can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SIZE = 64 << 20


class Ext4:
    """A mounted ext4."""

    def __init__(self, folder: Path) -> None:
        self._disk, self._saved, self.place = folder / "disk", folder / "saved", folder / "mounted"
        self.place.mkdir()
        with self._disk.open("xb") as out:
            out.truncate(_SIZE)
        _run("mkfs.ext4", "-q", self._disk)
        self.mount()

    def mount(self) -> None:
        """Mount it; what its journal holds is replayed."""
        _run("mount", "-o", "loop", self._disk, self.place)

    def unmount(self) -> None:
        """Unmount it, which writes all that was not written."""
        _run("umount", self.place)

    def cut_power(self) -> None:
        """Go on from what has reached the disk by now; all else is lost."""
        cut = self._disk.with_name("cut")
        _run("cp", "--sparse=always", self._disk, cut)
        self.unmount()
        cut.replace(self._disk)
        self.mount()

    def save(self) -> None:
        """Keep the disk as it is, all of it written."""
        self.unmount()
        _run("cp", "--sparse=always", self._disk, self._saved)
        self.mount()

    def restore(self) -> None:
        """Go back to what was saved."""
        self.unmount()
        _run("cp", "--sparse=always", self._saved, self._disk)
        self.mount()


@contextmanager
def ext4(folder: Path) -> Iterator[Ext4]:
    """An empty ext4; skips the test where nobody may mount one."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("an ext4 of one's own takes root and mkfs.ext4")
    try:
        disk = Ext4(folder)
    except subprocess.CalledProcessError as err:
        pytest.skip(f"no loop device here: {err.stderr.decode()[:200]}")
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
