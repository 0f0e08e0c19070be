"""What one policy achieved on one stream, and the imbalance it is judged by."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Outcome:
    """The figures of one policy on one stream; the field names are those of the JSON results.

    Balance is counted in messages: every message costs the same.
    """

    #: Name of the policy.
    policy: str
    #: Number W of parallel tasks.
    tasks: int
    #: Number m of messages in the stream.
    messages: int
    #: Sum over the stages of the largest task's load, over the ideal m/W; at least 1.
    makespan_over_ideal: float
    #: Average over time of I(t), over m (Partial Key Grouping, section 6.2, "fraction of average imbalance").
    imbalance_fraction: float
    #: I(m) / m, the imbalance when all messages are placed, over their number.
    imbalance_final: float
    #: Distinct (key, task) pairs over distinct keys; at least 1, at most W.
    states_per_key: float
    #: Messages that a task passed on to another one.
    rows_forwarded: int
    #: Passes over the data between which the placement is decided anew; 1 for a policy that decides by message.
    stages: int

    def as_dict(self) -> dict[str, str | int | float]:
        """The outcome as one flat JSON object."""
        return asdict(self)


def imbalance(loads: npt.NDArray[np.int64]) -> float:
    """The imbalance I(t) = max_i L_i(t) - avg_i L_i(t) in messages (Partial Key Grouping, section 2)."""
    return float(loads.max() - loads.mean())


def makespan_over_ideal(loads: npt.NDArray[np.int64]) -> float:
    """The largest load over the average load, for a policy of one pass; at least 1."""
    return float(loads.max() / loads.mean())
