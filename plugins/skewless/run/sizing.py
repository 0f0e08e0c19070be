"""How large the next night should be, from what the last ones held and used. It is said, and nothing follows it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from skewless.documents.bill import Amounts, RunBill
from skewless.spec.spec import JobSpec

#: So many nights tell what the next one should be like.
_LATEST = 7
#: The steps may take so much longer with fewer cores.
LONGER = 0.1
#: From this part of their time on cores are busy: more of them would make a night shorter at about the same price.
BUSY = 0.9


class Advice(NamedTuple):
    """What a field of the spec should say, and why.

    Attributes:
        now: what was measured to be so, or what the field says.
    """

    field: str
    now: int | str | None
    then: int | str | None
    reason: str

    @property
    def changes(self) -> bool:
        """Whether it is another value than now."""
        return self.then != self.now


def advice_of(spec: JobSpec, nights: Sequence[RunBill]) -> tuple[Advice, ...]:
    """What the bills of the latest nights of a job, oldest first, say about its next one; nothing without cores.

    Nights with other cores than the last one are not looked at.

    With ``c`` cores the steps took ``T`` seconds, in which tasks used ``U`` core-seconds. Fewer cores, ``d``, do the
    same work in ``U/d`` instead of ``U/c`` seconds; all else takes as long. So they take at most a tenth longer if
    ``d >= U / (T/10 + U/c)``.
    """
    cores = _cores_of(nights[-1]) if nights else 0
    if not cores:
        return ()
    nights = [one for one in nights[-_LATEST:] if _cores_of(one) == cores]
    amounts = Amounts.total(night.counted for night in nights)
    enough = _cores(cores, amounts)
    return enough, _reducers(spec, int(enough.then or cores), amounts), _memory(spec, amounts)


def _cores_of(night: RunBill) -> int:
    return max((bill.cores for _, bill in night.steps), default=0)


def _cores(cores: int, amounts: Amounts) -> Advice:
    busy = amounts.used / amounts.held if amounts.held else 0.0
    fewest = math.ceil(amounts.used / (LONGER * amounts.held / cores + amounts.used / cores)) if amounts.used else 1
    words = f"{cores:,} cores ran tasks for {busy:.0%} of the time, and waited {_part(amounts)} for a longest task"
    if busy >= BUSY:
        return Advice("spark.cores", cores, 2 * cores, f"{words}: twice as many take half the time at the same price")
    if fewest < cores:
        then = f"{fewest:,} take at most {LONGER:.0%} longer"
        return Advice("spark.cores", cores, fewest, f"{words}: {then}")
    return Advice("spark.cores", cores, cores, f"{words}: fewer would take more than {LONGER:.0%} longer")


def _part(amounts: Amounts) -> str:
    return f"{amounts.skew / amounts.held:.0%}" if amounts.held else "0%"


def _reducers(spec: JobSpec, cores: int, amounts: Amounts) -> Advice:
    now = spec.routing.reducers
    if amounts.spilled_bytes:
        reason = f"tasks spilled {amounts.spilled_bytes:,} bytes to disks: half as many rows for each need half of it"
        return Advice("routing.reducers", now, 2 * now, reason)
    if now < cores:
        reason = f"{cores:,} cores have a task each only if there are as many reducers"
        return Advice("routing.reducers", now, cores, reason)
    return Advice("routing.reducers", now, now, "each core has a task, and no task spilled")


def _memory(spec: JobSpec, amounts: Amounts) -> Advice:
    now = spec.spark.executor_memory
    if not amounts.spilled_bytes:
        reason = "no task spilled; whether less would do was not measured"
        return Advice("spark.executor_memory", now, now, reason)
    reason = f"tasks spilled {amounts.spilled_bytes:,} bytes to disks; it serves in place of more reducers"
    found = re.fullmatch(r"(\d+)(\w)", now or "")
    return Advice("spark.executor_memory", now, f"{2 * int(found[1])}{found[2]}" if found else "more", reason)
