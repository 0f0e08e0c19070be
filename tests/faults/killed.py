"""A step that is killed, or paused, at one of its file-system events, without a word of that in the product.

    python -m tests.faults.killed --root DIR [--root DIR] [--at 'write job.json' [--nth 1] [--when before|after]
        [--signal KILL|STOP]] [--record FILE] -- jobs/run_stage.py ARGUMENTS

Python tells an audit hook of every file that it opens, links, renames or removes, before it does so.
The hook counts what happens below the roots, and sends this process its signal at the one that was named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

When = Literal["before", "after"]

#: What an attempt, a draft or a part is called differs from run to run.
_RANDOM = (
    (re.compile(r"part-\d+-[0-9a-f-]{36}[^/]*"), "part"),
    # A version of a published day, and until when it was published.
    (re.compile(r"\d+-[0-9a-f]{12}(?![0-9a-f])"), "VERSION"),
    (re.compile(r"\d{8}T\d{6}Z"), "SINCE"),
    (re.compile(r"part-\d{5}"), "part"),
    # A lease: of which process it is, and the versions of its records.
    (re.compile(r"workers%2F[^/]+"), "workers%2FNAME"),
    (re.compile(r"[0-9a-f]{24}"), "ID"),
    (re.compile(r"[0-9a-f]{16}"), "ID"),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Point(NamedTuple):
    """A file-system event of a step: what is done to which path, and for which time; paths without what is random."""

    action: str
    path: str
    nth: int = 1

    @property
    def name(self) -> str:
        return f"{self.action} {self.path}"


class Fault(NamedTuple):
    """A signal to the process itself, right before or right after a point."""

    point: Point
    when: When = "before"
    sign: signal.Signals = signal.SIGKILL


def named(path: str) -> str:
    """A path without what is random in it."""
    for pattern, instead in _RANDOM:
        path = pattern.sub(instead, path)
    return path


def watch(roots: Sequence[Path], fault: Fault | None = None, record: Path | None = None) -> None:
    """Watch this process from now on; an audit hook cannot be taken away again."""
    watcher = _Watcher([f"{root.absolute()}/" for root in roots], fault, record)
    sys.addaudithook(watcher.heard)


class _Watcher:
    """Counts the points of this process, in all of its threads, and strikes at one."""

    def __init__(self, roots: list[str], fault: Fault | None, record: Path | None) -> None:
        self._roots, self._fault = roots, fault
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if record else None
        self._seen: Counter[tuple[str, str]] = Counter()
        self._lock, self._inside = threading.Lock(), threading.local()

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event; nothing that is done in here is one."""
        reader = _READERS.get(event)
        if reader is None or getattr(self._inside, "flag", False):
            return
        self._inside.flag = True
        try:
            found = reader(args)
            if found is not None:
                self._happens(*found)
        finally:
            self._inside.flag = False

    def _happens(self, action: str, path: str) -> None:
        root = next((root for root in self._roots if f"{path}/".startswith(root)), None)
        if root is None and action != "exchange":
            return
        name = named(f"{path}/"[len(root) :].rstrip("/") or ".") if root else path
        with self._lock:
            self._seen[action, name] += 1
            point = Point(action, name, self._seen[action, name])
        if self._record is not None:
            os.write(self._record, f"{json.dumps(point)}\n".encode())
        if self._fault is not None and point == self._fault.point:
            if self._fault.when == "before":
                os.kill(os.getpid(), self._fault.sign)
            else:
                _once_back(self._fault.sign)


def _once_back(sign: signal.Signals) -> None:
    """Strike as soon as the interpreter is back from what it is about to do."""

    def strike(frame: FrameType, event: str, arg: object) -> None:
        del arg
        if frame.f_code.co_filename == __file__:  # still in the hook
            return
        del event
        sys.setprofile(None)
        os.kill(os.getpid(), sign)

    sys.setprofile(strike)


def _path(value: object, folder: object = -1) -> str | None:
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if not isinstance(value, str | os.PathLike):
        return None
    if isinstance(folder, int) and folder >= 0:
        return str(Path(f"/proc/self/fd/{folder}").readlink() / value)
    return str(Path.cwd() / value)


def _opened(args: tuple[Any, ...]) -> tuple[str, str] | None:
    path, mode, flags = _path(args[0]), args[1], args[2]
    if path is None:
        return None
    writing = any(sign in mode for sign in "wxa+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return ("write" if writing else "read"), path


def _one(action: str, at: int = 0, folder: int | None = None) -> Callable[[tuple[Any, ...]], tuple[str, str] | None]:
    def read(args: tuple[Any, ...]) -> tuple[str, str] | None:
        path = _path(args[at], args[folder] if folder is not None else -1)
        return None if path is None else (action, path)

    return read


def _looked_up(args: tuple[Any, ...]) -> tuple[str, str] | None:
    """The call itself is no audit event; that its function is looked up is, and comes right before."""
    return ("exchange", "old and new folder") if args[1] == "renameat2" else None


#: What of an audit event's arguments is the path.
_READERS: dict[str, Callable[[tuple[Any, ...]], tuple[str, str] | None]] = {
    "open": _opened,
    "os.mkdir": _one("make folder", 0, 2),
    "os.link": _one("link", 1, 3),
    "os.rename": _one("rename to", 1, 3),
    "os.remove": _one("remove", 0, 1),
    "os.rmdir": _one("remove folder", 0, 1),
    "shutil.rmtree": _one("remove tree"),
    "shutil.copyfile": _one("copy to", 1),
    "ctypes.dlsym": _looked_up,
}


def main() -> None:
    """Run a script as ``python SCRIPT`` does, watched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", action="append", type=Path, required=True)
    parser.add_argument("--at", default="", help="action and path, as the record has them")
    parser.add_argument("--nth", type=int, default=1)
    parser.add_argument("--when", choices=["before", "after"], default="before")
    parser.add_argument("--signal", choices=["KILL", "STOP"], default="KILL")
    parser.add_argument("--record", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    fault = None
    if given.at:
        action, _, path = given.at.rpartition(" ")
        fault = Fault(Point(action, path, given.nth), given.when, signal.Signals[f"SIG{given.signal}"])
    watch(given.root, fault, given.record)
    sys.argv = [given.script, *given.arguments]
    runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    main()
