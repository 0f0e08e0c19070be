"""The counts of `docs/faults.md`, from the trials of a run."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

OUTCOMES = ("right", "stopped", "wrong")


class Tried(NamedTuple):
    """A trial and its outcome: ``right``, ``stopped`` or ``wrong``."""

    kind: str
    step: str
    fault: str
    seed: int
    outcome: str

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.step}: {self.fault}: {self.seed}"


#: The page says what each of them is.
KINDS = (
    "kill", "kill driver", "kill worker", "kill all", "kill JVM", "kill Airflow", "twice", "beside", "pause",
    "full disk", "source", "clock", "damage", "tampering",
)  # fmt: skip
#: The kinds of trials of tables, which are a run of their own.
KINDS_OF_TABLES = ("kill publisher", "wire", "outage")
#: The row with the sums of all kinds.
ALL = "all"


def counted(page: str, tried: Sequence[Tried], day: dt.date) -> str:
    """The page with the counts of the kinds that were tried, and the sums; the rows of other kinds stay as they are."""
    last = {one.name: one for one in tried}.values()
    lines, sums = list[str](), Counter[int]()
    for line in page.splitlines():
        kind, *words = [cell.strip() for cell in line.strip("|").split("|")]
        of = [one for one in last if one.kind == kind]
        if line.startswith("|") and kind in {*KINDS, *KINDS_OF_TABLES}:
            words[1:] = _counts(of, day) if of else words[1:]
            sums.update({at: int(cell.replace(",", "")) for at, cell in enumerate(words[2:]) if cell})
        elif line.startswith("|") and kind == ALL:
            words[2:] = [f"{sums[at]:,}" for at in range(len(words) - 2)]
        else:
            lines.append(line)
            continue
        lines.append(f"| {' | '.join([kind, *words])} |")
    return "\n".join(lines) + "\n"


def _counts(of: Sequence[Tried], day: dt.date) -> list[str]:
    outcomes = Counter(one.outcome for one in of)
    counts = [len({(one.step, one.fault) for one in of}), len(of), *(outcomes[outcome] for outcome in OUTCOMES)]
    return [day.isoformat(), *(f"{count:,}" for count in counts)]
