"""The page of what a load came to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.load.footprint import Footprint

_HEAD = """# Load

`make soak` writes this page from a real run. The Airflow of `make up`, with its steps on the local Spark Connect
server, has four small jobs. First, runs of different days are triggered at once, spread over the jobs; then runs follow
each other. After each run, the published day is compared with what plain Python counts from the input, the ledger must
balance, and the run directory and the output folder must have no drafts. In between, while no run is under way, the
processes are measured: the memory that belongs to a process alone, and of the JVM the heap that is alive after a
collection.
"""


@dataclass(frozen=True)
class Load:
    """What was done and seen.

    Attributes:
        at_once: runs that were triggered at once.
        at_once_seconds: from the first trigger to the last end.
        seconds: of each run in a row.
        looks: at the processes, before the first of these runs and in between.
        faults: what was wrong with runs, in words.
        growth: what grew, in words.
    """

    at_once: int
    at_once_seconds: float
    seconds: Sequence[float]
    looks: Sequence[Footprint]
    faults: Sequence[str]
    growth: Sequence[str]

    @property
    def holds(self) -> bool:
        """Whether all was as it should be."""
        return not self.faults and not self.growth


def page(load: Load) -> str:
    """The page, in Markdown."""
    wrong = f"**{len(load.faults)} faults.**" if load.faults else "**Every result right, nothing left over.**"
    grew = "**Something grew.**" if load.growth else "**Nothing grew.**"
    third = max(1, len(load.seconds) // 3)
    first, last = (statistics.median(some) for some in (load.seconds[:third], load.seconds[-third:]))
    each = statistics.median(load.seconds)
    lines = [
        _HEAD,
        f"{load.at_once} runs at once: {load.at_once_seconds:,.0f} s.",
        f"{len(load.seconds)} runs in a row: {each:.1f} s each (median; first third {first:.1f}, last {last:.1f}).",
        "",
        f"{wrong} {grew} A part has grown if the last third of the measurements exceeds the middle third by",
        "a tenth of its memory and 24 MiB, or by eight descriptors, eight temporary files or two processes.",
        "",
        *(f"- {words}" for words in (*load.faults, *load.growth)),
        *_table(load.looks),
    ]
    return "\n".join(lines) + "\n"


def _table(looks: Sequence[Footprint]) -> list[str]:
    parts = sorted({part for look in looks for part in look.mib})
    head = ["runs", *(f"{part}, MiB" for part in parts), "descriptors", "processes", "temporary files"]
    rows = [
        [
            str(look.runs),
            *(f"{look.mib.get(part, 0.0):,.0f}" for part in parts),
            str(sum(look.descriptors.values())),
            str(look.processes),
            str(look.temporary_files),
        ]
        for look in looks
    ]
    return ["", *(f"| {' | '.join(row)} |" for row in (head, ["--:"] * len(head), *rows))]
