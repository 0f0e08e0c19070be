"""What a run has cost, and what it would have cost under plain hashing: arithmetic on what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from skewless.documents.savings import Savings
from skewless.documents.steps import StepBill

#: The policy that is plain hashing.
PLAIN = "static"
#: A replay that is off by as much as itself says nothing.
_WORST_ERROR = 1.0


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


class OtherBill(NamedTuple):
    """What a run would have held under another routing, in core-seconds, and by which part that may be off."""

    held: float
    error: float


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

    def replayed(self, savings: Savings | None) -> tuple[OtherBill | None, OtherBill | None]:
        """The bill under plain hashing, and at best with one task for each key; None where that is not known.

        Rows cost what tasks measured that they took, which is not what a task costs by itself. The error is the
        replay's own, and by how much the run's own plans, replayed in the same way, miss what was measured.
        """
        own = OtherBill(self.held, 0.0) if savings is not None and savings.policy == PLAIN else None
        reduces = [bill for name, bill in self.steps if name.startswith("stage")]
        used = sum(one.reduce_used_seconds for one in reduces)
        if savings is None or savings.over_bound is None or not (savings.seconds and used):
            return own, None
        # Core-seconds of all slots while a longest task of as many rows as the bound is waited for.
        per_bound = savings.seconds / savings.over_bound * (savings.slots or 1)
        measured = used + sum(one.reduce_skew_seconds for one in reduces)
        missed = abs(savings.over_bound * per_bound - measured)

        def other(over_bound: float | None, error: float) -> OtherBill | None:
            if over_bound is None:
                return None
            held = self.held + (over_bound - (savings.over_bound or 1.0)) * per_bound
            if held <= 0:  # the replay predicts more waiting than there can have been
                return None
            off = (error * over_bound * per_bound + missed) / held
            return OtherBill(held, off) if off < _WORST_ERROR else None

        plain = other(savings.against_over_bound, savings.against_error or 0.0) if savings.against == PLAIN else None
        return own or plain, other(savings.whole_keys_over_bound, 0.0)
