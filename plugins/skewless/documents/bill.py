"""What a run has cost, what it would have come to under other policies, and what its own has saved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from pydantic import Field

from skewless.document import Document
from skewless.documents.step_documents import StepBill

#: The policy that is plain hashing.
PLAIN = "static"


#: What the recorded run is called beside policies.
AS_IT_RAN = "as it ran"
#: What is said beside the figures of replays.
ERROR_WORDS = (
    "± is the worst error that was measured, against simulations that play every row, for keys that come late or "
    "sorted. For keys in random order it was at most 5 %."
)


class Replayed(Document):
    """What a run came to under one policy: the document ``replays/POLICY.json`` of it.

    Attributes:
        policy: its name, or ``as it ran``.
        makespan_over_bound: the sum of the stages' makespans in rows, over the best there could be
            (``skewless.run.summary``); at least 1. None, as the next three, of a run as it ran
            if nobody counted the rows of its tasks.
        error: by which part of itself ``makespan_over_bound`` may be too low or too high, by the worst that
            was measured on runs like this; 0 where it is exact.
        s: ``(Wmax - U) / (M - U)`` of the DPA load balancer (section 6.1.1, formula 2), with M rows,
            ``U = ceil(M / R)`` for the R reducers of the spec, and Wmax the most rows of one task. 0 is
            even, 1 is all on one task; below 0 where reducers were added.
        imbalance_final: ``(max - mean) / M`` of the rows of each task over the run (Partial Key Grouping, section 2).
        imbalance_fraction: the mean of ``(max - mean) / M`` of the rows of each task up to the end
            of a stage, the stages weighted by their rows (section 6.2 there).
        states: distinct pairs of known item and task: a slot's light keys count as one. None of a run as it ran
            if some of it was combined where it was read: nobody knows which key was in which input split.
    """

    policy: str
    makespan_over_bound: float | None
    error: float
    s: float | None
    imbalance_final: float | None
    imbalance_fraction: float | None
    rows_forwarded: int
    states: int | None
    stages: int
    decisions: tuple[str, ...]


class Savings(Document):
    """A run beside the same run under plain hashing. What is not known is None.

    Attributes:
        sentence: what was saved, or why that is not known.
        over_bound: the makespans of the stages together, over the best there could be; at least 1.
        against_over_bound: the same under plain hashing, by a replay.
        seconds: what the longest tasks of the stages took together, where each task measured its time.
        against_seconds: the same under plain hashing, where that is known to a tenth.
    """

    sentence: str = Field(max_length=2_000)
    policy: str = Field(max_length=100)
    over_bound: float | None = None
    against_over_bound: float | None = None
    seconds: float | None = Field(default=None, ge=0)
    against_seconds: float | None = Field(default=None, ge=0)

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
    def total(cls, amounts: Iterable[Amounts]) -> Self:
        """The sum of some amounts."""
        return cls(*map(sum, zip(cls(), *amounts, strict=True)))


@dataclass(frozen=True)
class RunBill:
    """The bill of a run.

    Attributes:
        steps: of each step of Spark what its committed attempt has cost; of a shared stage, what each cluster has.
        lost: what tries have cost whose work does not count.
        unknown: tries that left no bill: their driver was killed, or Spark did not tell.
    """

    steps: tuple[tuple[str, StepBill], ...]
    lost: tuple[tuple[str, StepBill], ...]
    unknown: int

    @property
    def counted(self) -> Amounts:
        """The sum of the steps."""
        return Amounts.of(bill for _, bill in self.steps)

    @property
    def lost_seconds(self) -> float:
        """Core-seconds of lost tries."""
        return Amounts.of(bill for _, bill in self.lost).held

    @property
    def held(self) -> float:
        """Core-seconds of all tries: what is paid for."""
        return self.counted.held + self.lost_seconds
