"""The time and the bill of each step, and those of whole runs."""

import datetime as dt
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue

from skewless.bounds import run_certificate
from skewless.documents.job import Job
from skewless.documents.ledger import balance
from skewless.documents.step_documents import RunBill, Savings, Span, StepBill, StepTimes
from skewless.errors import SkewlessError
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, RunDirectory, stage_step
from skewless.run.folder import as_written, folders_in, folders_of_jobs
from skewless.run.step_names import COMPARE, COMPARISON_STEP, PUBLISH

#: Seconds since 1970.
Clock = Callable[[], float]
#: The folder of the times, and that of further tries in it.
TIMES, AGAIN = "times", "again"
#: Less is nothing: the JVM tells times in milliseconds.
_LEAST_SECONDS = 0.002


class StepClock:
    """Measures a step, from when it began, or from now, by a clock."""

    def __init__(self, step: str, now: Clock, started: float | None = None) -> None:
        self.now = now
        self._step, self._started = step, now() if started is None else started
        self._spans: list[Span] = []
        #: What the step has cost so far, once that is known.
        self.bill: StepBill | None = None

    @property
    def started(self) -> float:
        """When the step began, seconds since 1970."""
        return self._started

    def add(self, name: str, started: float, ended: float, tasks: int | None = None) -> None:
        """Add what lay between two times. A time before the step's own start is of another clock, and is left out."""
        if self._started <= started <= ended:
            start, seconds = round(started - self._started, 3), round(ended - started, 3)
            self._spans.append(Span(name=name, start=start, seconds=seconds, tasks=tasks))

    def split_off(self, name: str, of: str, before: str) -> None:
        """Add what lay between the start of each span ``of`` and the first span ``before`` that began within it."""
        for one in [span for span in self._spans if span.name == of]:
            inner = [span.start for span in self._spans if span.name == before]
            first = min((at for at in inner if one.start <= at <= one.start + one.seconds), default=one.start)
            if first > one.start:
                self._spans.append(Span(name=name, start=one.start, seconds=round(first - one.start, 3)))

    def times(self) -> StepTimes:
        """What was measured until now."""
        seconds = round(max(0.0, self.now() - self._started), 3)
        spans = tuple(sorted(self._spans, key=lambda one: (one.start, -one.seconds)))
        return StepTimes(step=self._step, started=round(self._started, 3), seconds=seconds, spans=spans, bill=self.bill)


_CURRENT: ContextVar[StepClock | None] = ContextVar("skewless_step_clock", default=None)


@contextmanager
def timed_step(run: RunDirectory, step: str, now: Clock, started: float | None = None) -> Iterator[StepClock]:
    """Measure a step (``StepTimes``), and write its times once it has ended well, unless that was done before.

    A try that failed, or that another one was faster than, has used the cluster as well: its times are written apart.
    """
    clock, before, well = StepClock(step, now, started), len(run.begun), False
    token = _CURRENT.set(clock)
    try:
        yield clock
        well = True
    finally:
        _CURRENT.reset(token)
        # Times are for people: a step that has ended well does not fail for them.
        with suppress(SkewlessError, OSError, ValueError):
            if clock.bill is not None:
                clock.bill = clock.bill.model_copy(update={"attempts": tuple(run.begun[before:])})
            times = clock.times()
            if not (well and run.write_once(_document(step), times)) and times.bill is not None and times.bill.tasks:
                run.write_once(_document(f"{AGAIN}/{step} {secrets.token_hex(8)}"), times)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Measure a part of the step that this thread is at; nothing is done outside a step."""
    clock = _CURRENT.get()
    if clock is None:
        yield
        return
    started = clock.now()
    try:
        yield
    finally:
        clock.add(name, started, clock.now())


def current_clock() -> StepClock | None:
    """The clock of the step that this thread is at."""
    return _CURRENT.get()


def work_seconds(times: Iterable[StepTimes]) -> float | None:
    """Seconds of all steps together, each from its begin to its end; None if none were written."""
    seconds = [one.seconds for one in times]
    return round(sum(seconds), 3) if seconds else None


def times_of_step(run: RunDirectory, step: str) -> StepTimes | None:
    """The times of one step; None if none were written, or they cannot be read."""
    with suppress(SkewlessError):
        return run.read(_document(step), StepTimes) if run.exists(_document(step)) else None
    return None


def times_of(
    run: RunDirectory, read: Callable[[RunDirectory, str], StepTimes | None] = times_of_step
) -> list[StepTimes]:
    """The times of a run's steps, as far as they were written, by their start; ``read`` reads those of one."""
    stages = run.committed_stages()
    numbered = [name for stage in range(stages + 1) for name in (f"stage {stage}", f"decision {stage + 1}")]
    last = (PUBLISH.name, COMPARE.name)
    found = (read(run, step) for step in ("prepare", *numbered, "merge", "validate", *last))
    return sorted((times for times in found if times is not None), key=lambda one: one.started)


@dataclass(frozen=True)
class TimeLine:
    """A line of the waterfall of a run: a step, a part of it, or what lay between two steps."""

    name: str
    depth: int
    """0 for a step and for what lay between steps; of a part, the number of parts that it lies in, and one."""
    start: float | None
    """Seconds after the run's first step began; None for what has no place of its own."""
    seconds: float
    tasks: int | None = None
    """Of a Spark job, its tasks."""


def waterfall(steps: Sequence[StepTimes]) -> list[TimeLine]:
    """The steps in their order, each with its parts and what is in none of them, and what lay between two steps."""
    lines: list[TimeLine] = []
    begun = until = steps[0].started if steps else 0.0
    for step in steps:
        if step.started - until >= _LEAST_SECONDS:
            lines.append(TimeLine("between two steps", 0, until - begun, step.started - until))
        lines.append(TimeLine(step.step, 0, step.started - begun, step.seconds))
        for number, span in enumerate(step.spans):
            end = span.start + span.seconds - _LEAST_SECONDS
            depth = 1 + sum(one.start <= span.start and end <= one.start + one.seconds for one in step.spans[:number])
            lines.append(TimeLine(span.name, depth, step.started - begun + span.start, span.seconds, span.tasks))
        if step.spans:
            lines.append(TimeLine("in none of these", 1, None, step.unmeasured))
        until = max(until, step.ended)
    return lines


def _document(step: str) -> str:
    return f"{TIMES}/{step.replace(' ', '-')}.json"


#: What steps of Spark are called in their times, and in the run directory.
_PLACES = {"merge": RESULT_STEP, "validate": QUALITY_STEP, COMPARE.name: COMPARISON_STEP}


class Night(NamedTuple):
    """A run with its bill."""

    job: str
    """The name of the folder of its job's runs."""
    run: str
    date: str
    bill: RunBill
    savings: Savings | None


def bill_of(run: RunDirectory) -> RunBill:
    """The bill of a run so far.

    Of several tries of a step, that one counts whose attempt has committed; all others are lost. Clusters that share a
    stage each have a bill, which counts if they ended well.
    """
    counted, lost, known = list[tuple[str, StepBill]](), list[tuple[str, StepBill]](), set[str]()
    for times, again in sorted(_tries(run), key=lambda entry: entry[0].started):
        if times.bill is None:
            continue
        known.update(times.bill.attempts)
        counts = not again if " on " in times.step else _is_committed(run, times.step, times.bill)
        (counted if counts else lost).append((times.step, times.bill))
    stages = run.committed_stages()
    places = [*map(stage_step, range(stages + 1)), *_PLACES.values()]
    attempts = (folder for place in places for folder in folders_in(run.fs, f"{run.root}/{place}/attempts"))
    begun = {folder.rpartition("/")[2] for folder in attempts}
    return RunBill(tuple(counted), tuple(lost), len(begun - known))


def nights(runs_folder: str, job: str | None = None, since: dt.date | None = None) -> Iterator[Night]:
    """The runs below a folder of runs that have a bill, job by job, each by its folder."""
    fs, folders = folders_of_jobs(runs_folder)
    for folder in folders:
        name = folder.rpartition("/")[2]
        for place in folders_in(fs, folder) if job in {None, name} else ():
            with suppress(SkewlessError, OSError, LookupError):
                run = RunDirectory(as_written(fs, runs_folder, place))
                date = str(run.fields("job.json", Job)["date"])
                if since is None or date >= since.isoformat():
                    bill = bill_of(run)
                    if bill.steps or bill.lost:
                        yield Night(name, place.rpartition("/")[2], date, bill, run.savings())


def _tries(run: RunDirectory) -> Iterator[tuple[StepTimes, bool]]:
    for folder in (TIMES, f"{TIMES}/{AGAIN}"):
        with suppress(OSError):
            for path in sorted(map(str, run.fs.ls(f"{run.root}/{folder}", detail=False))):
                if path.endswith(".json"):
                    with suppress(SkewlessError):
                        yield run.read(f"{folder}/{path.rpartition('/')[2]}", StepTimes), folder != TIMES


def _is_committed(run: RunDirectory, step: str, bill: StepBill) -> bool:
    number = step.removeprefix("stage ")
    commit = run.commit_of(stage_step(int(number)) if number.isdecimal() else _PLACES.get(step, step))
    return commit is not None and commit.attempt in bill.attempts


def run_facts(run: RunDirectory) -> dict[str, JsonValue]:
    """Quality verdict, balance and stages of a validated run, as JSON values.

    ``balance.max_over_mean`` is the sum of the stages' makespans over the fair share of all rows,
    1 at best; ``balance.gap`` is the distance from the bound, relative to it. Both are null where
    ``balance.conclusion`` says that nothing was measured.
    """
    job, reports, quality = run.job(), run.reports(), run.quality()
    whole, result = run_certificate(job, reports), run.commit_of(RESULT_STEP)
    ledger = balance(
        job,
        reports,
        result.count("rows") if result else 0,
        run.part_lines(),
        result.counts.get("hash") if result else None,
    )
    checks, table = quality.checks if quality else (), job.source.pinned
    return {
        "date": job.date.isoformat(),
        **({"hour": job.hour} if job.hour else {}),
        **({"input_table": table.name, "input_snapshot": table.snapshot} if table else {}),
        "policy": job.spec.routing.policy.name,
        "stages": len(reports),
        "forwarded_rows": sum(report.forwarded_rows for report in reports),
        "quality": {
            "passed": bool(quality and quality.success),
            "verdict": quality.verdict.sentence if quality else "none yet",
            "expectations": len(checks),
            "failed": sum(one.fails for one in checks),
            "warnings": [*quality.warnings(len(job.spec.quality.expectations), values=False)] if quality else [],
            "quarantined_keys": quality.quarantined_keys if quality else 0,
            "ledger_balanced": ledger.balanced,
        },
        "balance": {
            "max_over_mean": whole.over_fair and round(whole.over_fair, 4),
            "gap": whole.gap and round(whole.gap, 4),
            "conclusion": whole.conclusion,
        },
    }
