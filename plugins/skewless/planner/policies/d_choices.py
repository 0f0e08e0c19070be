"""``d_choices``: the few heavy keys get as many choices (tasks that may get their rows) as they need, all others two.

Nasir et al., "When two choices are not enough" (ICDE 2016): with many tasks a key can be heavier
than two tasks' fair shares, and then Partial Key Grouping cannot balance it. The number d is the
least that lets no part of the head overload its tasks, since each choice may cost a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.greedy_d import enough_choices, heavy, placement_in_words, pour_over_choices
from skewless.planner.placement.placement import Rows
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Head keys over d choices each, other named keys over two, afresh."""
    words = "place {:,} heavy keys, {} choices each, and {:,} others, two each"
    return over_choices(job, forecast, "d choices", enough_choices, words)


def over_choices(
    job: Job, forecast: Forecast, action: str, choices: Callable[[Rows, int], int], words: str
) -> Sequence[Proposal]:
    """Head keys over as many choices each as ``choices`` says, other named keys over two, afresh.

    ``choices`` is asked with the shares of the head keys, descending, and the number of tasks; ``words`` say what is
    done, with the numbers of head keys, choices and other keys.
    """
    keys, loads, tail = forecast.keys, forecast.head_loads, forecast.tail_rows(forecast.plan)
    tasks, total = len(tail), float(tail.sum() + loads.sum())
    if tasks == 1 or not keys or not total:
        return ()
    shares = loads / total
    head = heavy(shares, tasks)
    wanted = choices(-np.sort(-shares[head]), tasks)
    placement = pour_over_choices(keys, loads, tail, np.where(head, wanted, 2), splittable=job.splittable)
    told = words.format(int(head.sum()), wanted, int((~head).sum()))
    return (Proposal(action, f"{told}: {placement_in_words(placement, keys)}", placement),)
