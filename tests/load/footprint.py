"""What the processes of an Airflow hold: memory, descriptors, processes, and files in their temporary folders."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

#: What of a command line tells which part of the whole a process is, looked for in this order.
_PARTS = {
    "Spark Connect": "SparkConnectServer",
    "API server": "api_server|api-server",
    "triggerer": "triggerer",
    "DAG processor": "dag-processor|dag_processor",
    "scheduler": "scheduler",
}
#: A part may hold so much more at the end than in the middle: caches fill, and allocators keep what they once had.
GROWTH_SHARE, GROWTH_MIB = 0.10, 24.0
GROWTH_DESCRIPTORS, GROWTH_FILES, GROWTH_PROCESSES = 8.0, 8.0, 2.0


@dataclass(frozen=True)
class Footprint:
    """At one moment, with no run under way.

    Attributes:
        runs: that have ended before.
        mib: memory by part that it alone holds; of a JVM the heap that is alive after a collection.
        descriptors: open ones, by part.
        processes: of all parts.
        temporary_files: files and folders below the temporary folders.
    """

    runs: int
    mib: dict[str, float]
    descriptors: dict[str, int]
    processes: int
    temporary_files: int


def footprint(sessions: Sequence[int], folders: Sequence[Path], runs: int) -> Footprint:
    """Look.

    Args:
        sessions: the processes, by those who lead their sessions.
        folders: the temporary folders.
        runs: that have ended.
    """
    mib: dict[str, float] = defaultdict(float)
    descriptors: dict[str, int] = defaultdict(int)
    processes = 0
    for leader in sessions:
        for process in _family(leader):
            try:
                part = _part(" ".join(process.cmdline()))
                held = _live_heap(process.pid) if part == "Spark Connect" and "java" in process.name() else None
                mib[part] += process.memory_full_info().uss / 2**20 if held is None else held
                descriptors[part] += process.num_fds()
                processes += 1
            except psutil.NoSuchProcess:
                continue  # it ended while we looked
    files = sum(1 for folder in folders for _ in folder.rglob("*"))
    return Footprint(runs, {part: round(held, 1) for part, held in mib.items()}, dict(descriptors), processes, files)


def growth(looks: Sequence[Footprint]) -> list[str]:
    """What grew from the middle third of some looks to the last one, beyond what caches explain; in words.

    The first third is not looked at: modules are loaded, pools are filled.
    """
    third = len(looks) // 3
    found = []

    def compare(what: str, of: Callable[[Footprint], float], allowed: float, share: float = 0.0) -> None:
        before, after = (statistics.median(map(of, some)) for some in (looks[third : 2 * third], looks[2 * third :]))
        if after > before + max(allowed, share * before):
            found.append(f"{what} grew from {before:,.1f} to {after:,.1f}")

    for part in looks[-1].mib:
        compare(f"MiB of the {part}", partial(_mib, part), GROWTH_MIB, GROWTH_SHARE)
        compare(f"descriptors of the {part}", partial(_descriptors, part), GROWTH_DESCRIPTORS)
    compare("processes", lambda look: look.processes, GROWTH_PROCESSES)
    compare("temporary files", lambda look: look.temporary_files, GROWTH_FILES)
    return found


def _mib(part: str, look: Footprint) -> float:
    return look.mib.get(part, 0.0)


def _descriptors(part: str, look: Footprint) -> float:
    return look.descriptors.get(part, 0)


def _family(leader: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(leader)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _part(command: str) -> str:
    return next((part for part, words in _PARTS.items() if re.search(words, command)), "others")


def _live_heap(pid: int) -> float | None:
    """MiB of a JVM's heap that are alive; None where the JDK's tool for that is not at hand."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return None
    subprocess.run([jcmd, str(pid), "GC.run"], capture_output=True, check=False)
    told = subprocess.run([jcmd, str(pid), "GC.heap_info"], capture_output=True, text=True, check=False).stdout
    used = [int(kib) for kib in re.findall(r"(?:heap|generation) +total \d+K, used (\d+)K", told)]
    return sum(used) / 1024 if used else None
