"""Where the time of a step went. These documents are for people: nothing is decided from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from skewless.document import Count, Document, Frozen

Seconds = Annotated[float, Field(ge=0)]


class Span(Frozen):
    """A part of a step.

    Attributes:
        name: what was done.
        start: seconds after the step's start.
        seconds: how long it took.
        tasks: of a Spark job, the tasks that ended well.
    """

    name: str
    start: Seconds
    seconds: Seconds
    tasks: Count | None = None


class StepTimes(Document):
    """What a step took, as it measured itself; of several attempts, the first that ended well.

    Attributes:
        step: ``prepare``, ``stage 0``, ``decision 1``, ``merge``, ``validate`` or ``publish``.
        started: when it began, or, if it began with its process, when that was started; seconds since 1970 by the
            clock of its machine.
        seconds: from there to its end.
        spans: its parts, by their start. They do not add up to ``seconds``: what nobody measured is in none of them.
    """

    step: str = Field(max_length=100)
    started: Seconds
    seconds: Seconds
    spans: tuple[Span, ...] = ()

    @property
    def ended(self) -> float:
        """When it ended, seconds since 1970."""
        return self.started + self.seconds

    @property
    def unmeasured(self) -> float:
        """Seconds of the step that are in no span; spans may overlap."""
        covered, until = 0.0, 0.0
        for span in sorted(self.spans, key=lambda one: one.start):
            end = min(self.seconds, span.start + span.seconds)
            covered += max(0.0, end - max(until, span.start))
            until = max(until, end)
        return max(0.0, self.seconds - covered)
