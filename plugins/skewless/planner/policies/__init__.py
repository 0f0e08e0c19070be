"""The policies: each proposes plans for a forecast; the planner chooses."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import enough_choices
from skewless.planner.placement.placement import Proposal
from skewless.planner.policies import adaptive, bounded_load, choices, token_counts, virtual_tasks


class Policy(NamedTuple):
    """What the planner asks of a policy."""

    propose: Callable[[Job, Forecast], Sequence[Proposal]]
    """Plans beside standing still, each with the sentence that says what it does."""
    replans: bool = True
    """Whether it ever changes a plan; if not, a budget would only delay rows."""
    schedules: bool = False
    """Whether it chooses waves and budgets itself, where the spec does not."""
    places: bool = True
    """Whether it places single keys, anew in each stage. If not, what it changes lasts to the end of the run, and what
    a budget leaves over stays where it is."""
    splits: bool = True
    """Whether it splits keys that may be split."""


POLICIES: dict[str, Policy] = {
    # The ring as it was at the start, as of a hash partitioner: the measure that the others are held to.
    "static": Policy(lambda _, __: (), replans=False, places=False),
    "halving": Policy(token_counts.propose_halving, places=False),
    "doubling": Policy(token_counts.propose_doubling, places=False),
    "virtual_tasks": Policy(virtual_tasks.propose, places=False),
    "partial_key": Policy(choices.propose_two_choices),
    "d_choices": Policy(partial(choices.propose_head_choices, "d choices", enough_choices)),
    "w_choices": Policy(partial(choices.propose_head_choices, "w choices", lambda _, tasks: tasks)),
    "bounded_load": Policy(bounded_load.propose, splits=False),
    "adaptive": Policy(adaptive.propose, schedules=True),
}
