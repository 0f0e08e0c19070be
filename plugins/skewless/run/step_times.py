"""Times of the steps of a run, in ``times/`` of its directory: written as far as possible, never part of a commit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from skewless.documents.step_documents import Span, StepBill, StepTimes
from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.run.step_names import COMPARE, PUBLISH

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
    """A line of the waterfall of a run: a step, a part of it, or what lay between two steps.

    Attributes:
        depth: 0 for a step and for what lay between steps; of a part, the number of parts that it lies in, and one.
        start: seconds after the run's first step began; None for what has no place of its own.
        tasks: of a Spark job, its tasks.
    """

    name: str
    depth: int
    start: float | None
    seconds: float
    tasks: int | None = None


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
