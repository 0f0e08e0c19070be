"""Where the time of a step went, and why one failed. They are for people: nothing is decided from them."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from skewless.document import Count, Document, Frozen, unmet

Seconds = Annotated[float, Field(ge=0)]
#: Spark tells times in milliseconds, of each task and of each core.
_ROUNDING_SECONDS = 0.002


class Span(Frozen):
    """A part of a step, which began so many seconds after it. A Spark job has as many tasks as ended well."""

    name: str
    start: Seconds
    seconds: Seconds
    tasks: Count | None = None


class StepBill(Frozen):
    """What a step held and used of a cluster, by Spark's own record. Seconds are core-seconds.

    Attributes:
        attempts: which attempts at the step it pays for: what they wrote counts if one of them is the committed one.
        held_seconds: that cores were there for, from the begin of the step, or since they were added, to its end.
        used_seconds: that tasks took of them, also those that failed: run time, and the time to unpack them.
        skew_seconds: that cores had no task left while others of the same Spark stage still ran.
        spilled_bytes: that tasks wrote to disks as they had no memory left.
    """

    attempts: tuple[Annotated[str, Field(max_length=100)], ...]
    cores: Count
    tasks: Count
    held_seconds: Seconds
    used_seconds: Seconds
    skew_seconds: Seconds
    shuffle_bytes: Count
    spilled_bytes: Count

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        busy = self.used_seconds + self.skew_seconds
        if busy > self.held_seconds + _ROUNDING_SECONDS * (self.tasks + self.cores):
            raise unmet(f"at most the {self.held_seconds:g} core-seconds that were held", f"{busy:g} of use and skew")
        return self

    @property
    def idle_seconds(self) -> float:
        """Core-seconds for which no task ran and none was waited for."""
        return max(0.0, self.held_seconds - self.used_seconds - self.skew_seconds)


class StepTimes(Document):
    """What a step took, as it measured itself; of several attempts, the first that ended well.

    Attributes:
        step: ``prepare``, ``stage 0``, ``decision 1``, ``merge``, ``validate``, ``publish`` or ``compare``.
        started: when it began, or, if it began with its process, when that was started; seconds since 1970 by the
            clock of its machine.
        spans: its parts, by their start. They do not add up to ``seconds``: what nobody measured is in none of them.
        bill: what it took of the cluster; of a step of Spark, where Spark has told it.
    """

    step: str = Field(max_length=100)
    started: Seconds
    seconds: Seconds
    spans: tuple[Span, ...] = ()
    bill: StepBill | None = None

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


_TRY = re.compile(r"(.+)-(\d{1,9})-[0-9a-f]+")


class Failure(Document):
    """Why a Spark entry ended with an error, in one sentence.

    spark-submit gives an exit code and some hundred lines of log. The task and the pages show the sentence, which the
    entry leaves in this document. If there is no document, the driver was killed.

    Attributes:
        exit_code: what the entry ends with: 2 bad spec or input, 3 data quality failed, 1 anything else.
    """

    exit_code: int = Field(ge=1, le=255)
    sentence: str


def failure_document(name: str) -> str:
    """Where the failure of a try is written, below the run directory; each try has a name of its own."""
    return f"failures/{name}.json"


def failed_step(path: str) -> tuple[str, int]:
    """Which step failed, without the groups around it, and in which try; 0 where the name does not say.

    >>> failed_step("failures/nightly.stage_01.run-2-0a1b2c3d.json")
    ('stage_01.run', 2)
    """
    name = path.rpartition("/")[2].removesuffix(".json")
    found = _TRY.fullmatch(name)
    return (own_name(found[1]), int(found[2])) if found else (name, 0)


def own_name(task: str) -> str:
    """A task's name without the groups around ours.

    >>> own_name("nightly.stage_01.plan"), own_name("nightly.merge")
    ('stage_01.plan', 'merge')
    """
    parts = task.split(".")
    return ".".join(parts[-2:]) if len(parts) > 1 and parts[-2].startswith("stage_") else parts[-1]
