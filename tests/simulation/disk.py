"""A simulated local file system below ``/sim/``, under the calls of ``os`` that pathlib, shutil and fsspec make.

Each call on names is atomic, and a write is torn in two. A loss of power undoes the newest calls on names, as far as no
fsync of a folder or of a file that they name came after them, in their order, as a journal does; and what was written
and not synced is left whole, in part, or empty.
"""

import builtins
import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from tests.simulation.world import Killed, World

ROOT = "/sim/"
_FIRST_HANDLE = 1 << 30


class Node:
    __slots__ = ("changed", "content", "ino", "modified", "names", "synced")

    def __init__(self, ino: int, now: float, *, folder: bool) -> None:
        self.ino, self.modified, self.changed = ino, now, now
        self.names: dict[str, Node] | None = {} if folder else None
        self.content = self.synced = b""


class Facts:
    st_nlink, st_uid, st_gid, st_dev = 1, 0, 0, 1

    def __init__(self, node: Node) -> None:
        self.st_mode = stat.S_IFDIR | 0o755 if node.names is not None else stat.S_IFREG | 0o644
        self.st_ino, self.st_size = node.ino, len(node.content)
        self.st_mtime = self.st_atime = node.modified
        self.st_ctime = node.changed


class Entry:
    """What ``scandir`` lists."""

    def __init__(self, disk: "Disk", folder: str, name: str) -> None:
        self.name, self.path, self._disk = name, f"{folder}/{name}", disk

    def __fspath__(self) -> str:
        return self.path

    def stat(self, **_: Any) -> Facts:
        return self._disk.stat(self.path)

    def is_dir(self, **_: Any) -> bool:
        try:
            return stat.S_ISDIR(self.stat().st_mode)
        except FileNotFoundError:
            return False

    def is_symlink(self) -> bool:
        return False


class Entries:
    """A listing, which is an iterator that is entered and left."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Writer(io.RawIOBase):
    """A file that is written: whoever looks sees what was written so far."""

    def __init__(self, disk: "Disk", node: Node, path: str) -> None:
        super().__init__()
        self._disk, self._node, self._path, self._by = disk, node, path, disk.world.running

    def fileno(self) -> int:
        return self._disk.handle(self._node)

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        if self._disk.world.running is not self._by:
            raise Killed
        whole = content.encode() if isinstance(content, str) else bytes(content)
        half = len(whole) // 2
        for piece in (whole[:half], whole[half:]):
            self._disk.world.call(f"write {self._path}")
            self._node.content += piece
        self._node.modified = self._node.changed = self._disk.world.now
        return len(content)

    def __enter__(self) -> Self:
        return self


class Disk:
    """The file system: methods are named as those of ``os`` that they stand for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._inos = 1
        self._root = Node(1, world.now, folder=True)
        self._handles: list[Node] = []
        #: How to undo each call on names, in order, with the nodes whose sync keeps it.
        self._journal: list[tuple[Callable[[], None], tuple[Node, ...]]] = []
        self._kept = 0
        self.files: list[Node] = []
        #: Whether it is on another machine: then an answer may be lost, and the call that is sent again fails.
        self.remote = False

    def stat(self, path: str, **_: Any) -> Facts:
        self.world.call(f"stat {path}")
        return Facts(self._find(path))

    def lstat(self, path: str) -> Facts:
        return self.stat(path)

    def listdir(self, path: str) -> list[str]:
        self.world.call(f"list {path}")
        names = list(self._folder(path))
        self.world.draws.shuffle(names)  # the order is nobody's promise
        return names

    def scandir(self, path: str) -> Entries:
        return Entries(Entry(self, path, name) for name in self.listdir(path))

    def mkdir(self, path: str, *_: int) -> None:
        self.world.call(f"mkdir {path}")
        folder, name = self._place(path)
        if name in (folder.names or {}):
            raise _error(errno.EEXIST, path)
        self._put(folder, name, self._new(folder=True))

    def rmdir(self, path: str) -> None:
        self.world.call(f"rmdir {path}")
        if self._folder(path):
            raise _error(errno.ENOTEMPTY, path)
        self._put(*self._place(path), None)

    def unlink(self, path: str) -> None:
        self.world.call(f"unlink {path}")
        if self._find(path).names is not None:
            raise _error(errno.EISDIR, path)
        self._put(*self._place(path), None)

    remove = unlink

    def link(self, source: str, other: Any) -> None:
        target = os.fspath(other)
        self.world.call(f"link {target}")
        node, (folder, name) = self._find(source), self._place(target)
        if name in (folder.names or {}):
            raise _error(errno.EEXIST, target)
        if node.names is not None:
            raise _error(errno.EPERM, source)
        self._put(folder, name, node)
        if self.remote and self.world.loses("sent again"):
            raise _error(errno.EEXIST, target)

    def rename(self, source: str, other: Any) -> None:
        target = os.fspath(other)
        self.world.call(f"rename {source} {target}")
        (old_folder, old), (folder, name), node = self._place(source), self._place(target), self._find(source)
        there = (folder.names or {}).get(name)
        if f"{target}/".startswith(f"{source}/") and node.names is not None and source != target:
            raise _error(errno.EINVAL, target)
        if source.startswith(f"{target}/"):
            raise _error(errno.ENOTEMPTY, target)
        if there is node:
            return
        if there is not None:
            if node.names is not None and there.names is None:
                raise _error(errno.ENOTDIR, target)
            if there.names is not None and (node.names is None or there.names):
                raise _error(errno.EISDIR if node.names is None else errno.ENOTEMPTY, target)
        self._put(folder, name, node, old_folder, old, None)
        if self.remote and self.world.loses("sent again"):
            raise _error(errno.ENOENT, source)

    replace = rename

    def exchange(self, source: str, target: str) -> None:
        self.world.call(f"exchange {source} {target}")
        (one, first), (other, second) = self._place(source), self._place(target)
        self._put(one, first, self._find(target), other, second, self._find(source))

    def utime(self, path: str, times: tuple[float, float] | None = None) -> None:
        self._find(path).modified = times[1] if times else self.world.now

    def chmod(self, path: str, *_: Any) -> None:
        self._find(path)

    def open(self, path: str, flags: int = os.O_RDONLY, *_: int) -> int:
        if flags & os.O_CREAT:
            return self.handle(self._created(path, exclusive=bool(flags & os.O_EXCL)))
        self.world.call(f"open {path}")
        return self.handle(self._find(path))

    def opened(self, path: str, mode: str = "r", *_: Any, **__: Any) -> Any:
        if mode[0] == "r":
            self.world.call(f"read {path}")
            node = self._find(path)
            if node.names is not None:
                raise _error(errno.EISDIR, path)
            read = io.BytesIO(node.content)
            return read if "b" in mode else io.TextIOWrapper(read, encoding="utf-8")
        node = self._created(path, exclusive=mode[0] == "x")
        if mode[0] == "w":
            node.content = b""
        return Writer(self, node, path)

    def handle(self, node: Node) -> int:
        self._handles.append(node)
        return _FIRST_HANDLE + len(self._handles) - 1

    def fsync(self, handle: int) -> None:
        node = self._handles[handle - _FIRST_HANDLE]
        self.world.call(f"sync {node.ino}")
        node.synced = node.content
        for number in range(len(self._journal), self._kept, -1):
            if node in self._journal[number - 1][1]:
                self._kept = number
                break

    def lose_power(self) -> None:
        draws = self.world.draws
        for undo, _ in reversed(self._journal[draws.randint(self._kept, len(self._journal)) :]):
            undo()
        self._journal.clear()
        self._kept = 0
        for node in self.files:
            if node.synced != node.content:
                node.content = draws.choice([node.content, node.content[: len(node.content) // 2], node.synced])
                node.synced = node.content

    def _created(self, path: str, *, exclusive: bool) -> Node:
        self.world.call(f"create {path}")
        folder, name = self._place(path)
        found = (folder.names or {}).get(name)
        if found is not None:
            if exclusive:
                raise _error(errno.EEXIST, path)
            if found.names is not None:
                raise _error(errno.EISDIR, path)
            return found
        node = self._new(folder=False)
        self._put(folder, name, node)
        return node

    def _new(self, *, folder: bool) -> Node:
        self._inos += 1
        node = Node(self._inos, self.world.now, folder=folder)
        if not folder:
            self.files.append(node)
        return node

    def _put(self, *changes: Any) -> None:
        """Give names to nodes, or take them away, at once: ``folder, name, node`` again and again."""
        undone, nodes = [], []
        for at in range(0, len(changes), 3):
            folder, name, node = changes[at : at + 3]
            undone.append((folder.names, name, folder.names.get(name)))
            nodes += [folder, node] if node is not None else [folder]
        for at in range(0, len(changes), 3):
            folder, name, node = changes[at : at + 3]
            _set(folder.names, name, node)
            folder.modified = folder.changed = self.world.now
            if node is not None:
                node.changed = self.world.now

        def undo() -> None:
            for names, name, before in reversed(undone):
                _set(names, name, before)

        self._journal.append((undo, tuple(nodes)))

    def _find(self, path: str) -> Node:
        node = self._root
        for name in path[5:].split("/"):
            names = node.names
            if names is None:
                raise _error(errno.ENOTDIR, path)
            if name in names:
                node = names[name]
            elif name:
                raise _error(errno.ENOENT, path)
        return node

    def _folder(self, path: str) -> dict[str, Node]:
        names = self._find(path).names
        if names is None:
            raise _error(errno.ENOTDIR, path)
        return names

    def _place(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        folder = self._find(above or "/")
        if folder.names is None:
            raise _error(errno.ENOTDIR, path)
        return folder, name


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


_CALLS = (
    "stat", "lstat", "listdir", "scandir", "mkdir", "rmdir", "unlink", "remove", "link", "rename", "replace", "utime",
    "chmod", "open",
)  # fmt: skip


def _routed(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, *more: Any, **named: Any) -> Any:
        text = path if type(path) is str else path.__fspath__() if hasattr(path, "__fspath__") else ""
        return ours(text, *more, **named) if text[:5] == ROOT else real(path, *more, **named)

    return call


@contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """Give this process the disk at ``ROOT``. All other paths are where they were."""
    real_sync, real_close = os.fsync, os.close
    opened = _routed(builtins.open, disk.opened)
    replaced: list[tuple[Any, str, Any]] = [
        (os, name, _routed(getattr(os, name), getattr(disk, name))) for name in _CALLS
    ]
    replaced += [(builtins, "open", opened), (io, "open", opened), (shutil, "_use_fd_functions", False)]
    replaced += [
        (os, "fsync", lambda handle: disk.fsync(handle) if handle >= _FIRST_HANDLE else real_sync(handle)),
        (os, "close", lambda handle: None if handle >= _FIRST_HANDLE else real_close(handle)),
    ]
    before = [(where, name, getattr(where, name)) for where, name, _ in replaced]
    for where, name, value in replaced:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
