"""What the processes of an Airflow hold: memory, descriptors, processes, and files in their temporary folders."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

#: What of a command line tells which part of the whole a process is, looked for in this order.
_PARTS = {
    "drivers of runs": "warm_driver",
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
    """At one moment, with no run under way."""

    runs: int
    mib: dict[str, float]
    descriptors: dict[str, int]
    processes: int
    temporary_files: int


def footprint(all_of: Sequence[psutil.Process], folders: Sequence[Path], runs: int) -> Footprint:
    """Look."""
    mib: dict[str, float] = defaultdict(float)
    descriptors: dict[str, int] = defaultdict(int)
    processes = 0
    for process in all_of:
        try:
            part = _part(" ".join(process.cmdline()))
            mib[part] += process.memory_full_info().uss / 2**20
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


def family(leader: int) -> list[psutil.Process]:
    """A process and all that it has started, and these."""
    try:
        first = psutil.Process(leader)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _part(command: str) -> str:
    return next((part for part, words in _PARTS.items() if re.search(words, command)), "others")
