"""The lines of the balance table, and the published figures that stand beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.outcome import Outcome
from benchmarks.staged import UNITS

#: What a stage costs, as a part of T*, where stages cost anything.
OVERHEAD = 0.1


@dataclass(frozen=True)
class Cell:
    """A stream and a number of tasks."""

    #: Name of the stream.
    workload: str
    #: Number W of parallel tasks.
    tasks: int
    #: Skew z of a Zipf stream that does not drift.
    exponent: float | None = None
    #: Whether waves are the next part of the stream, and no sample of it.
    in_order: bool = False
    #: Source partitions that the waves are made of.
    units: int = UNITS

    @property
    def words(self) -> str:
        """The cell, named."""
        return f"{self.workload}, W={self.tasks}"


@dataclass(frozen=True)
class Line:
    """What one scheme achieved in one cell."""

    cell: Cell
    #: Name of the scheme: that of its policy, and what is special about it.
    scheme: str
    #: Whether it runs in stages; if not, it is a peer that routes message by message.
    staged: bool
    #: What a stage costs, as a part of T*.
    overhead: float
    outcome: Outcome

    @property
    def forwarded(self) -> float:
        """Rows forwarded, as a part of all messages."""
        return self.outcome.rows_forwarded / self.outcome.messages

    @property
    def elapsed_over_ideal(self) -> float:
        """Makespan and the price of all stages, over T*."""
        return self.outcome.makespan_over_ideal + self.overhead * self.outcome.stages

    def as_dict(self) -> dict[str, Any]:
        """The line as one flat JSON object."""
        cell = {"workload": self.cell.workload, "scheme": self.scheme, "overhead": self.overhead}
        return {**cell, **self.outcome.as_dict()}


@dataclass(frozen=True)
class Published:
    """A figure of a paper, for one scheme in one cell."""

    workload: str
    tasks: int
    scheme: str
    #: Field of ``Outcome``.
    measure: str
    value: float


#: K = 100 k, 1 M messages, five sources (Nasir et al., "When Two Choices Are not Enough", ICDE 2016).
PUBLISHED = tuple(
    Published(workload, tasks, scheme, measure, value)
    for workload, tasks, values in (
        ("Zipf z=1.2", 50, (1.8e-1, 7.9e-2, 1.3e-4, 2e-6, 1.30, 3.8)),
        ("Zipf z=2.0", 100, (6.0e-1, 2.9e-1, 8e-5, 1e-6, 2.69, 10.3)),
    )
    for (scheme, measure), value in zip(
        (
            ("hashing", "imbalance_final"),
            ("pkg", "imbalance_final"),
            ("d_choices_stream", "imbalance_final"),
            ("w_choices_stream", "imbalance_final"),
            ("w_choices_stream", "states_per_key"),
            ("shuffle", "states_per_key"),
        ),
        values,
        strict=True,
    )
)
