"""The page of what a load came to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.load.footprint import Footprint

_HEAD = """# Load

What `make soak` did, and what it came to; the page is written by it, from a real run. The Airflow of `make up`, with
its steps on the local Spark Connect server, has four small jobs. First runs of different days are triggered at once,
spread over the jobs; then runs follow each other. After each run, the published day is held to what plain Python counts
from the input, the ledger to itself, and the run directory and the output folder to having no drafts. In between, with
no run under way, the processes are looked at: memory that a process alone holds, but of the JVM the heap that lives
after a collection.
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
        f"{wrong} {grew} Told as growth is what the last third of the looks has more than the middle one: a tenth of a",
        "part's memory, and 24 MiB, or eight descriptors, eight temporary files, two processes.",
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
