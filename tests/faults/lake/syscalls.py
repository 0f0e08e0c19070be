"""Kills a process before one of its writes to files, whichever library makes it: SQLite, Arrow and deltalake, too.

An audit hook hears of Python's own files only. So the process is traced: the kernel stops it before each system call
that changes a file (``seccomp`` chooses them, so all others cost nothing), and the tracer kills it there, or lets it go
on. A call at which the process is killed does not happen. What is there before one call is what was there after the
one before it, so every state that a kill can leave is tried by a kill before each call. (``fsync`` changes nothing that
a kill leaves.)
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.faults.killed import named

#: By the machine: the numbers of the calls, and which of their arguments is a path, the folder before it, or a file.
_CALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        1: "write", 2: "open", 18: "pwrite64", 20: "writev", 77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir",
        86: "link", 87: "unlink", 257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat", 265: "linkat",
        296: "pwritev", 316: "renameat2",
    },
    "aarch64": {
        34: "mkdirat", 35: "unlinkat", 37: "linkat", 38: "renameat", 46: "ftruncate", 56: "openat", 64: "write",
        66: "writev", 68: "pwrite64", 70: "pwritev", 276: "renameat2",
    },
}  # fmt: skip
#: Where a call has its path: the argument with the folder (None for none), and that with the path.
_PATHS: dict[str, tuple[int | None, int]] = {
    "open": (None, 0), "openat": (0, 1), "mkdir": (None, 0), "mkdirat": (0, 1), "rmdir": (None, 0),
    "rename": (None, 1), "renameat": (2, 3), "renameat2": (2, 3), "link": (None, 1), "linkat": (2, 3),
    "unlink": (None, 0), "unlinkat": (0, 1),
}  # fmt: skip
_FLAGS = {"open": 1, "openat": 2}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_RANDOM = (
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"snap-\d+-"), "snap-N-"),
    (re.compile(r"uploadId=\w+"), "uploadId=ID"),
    (re.compile(r"/(?:[01]{4}/){3}[01]{8}/"), "/HASH/"),
    # The store of turns of a table is named by the table's path.
    (re.compile(r"tables/clicks-[0-9a-f]{8}"), "tables/clicks-ID"),
    # The number of a version of a Delta table.
    (re.compile(r"(?<!\d)0{16}(\d{4})(?!\d)"), r"\1"),
)

_TRACE_ME, _CONTINUE, _SET_OPTIONS, _SYSCALL_INFO = 0, 7, 0x4200, 0x420E
#: Threads and processes that it starts are traced, too, and all end with the tracer.
_OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
_SECCOMP_STOP = signal.SIGTRAP | (7 << 8)
_OF_ANY_THREAD = 0x40000000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000


class Call(NamedTuple):
    """A system call that changes a file: which, of which path, without what is random, and for which time."""

    call: str
    path: str
    nth: int = 1

    @property
    def name(self) -> str:
        return f"{self.call} {self.path}" + (f", {self.nth}" if self.nth > 1 else "")


class Traced(NamedTuple):
    """How a traced process ended: its exit code, minus a signal if that ended it, and the calls that it came to."""

    code: int
    calls: list[Call]


def plain_name(path: str) -> str:
    """A path of a run directory, a lease or a table without what is random in it."""
    for pattern, instead in _RANDOM:
        path = pattern.sub(instead, path)
    return named(path)


def traced(act: Callable[[], int], roots: Sequence[str], strike: Call | None) -> Traced:
    """Do something in a process of its own, and kill that before one of its calls."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            _begin_tracing(libc)
            code = act()
        finally:
            os._exit(code)
    os.waitpid(pid, 0)
    _require(libc.ptrace(_SET_OPTIONS, pid, 0, _OPTIONS), "be traced")
    _require(libc.ptrace(_CONTINUE, pid, 0, 0), "go on")
    return _Tracer(libc, pid, roots, strike).watched()


class _Tracer:
    def __init__(self, libc: ctypes.CDLL, pid: int, roots: Sequence[str], strike: Call | None) -> None:
        self._libc, self._pid, self._strike = libc, pid, strike
        self._roots = [f"{root}/" for root in roots]
        self._names = _CALLS[platform.machine()]
        self._seen: Counter[tuple[str, str]] = Counter()
        self._calls: list[Call] = []

    def watched(self) -> Traced:
        while True:
            one, status = os.waitpid(-1, _OF_ANY_THREAD)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                if one == self._pid:
                    return Traced(os.waitstatus_to_exitcode(status), self._calls)
                continue
            came, passed_on = status >> 8, 0
            if came == _SECCOMP_STOP:
                found = self._call(one)
                if found is not None:
                    self._calls.append(found)
                    if found == self._strike:
                        os.kill(self._pid, signal.SIGKILL)
            elif came not in {signal.SIGSTOP, signal.SIGTRAP} and came >> 8 == 0:
                passed_on = came
            self._libc.ptrace(_CONTINUE, one, 0, passed_on)  # one that was just killed is gone

    def _call(self, thread: int) -> Call | None:
        info = ctypes.create_string_buffer(88)
        if self._libc.ptrace(_SYSCALL_INFO, thread, len(info), ctypes.addressof(info)) <= 0:
            return None
        number, *args = struct.unpack_from("7Q", info, 24)
        name = self._names[number]
        if name in _FLAGS and not args[_FLAGS[name]] & _WRITING:
            return None
        path = self._path(thread, name, args)
        root = next((root for root in self._roots if f"{path}/".startswith(root)), None)
        if root is None:
            return None
        plain = plain_name(path[len(root) :])
        self._seen[name, plain] += 1
        return Call(name, plain, self._seen[name, plain])

    def _path(self, thread: int, name: str, args: Sequence[int]) -> str:
        if name not in _PATHS:
            return _target(f"/proc/{thread}/fd/{args[0]}")
        folder, at = _PATHS[name]
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123  # no file to have a path for
            memory.seek(args[at])
            path = os.fsdecode(memory.read(4096).partition(b"\0")[0])
        if path.startswith("/"):
            return path
        number = ctypes.c_int(args[folder]).value if folder is not None else -1
        return f"{_target(f'/proc/{thread}/fd/{number}' if number >= 0 else f'/proc/{thread}/cwd')}/{path}"


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115  # what it names need be no path
    except OSError:
        return ""


def _begin_tracing(libc: ctypes.CDLL) -> None:
    numbers = sorted(_CALLS[platform.machine()])
    program = [(0x20, 0, 0, 0)]  # the number of the call
    program += [(0x15, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    program += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _TRACE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    given = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    _require(libc.ptrace(_TRACE_ME, 0, 0, 0), "be traced")
    os.kill(os.getpid(), signal.SIGSTOP)
    _require(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "give up privileges")
    _require(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(given), 0, 0), "have its calls chosen")


def _require(answer: int, what: str) -> None:
    if answer == -1:
        raise OSError(ctypes.get_errno(), f"this machine does not let a process {what}: allow ptrace and seccomp")
