"""What a load came to, in words, and the page that has it."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.load.footprint import Footprint

#: What a section of the page was measured begins so, after what is done.
_MEASURED = "\nMeasured on "


def write(page: Path, heading: str, figures: str, day: dt.date) -> None:
    """Put figures at the end of a section of the page, in place of those of an earlier day."""
    before, mark, after = page.read_text(encoding="utf-8").partition(f"## {heading}\n")
    section, following, others = after.partition("\n## ")
    done = section.partition(_MEASURED)[0]
    page.write_text(f"{before}{mark}{done}{_MEASURED}{day}: {figures}{following}{others}", encoding="utf-8")


@dataclass(frozen=True)
class Load:
    """What was done and seen."""

    at_once: int
    at_once_seconds: float
    seconds: Sequence[float]
    looks: Sequence[Footprint]
    faults: Sequence[str]
    growth: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.faults and not self.growth


def figures(load: Load) -> str:
    """What came of it, and the memory at the beginning, in the middle and at the end."""
    third = max(1, len(load.seconds) // 3)
    first, last = (statistics.median(some) for some in (load.seconds[:third], load.seconds[-third:]))
    each = statistics.median(load.seconds)
    wrong = f"{len(load.faults)} faults" if load.faults else "Every result is right and nothing is left over"
    lines = [
        f"{load.at_once} runs at once took {load.at_once_seconds:,.0f} s.",
        f"{len(load.seconds)} runs in a row: {each:.1f} s each (median; first third {first:.1f}, last {last:.1f}).",
        f"**{wrong}. {'Something' if load.growth else 'Nothing'} grew.**",
        "",
        *(f"- {words}" for words in (*load.faults, *load.growth)),
        *_table([load.looks[0], load.looks[len(load.looks) // 2], load.looks[-1]]),
    ]
    return "\n".join(lines) + "\n"


def _table(looks: Sequence[Footprint]) -> list[str]:
    parts = sorted({part for look in looks for part in look.mib})
    rows = [
        ["", *(f"after {look.runs} runs" for look in looks)],
        ["---", *["--:"] * len(looks)],
        *([f"{part}, MiB", *(f"{look.mib.get(part, 0.0):,.0f}" for look in looks)] for part in parts),
        ["open descriptors", *(str(sum(look.descriptors.values())) for look in looks)],
        ["processes", *(str(look.processes) for look in looks)],
        ["temporary files", *(str(look.temporary_files) for look in looks)],
    ]
    return [f"| {' | '.join(row)} |" for row in rows]
