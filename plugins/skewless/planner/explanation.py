"""What a decision says of itself: its candidates, its certificate and its sentence."""

from __future__ import annotations

import numpy as np

from skewless.bounds import certify
from skewless.documents.decision import Candidate, Certificate
from skewless.documents.job import Job
from skewless.planner.budget import Budget
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.priced_plan import PricedPlan
from skewless.planner.schedule import Admission


def certificate_of(job: Job, forecast: Forecast, taken: PricedPlan) -> Certificate:
    """How near the taken plan is predicted to come to the bound of the next stage.

    As in the certificate of a run, the bound takes all tasks that run side by side to be busy all the time.
    """
    keys = forecast.head_loads
    heaviest = int(np.argmax(keys)) if len(keys) else None
    speeds = forecast.speeds_under(taken.routing)
    if speeds is not None and len(speeds) > forecast.parallelism:
        # Nobody knows which executor core a task will get, so no key can be held to the speed of one.
        return certify(
            float(taken.loads.sum()), forecast.parallelism, taken.makespan_rows, heaviest=None, splittable=True,
            predicted=True,
        )  # fmt: skip
    total = taken.loads if speeds is None else taken.loads * speeds
    if speeds is not None:
        # A core that has had no task is taken to be as fast as the median one.
        speeds = np.append(speeds, np.ones(forecast.parallelism - len(speeds)))
    return certify(
        total=max(float(total.sum()), float(keys.sum())),
        tasks=forecast.parallelism,
        makespan=taken.makespan_rows,
        heaviest=None if heaviest is None else (forecast.keys[heaviest], float(keys[heaviest])),
        splittable=job.splittable,
        weights=keys,
        speeds=speeds,
        states=taken.placement.states,
        predicted=True,
    )


def candidate_of(one: PricedPlan, still: PricedPlan, chosen: bool) -> Candidate:
    """A proposed plan as the decision lists it, with the reason why it was taken or refused."""
    against = one.makespan_rows / still.makespan_rows - 1.0 if still.makespan_rows else 0.0
    if one.proposal.refusal:
        words = f"{one.sentence}: refused, {one.proposal.refusal}"
    elif one is still:
        words = f"{one.sentence}: the largest task gets {one.makespan_rows:,.0f} rows; {_verdict(one, still, chosen)}"
    else:
        words = (
            f"{one.sentence}: the largest task gets {one.makespan_rows:,.0f} rows "
            f"({against:+.1%} against standing still); {_verdict(one, still, chosen)}"
        )
    return Candidate(
        action=one.action,
        makespan_rows=one.makespan_rows,
        forwarded_rows=one.forwarded_rows,
        pieces=one.pieces,
        cost_rows=one.cost_rows,
        chosen=chosen,
        sentence=words,
    )


def _verdict(one: PricedPlan, still: PricedPlan, chosen: bool) -> str:
    if chosen:
        return "taken"
    if one.makespan_rows > still.makespan_rows:
        return "refused, standing still is done sooner"
    return "refused, another costs less"


def sentence_of(
    taken: PricedPlan, still: PricedPlan, certificate: Certificate, admission: Admission, budget: Budget
) -> str:
    """The decision in words: the plan that was taken, its certificate, the waves and the budget."""
    if taken is still:
        words = f"stand still: no other plan costs less; {certificate.conclusion}"
    else:
        words = (
            f"{taken.action}: {taken.sentence}; largest task {still.makespan_rows:,.0f} -> "
            f"{taken.makespan_rows:,.0f} rows; {certificate.conclusion}"
        )
    return "; ".join(filter(None, (words, admission.sentence, budget.sentence)))
