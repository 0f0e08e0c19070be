"""One file per policy: each proposes plans for a forecast; the planner chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from skewless.forecast import Forecast
from skewless.job import Job
from skewless.policies import adaptive, static
from skewless.policies.proposal import Proposal


class Policy(NamedTuple):
    """What the planner asks of a policy.

    Attributes:
        propose: plans beside standing still, each with the sentence that says what it does.
        replans: whether it ever changes a plan; if not, a budget would only delay rows.
    """

    propose: Callable[[Job, Forecast], Sequence[Proposal]]
    replans: bool


POLICIES: dict[str, Policy] = {
    "static": Policy(static.propose, replans=False),
    "adaptive": Policy(adaptive.propose, replans=True),
}
