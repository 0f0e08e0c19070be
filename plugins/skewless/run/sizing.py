"""How large the next night should be, from what the last ones held and used: said, and where a spec asks it, set."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from skewless.columns import column
from skewless.documents.bill import Amounts, RunBill
from skewless.documents.job import Job, Sized
from skewless.errors import SkewlessError
from skewless.run.bill import bill_of
from skewless.run.directory import DOCUMENT, RESULT_STEP, RunDirectory, stage_step
from skewless.spec.result import MOST_FILES
from skewless.spec.spec import JobSpec

CORES, REDUCERS, MEMORY, FILES = "spark.cores", "routing.reducers", "spark.executor_memory", "output.files"
#: So many nights tell what the next one should be like.
LATEST = 7
#: The steps may take so much longer with fewer cores.
LONGER = 0.1
#: From this part of their time on cores are busy: more of them would make a night shorter at about the same price.
BUSY = 0.9
#: From this part on there are too few, if there were more before.
FULL = 0.97
#: A size has helped if the next smaller one spilled so many times as much.
HELPED = 1.1
_NO_HELP = "bytes were spilled to disks, no fewer than before it was doubled"
#: What Spark gives all tasks of an executor: this part of its heap beyond so many MiB (``spark.memory.fraction``).
HEAP_PART, HEAP_MIB = 0.6, 300
#: Than now; how much is not known, and so it is never applied.
MORE = "more"
#: Tasks as short as this are still efficient (Spark's tuning guide, "Level of Parallelism").
SHORT_TASK_SECONDS = 0.2
#: A file of the result has at least the one and at most the other, so that readers neither open many nor wait for one.
SMALL_FILE, LARGE_FILE = 16 << 20, 128 << 20


class Measured(NamedTuple):
    """What one night tells about the next.

    Attributes:
        spec: as the night ran.
        base_cores: those from which on nights may take a tenth longer; None if they are its own.
        was_set: the fields that the nights before it had set.
        tasks: to which its stages sent rows; none where they were reduced where they were read.
        state_bytes: of all states that its stages wrote, in their files.
        heaviest: the part of the rows that the heaviest key has, and the part that it would have if all had as many.
    """

    spec: JobSpec
    bill: RunBill
    base_cores: int | None = None
    was_set: frozenset[str] = frozenset()
    tasks: int = 0
    result_bytes: int = 0
    state_bytes: int = 0
    heaviest: tuple[float, float] = (0.0, 0.0)

    @property
    def size(self) -> tuple[int, int, str | None]:
        """Cores, reducers and memory."""
        cores = max((bill.cores for _, bill in self.bill.steps), default=0)
        return cores, self.spec.routing.reducers, self.spec.spark.executor_memory


class Advice(NamedTuple):
    """What a field of the spec should say, and why.

    Attributes:
        now: what was measured to be so, or what the field says.
        cores: of cores, those of which a tenth longer is reckoned.
    """

    field: str
    now: int | str | None
    then: int | str | None
    reason: str
    cores: int | None = None

    @property
    def changes(self) -> bool:
        """Whether it is another value than now."""
        return self.then != self.now


def measured(run: RunDirectory, job: Job | None = None) -> Measured:
    """What a run tells, as far as it came; a ``SkewlessError`` if its job or its result cannot be read."""
    job, stages, result = job or run.job(), run.committed_stages(), run.commit_of(RESULT_STEP)
    base = next((one.cores for one in job.sizing if one.field == CORES), None)
    was_set = frozenset(one.field for one in job.sizing if one.applied != one.written)
    of_result = sum(file.size_bytes for file in result.of_kind(RESULT_STEP)) if result else 0
    told = Measured(job.spec, bill_of(run), base, was_set, result_bytes=of_result)
    try:
        files = [run.committed(stage_step(stage)).files for stage in range(stages)]
        reports = [run.report(stage, tails=False) for stage in range(stages)]
        seen = reports[-1].histogram
    except (SkewlessError, IndexError):  # there are none
        return told
    heaviest = max((rows for rows, _ in seen.head.values()), default=0) / max(1, seen.seen_rows)
    return told._replace(
        tasks=sum(len(report.tasks) for report in reports),
        state_bytes=sum(
            size
            for one in files
            for kind, size in zip(column(one, "kind"), column(one, "size_bytes"), strict=True)
            if kind not in {DOCUMENT, "backlog"}
        ),
        heaviest=(heaviest, 1 / seen.keys if seen.keys else heaviest),
    )


def advice_of(nights: Sequence[Measured]) -> tuple[Advice, ...]:
    """What the latest nights of a job, oldest first, say about its next one; nothing without cores.

    Nights with other cores, reducers or memory than the last one are not looked at. Tasks are short by what is spent on
    the rows that were sent to them; where none were sent, reducers say how many splits there are.

    With ``c`` cores the steps took ``T`` seconds, in which tasks used ``U`` core-seconds. Other cores, ``d``, do the
    same work in ``U/d`` instead of ``U/c`` seconds; all else, ``F``, takes as long. So they take at most a tenth longer
    than with ``b`` if ``d >= U / ((F + U/b) / 10 + U/b)``. A run that was made smaller knows the ``b`` before it:
    otherwise each night would be a tenth longer than the last.
    """
    if not nights or not nights[-1].size[0]:
        return ()
    last = nights[-1]
    cores, alike = last.size[0], [one for one in nights[-LATEST:] if one.size == last.size]
    amounts = Amounts.total(one.bill.counted for one in alike)
    enough = _cores(cores, last, amounts)
    stages = [bill for one in alike for name, bill in one.bill.steps if name.startswith("stage")]
    tasks = sum(one.tasks for one in alike)
    seconds = sum(one.reduce_used_seconds if tasks else one.used_seconds for one in stages)
    seconds /= tasks or sum(one.tasks for one in stages) or 1
    spilled = (one.spec.routing.reducers for one in nights[-LATEST:] if one.bill.counted.spilled_bytes)
    reducers = _reducers(last, int(enough.then or cores), amounts, seconds, max(spilled, default=0))
    fewer = [one for one in nights if one.spec.routing.reducers < last.spec.routing.reducers]
    less = [one for one in nights if one.bill.memory_bytes < last.bill.memory_bytes]
    if not _helped(last, REDUCERS, fewer):
        reducers = reducers._replace(then=reducers.now, reason=f"{amounts.spilled_bytes:,} {_NO_HELP}")
    memory = _memory(last, amounts)
    if not _helped(last, MEMORY, less):
        memory = memory._replace(then=memory.now, reason=f"{amounts.spilled_bytes:,} {_NO_HELP}")
    return enough, reducers, memory, _files(last)


def _helped(last: Measured, field: str, smaller: Sequence[Measured]) -> bool:
    """Whether there is a reason to double a field again: not if nights had set it, and tasks spill as they did."""
    spilled = last.bill.counted.spilled_bytes
    if not spilled or field not in last.was_set:
        return True
    return any(one.bill.counted.spilled_bytes > HELPED * spilled for one in smaller)


def applied(spec: JobSpec, nights: Sequence[Measured]) -> tuple[JobSpec, tuple[Sized, ...]]:
    """The spec as its next run has it, and what the nights before say of the fields; without any, as it is written.

    Cores that are enough are not asked for, unless the last night did. Memory is what is left where tasks spilled and
    no reducers may be added.
    """
    lines, more_reducers = list[Sized](), False
    for one in advice_of(nights):
        written, before = spec.field(one.field), nights[-1].spec.field(one.field)
        then = spec.routing.within(one.then) if one.field == REDUCERS and isinstance(one.then, int) else one.then
        if then in {None, MORE, written} or (before is None and not one.changes):
            continue
        if one.field == MEMORY and more_reducers:
            continue
        is_open = one.field in spec.sizing
        more_reducers |= is_open and one.field == REDUCERS and one.changes
        set_to, why = (then, "") if is_open else (written, f"the spec sets it, where {then} was advised: ")
        reason = f"{why}{one.reason}"
        lines.append(Sized(field=one.field, written=written, applied=set_to, cores=one.cores, reason=reason))
    return spec.with_fields({one.field: one.applied for one in lines}) if lines else spec, tuple(lines)


def _cores(cores: int, last: Measured, amounts: Amounts) -> Advice:
    asked, base = last.spec.spark.cores, max(cores, last.base_cores or 0)
    busy = amounts.used / amounts.held if amounts.held else 0.0
    words = f"{cores:,} cores ran tasks for {busy:.0%} of the time, and waited {_part(amounts)} for a longest task"
    if last.base_cores and asked and asked != cores:
        return Advice(CORES, cores, None, f"{words}: spark.cores was {asked:,}, which the cluster did not follow")
    if busy >= FULL and cores < base:
        return Advice(CORES, cores, base, f"{words}: {base:,} were enough before")
    if busy >= BUSY and cores == base:
        return Advice(CORES, cores, 2 * cores, f"{words}: twice as many take half the time at the same price")
    work = amounts.used / base
    longest = LONGER * ((amounts.held - amounts.used) / cores + work)
    fewest = min(base, math.ceil(amounts.used / (longest + work))) if amounts.used else 1
    beside = "" if base == cores else f" than {base:,}"
    if fewest != cores:
        then = f"{fewest:,} take at most {LONGER:.0%} longer{beside}"
        return Advice(CORES, cores, fewest, f"{words}: {then}", base)
    return Advice(CORES, cores, cores, f"{words}: fewer would take more than {LONGER:.0%} longer{beside}", base)


def _part(amounts: Amounts) -> str:
    return f"{amounts.skew / amounts.held:.0%}" if amounts.held else "0%"


def _reducers(last: Measured, cores: int, amounts: Amounts, task_seconds: float, spilled: int) -> Advice:
    routing, now = last.spec.routing, last.spec.routing.reducers

    def to(then: int, reason: str) -> Advice:
        return Advice(REDUCERS, now, routing.within(then), reason)

    if not last.tasks and routing.slots is not None:
        return to(now, "rows were reduced where they were read, in splits of which routing.slots says how many")
    if amounts.spilled_bytes:
        spilt = f"tasks spilled {amounts.spilled_bytes:,} bytes to disks"
        return to(2 * now, f"{spilt}: half as many rows for each need half of it")
    if now < cores:
        return to(cores, f"{cores:,} cores have a task each only if there are as many reducers")
    halvings = math.floor(math.log2(SHORT_TASK_SECONDS / task_seconds)) if task_seconds else 0
    if spilled < (fewer := max(cores, now >> max(0, halvings))) < now:
        return to(fewer, f"tasks took {task_seconds:.2f} s on average, much of it to start them")
    return to(now, "each core has a task, and no task spilled")


def _memory(last: Measured, amounts: Amounts) -> Advice:
    """Beside what was spilled: what the heaviest key's state needs, if states grow with rows or if all are alike."""
    now, has = last.spec.spark.executor_memory, last.bill.memory_bytes
    most, alike = (math.ceil(last.state_bytes * part) for part in last.heaviest)
    state = ""
    if last.state_bytes and has:
        state = (
            f"; the heaviest key has {last.heaviest[0]:.0%} of the rows, and its state {alike:,} bytes in files, "
            f"or {most:,} if states grow with rows: an executor has {has:,} for all of its tasks"
        )
    found = re.fullmatch(r"(\d+)(\w)", now or (f"{HEAP_MIB + math.ceil(has / HEAP_PART / 2**20)}m" if has else ""))
    twice = f"{2 * int(found[1])}{found[2]}" if found else MORE
    if amounts.spilled_bytes:
        reason = f"tasks spilled {amounts.spilled_bytes:,} bytes to disks; it serves in place of more reducers{state}"
        return Advice(MEMORY, now, twice, reason)
    if state and most > has:
        return Advice(MEMORY, now, MORE, f"no task spilled{state}")
    return Advice(MEMORY, now, now, f"no task spilled; whether less would do was not measured{state}")


def _files(last: Measured) -> Advice:
    now, size = last.spec.output.files, last.result_bytes
    least, most = -(-size // LARGE_FILE), max(1, size // SMALL_FILE)
    then = min(max(now, least), max(least, most), MOST_FILES) if size else now
    reason = f"the result has {size:,} bytes, and a file should have {SMALL_FILE >> 20} to {LARGE_FILE >> 20} MiB"
    return Advice(FILES, now, then, reason if size else "how large the result is was not measured")
