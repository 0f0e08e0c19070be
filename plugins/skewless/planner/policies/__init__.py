"""One file per policy: each proposes plans for a forecast; the planner chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.policies import (
    adaptive,
    bounded_load,
    d_choices,
    doubling,
    halving,
    partial_key,
    static,
    virtual_tasks,
    w_choices,
)
from skewless.planner.policies.proposal import Proposal


class Policy(NamedTuple):
    """What the planner asks of a policy.

    Attributes:
        propose: plans beside standing still, each with the sentence that says what it does.
        replans: whether it ever changes a plan; if not, a budget would only delay rows.
        schedules: whether it chooses waves and budgets itself, where the spec does not.
        places: whether it places single keys, anew in each stage. If not, what it changes lasts to the end of the
            run, and what a budget leaves over stays where it is.
        splits: whether it splits keys that may be split.
    """

    propose: Callable[[Job, Forecast], Sequence[Proposal]]
    replans: bool = True
    schedules: bool = False
    places: bool = True
    splits: bool = True


POLICIES: dict[str, Policy] = {
    "static": Policy(static.propose, replans=False, places=False),
    "halving": Policy(halving.propose, places=False),
    "doubling": Policy(doubling.propose, places=False),
    "virtual_tasks": Policy(virtual_tasks.propose, places=False),
    "partial_key": Policy(partial_key.propose),
    "d_choices": Policy(d_choices.propose),
    "w_choices": Policy(w_choices.propose),
    "bounded_load": Policy(bounded_load.propose, splits=False),
    "adaptive": Policy(adaptive.propose, schedules=True),
}
