"""What the steps of a run took and cost, and what the run would have come to under other policies."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

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
    """What a step held and used of a cluster, by Spark's own record. Seconds are core-seconds."""

    attempts: tuple[Annotated[str, Field(max_length=100)], ...]
    """Which attempts at the step it pays for: what they wrote counts if one of them is the committed one."""
    cores: Count
    tasks: Count
    held_seconds: Seconds
    """That cores were there for, from the begin of the step, or since they were added, to its end."""
    used_seconds: Seconds
    """That tasks took of them, also those that failed: run time, and the time to unpack them."""
    skew_seconds: Seconds
    """That cores had no task left while others of the same Spark stage still ran."""
    shuffle_bytes: Count
    spilled_bytes: Count
    """That tasks wrote to disks as they had no memory left."""

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
    """What a step took, as it measured itself; of several attempts, the first that ended well."""

    step: str = Field(max_length=100)
    """``prepare``, ``stage 0``, ``decision 1``, ``merge``, ``validate``, ``publish`` or ``compare``."""
    started: Seconds
    """When it began, or, if it began with its process, when that was started; seconds since 1970 by the clock of its
    machine."""
    seconds: Seconds
    spans: tuple[Span, ...] = ()
    """Its parts, by their start. They do not add up to ``seconds``: what nobody measured is in none of them."""
    bill: StepBill | None = None
    """What it took of the cluster; of a step of Spark, where Spark has told it."""

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
    """

    exit_code: int = Field(ge=1, le=255)
    """What the entry ends with: 2 bad spec or input, 3 data quality failed, 1 anything else."""
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


PLAIN = "static"


#: What the recorded run is called beside policies.
AS_IT_RAN = "as it ran"
#: What is said beside the figures of replays.
ERROR_WORDS = "± is the worst error that was measured, for keys that come late or sorted, beside runs of every row."


class Replayed(Document):
    """What a run came to under one policy: the document ``replays/POLICY.json`` of it."""

    policy: str
    """Its name, or ``as it ran``."""
    makespan_over_bound: float | None
    """The sum of the stages' makespans in rows, over the best there could be (``skewless.bounds``); at least 1. None,
    as the next three, of a run as it ran if nobody counted the rows of its tasks."""
    error: float
    """By which part of itself ``makespan_over_bound`` may be too low or too high, by the worst that was measured on
    runs like this; 0 where it is exact."""
    seconds: float | None = Field(default=None, ge=0)
    """Of the longest tasks together, by what rows took; None where that is not known to a tenth."""
    s: float | None
    """``(Wmax - U) / (M - U)`` of the DPA load balancer (section 6.1.1, formula 2), with M rows, ``U = ceil(M / R)``
    for the R reducers of the spec, and Wmax the most rows of one task. 0 is even, 1 is all on one task; below 0 where
    reducers were added."""
    imbalance_final: float | None
    """``(max - mean) / M`` of the rows of each task over the run (Partial Key Grouping, section 2)."""
    imbalance_fraction: float | None
    """The mean of ``(max - mean) / M`` of the rows of each task up to the end of a stage, the stages weighted by their
    rows (section 6.2 there)."""
    rows_forwarded: int
    states: int | None
    """Distinct pairs of known item and task: a slot's light keys count as one. None of a run as it ran if some of it
    was combined where it was read: nobody knows which key was in which input split."""
    stages: int
    decisions: tuple[str, ...]


class Savings(Document):
    """A run beside the same run under plain hashing. What is not known is None."""

    sentence: str = Field(max_length=2_000)
    """What was saved, or why that is not known."""
    policy: str = Field(max_length=100)
    over_bound: float | None = None
    """The makespans of the stages together, over the best there could be; at least 1."""
    against_over_bound: float | None = None
    """The same under plain hashing, by a replay."""
    seconds: float | None = Field(default=None, ge=0)
    """What the longest tasks of the stages took together, where each task measured its time."""
    against_seconds: float | None = Field(default=None, ge=0)
    """The same under plain hashing, where that is known to a tenth."""

    @property
    def seconds_saved(self) -> float | None:
        """By how much the longest tasks were shorter than plain hashing would have made them; below 0 if longer."""
        if self.seconds is None or self.against_seconds is None:
            return None
        return self.against_seconds - self.seconds

    @classmethod
    def unknown(cls, policy: str, reason: str) -> Self:
        """The savings of a run of which they are not known."""
        return cls(sentence=f"What routing has saved is not known: {reason}"[:1_900] + ".", policy=policy)


class Amounts(NamedTuple):
    """Sums of bills. Seconds are core-seconds; ``held`` is the sum of ``used``, ``idle`` and ``skew``."""

    held: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    skew: float = 0.0
    shuffle_bytes: int = 0
    spilled_bytes: int = 0

    @classmethod
    def of(cls, bills: Iterable[StepBill]) -> Self:
        """The sum of some bills."""
        return cls.total(
            cls(
                one.used_seconds + one.idle_seconds + one.skew_seconds, one.used_seconds, one.idle_seconds,
                one.skew_seconds, one.shuffle_bytes, one.spilled_bytes,
            )
            for one in bills
        )  # fmt: skip

    @classmethod
    def total(cls, amounts: Iterable["Amounts"]) -> Self:
        """The sum of some amounts."""
        return cls(*map(sum, zip(cls(), *amounts, strict=True)))


@dataclass(frozen=True)
class RunBill:
    """The bill of a run."""

    steps: tuple[tuple[str, StepBill], ...]
    """Of each step of Spark what its committed attempt has cost; of a shared stage, what each cluster has."""
    lost: tuple[tuple[str, StepBill], ...]
    """What tries have cost whose work does not count."""
    unknown: int
    """Tries that left no bill: their driver was killed, or Spark did not tell."""

    @property
    def counted(self) -> Amounts:
        """The sum of the steps."""
        return Amounts.of(bill for _, bill in self.steps)

    @property
    def lost_seconds(self) -> float:
        """Core-seconds of lost tries."""
        return Amounts.of(bill for _, bill in self.lost).held
