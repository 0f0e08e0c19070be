"""A trial: one fault at one place of one step, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.faults.harness import Outcome


class Trial(NamedTuple):
    """One fault, repeatable: everything that is left to chance follows from the seed.

    Attributes:
        kind: what sort of fault, a word.
        step: the name of the step that it happens to.
        fault: in words, without what is random: trials alike in these three count as one fault.
        seed: of its random numbers.
        act: does it, given the harness of its half and the seed, and checks what must hold.
        spark: whether it needs Spark.
    """

    kind: str
    step: str
    fault: str
    seed: int
    act: Callable[[Any, int], Outcome]
    spark: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.step}: {self.fault}: {self.seed}"
