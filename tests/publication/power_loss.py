"""What a power loss would leave: a file system that drops whatever was not fsynced.

While it watches, it keeps what each fsync made durable: of a file its bytes, of a folder its entries. An image is the
tree as it would be found after the power came back at that moment. What was never fsynced is a file of 0 bytes; and a
new entry of a folder that was not fsynced since may be there or not, as the file system had got round to it.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: A tree: the bytes of each file by its path below the root.
Image = dict[str, bytes]
#: Calls that change a folder, and the one that makes things durable; a crash may come before and after each.
_CALLS = ("fsync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "unlink")


class Disk:
    """A folder of which it is known what is durable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._bytes: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._kept: list[int] = []
        for folder, _, names in os.walk(root):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                descriptor = os.open(path, os.O_RDONLY)
                self.synced(descriptor)
                os.close(descriptor)

    def synced(self, descriptor: int) -> None:
        # Held open, so that nothing new gets the inode of something that was durable and is gone.
        self._kept.append(os.dup(descriptor))
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(descriptor) as entries:
                self._entries[found.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._bytes[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def close(self) -> None:
        for descriptor in self._kept:
            os.close(descriptor)

    def image(self, lucky: Callable[[str], bool]) -> Image:
        """The tree after a power loss at this moment.

        Args:
            lucky: of which folders, by their paths below the root, entries were written that were not fsynced; a
                folder in an unlucky one is unlucky too. Contents that were not fsynced are never written.
        """
        return dict(self._below(self.root, "", lucky))

    def _below(self, folder: Path, at: str, lucky: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        if not lucky(at.rstrip("/")):
            yield from self._durable(folder.stat().st_ino, at)
            return
        for path in folder.iterdir():
            if path.is_dir():
                yield from self._below(path, f"{at}{path.name}/", lucky)
            else:
                yield f"{at}{path.name}", self._bytes.get(path.stat().st_ino, b"")

    def _durable(self, folder: int, at: str) -> Iterator[tuple[str, bytes]]:
        # A folder that was never fsynced has no entries, and a file no bytes.
        for name, inode in self._entries.get(folder, {}).items():
            if inode in self._entries:
                yield from self._durable(inode, f"{at}{name}/")
            else:
                yield f"{at}{name}", self._bytes.get(inode, b"")


@contextmanager
def watched(root: Path, look: Callable[[Disk], None]) -> Iterator[Disk]:
    """Watch what this process makes durable, and look at the disk before and after each call that matters."""
    disk = Disk(root)
    before = {name: getattr(os, name) for name in _CALLS}

    def watching(name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            look(disk)
            done = before[name](*given, **named)
            if name == "fsync":
                disk.synced(given[0] if isinstance(given[0], int) else given[0].fileno())
            look(disk)
            return done

        return call

    for name in _CALLS:
        setattr(os, name, watching(name))
    try:
        yield disk
    finally:
        for name, call in before.items():
            setattr(os, name, call)
        disk.close()
