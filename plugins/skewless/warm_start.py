"""Plan 0 from the last run of the same job: yesterday's keys are the best guess at today's.

A first stage on the plain ring piles the hot keys of every night on the same tasks, though they have
been known since the night before. So the last run's histogram, scaled to the first wave, is taken for
a forecast, and plan 0 is proposed and chosen like any other. If the keys of the last two runs differ
too much, yesterday says little of today, and the plain ring is taken; plan 0 says which, and why.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skewless.drift import drift
from skewless.forecast import Forecast
from skewless.job import Job
from skewless.planner import Weighed, choose, first_plan, propose
from skewless.policies import POLICIES
from skewless.routing_plan import RoutingPlan
from skewless.spec import JobSpec
from skewless.stage_report import Histogram, StageReport, TaskLoad
from skewless.stage_schedule import UNCHECKED, Budget, choose_budget

#: Plan 0 is made from the last run as long as its keys differ from those of the run before it by no
#: more than this part of all rows (``skewless.drift``).
DRIFT_LIMIT = 0.2


def applies(spec: JobSpec) -> bool:
    """Whether plan 0 of the spec can be made from an earlier run: the spec allows it, and its policy forecasts."""
    policy = POLICIES.get(spec.routing.policy)
    return spec.routing.warm_start and policy is not None and policy.schedules


def plain_plan(job: Job, reason: str) -> RoutingPlan:
    """The plain ring, and why it is not a warm start."""
    return first_plan(job).model_copy(update={"sentence": f"the plain ring: {reason}"})


def warm_plan(job: Job, last: Histogram, before: Histogram | None) -> RoutingPlan:
    """Plan 0 from what the job's last run saw.

    Args:
        job: the frozen job; its ``warm_from`` names the runs.
        last: the last histogram of the newest run.
        before: that of the run before it; None if there is none, and then nothing speaks against ``last``.

    Returns:
        A plan for wave 0 with what it expects of each task; the plain ring where the last run is no
        guide. Its sentence says which it is.

    Raises:
        PlanError: the policy splits a key that may not be split.
    """
    plain = first_plan(job)
    if not applies(job.spec) or not plain.waves[1]:
        return plain
    name, slots = _name(job), 1 << plain.ring.ring_bits
    if len(last.seen_tail) != slots:
        return plain_plan(job, f"run {name} counted {len(last.seen_tail):,} ring slots, and this one has {slots:,}")
    if not last.seen_rows:
        return plain_plan(job, f"run {name} had no rows")
    apart = None if before is None else drift(before, last)
    if apart is not None and apart > DRIFT_LIMIT:
        words = f"the keys of the last two runs differ by {apart:.0%}, more than the {DRIFT_LIMIT:.0%} up to which"
        return plain_plan(job, f"{words} the last one is a guide")
    differ = "no run before it to compare with"
    trust = differ if apart is None else f"the keys of the last two runs differ by {apart:.0%}"
    return _planned(job, plain, last, f"warm start from run {name}", trust)


def _planned(job: Job, plain: RoutingPlan, last: Histogram, start: str, trust: str) -> RoutingPlan:
    forecast = Forecast.after(job, plain, _as_report(job, plain, last), plain.waves)
    # No stage has made states yet: a key is as cheap on one task as on another.
    taken = choose([replace(one, new_states=0) for one in propose(job, forecast)])
    expected = forecast.expected_rows(taken.routing, taken.placement)
    budget = _budget(job, plain, forecast, expected)
    return taken.routing.model_copy(
        update={
            "epoch": plain.epoch,
            "waves": plain.waves,
            "share_salt": plain.share_salt,
            "head": taken.head(),
            "budget_rows": budget.rows,
            "expected_rows": tuple(np.rint(expected).astype(int).tolist()),
            "sentence": "; ".join(filter(None, (f"{start}: {_words(taken)}", budget.sentence, trust))),
        }
    )


def _words(taken: Weighed) -> str:
    if taken.action == "stand still":
        return "the plain ring, as no other plan costs less"
    return f"{taken.action}: {taken.sentence}; the largest task is to get {taken.makespan_rows:,.0f} rows"


def _budget(job: Job, plain: RoutingPlan, forecast: Forecast, expected: np.ndarray) -> Budget:
    """The spec's, or the one that suits the forecast; what a stage costs is not known yet."""
    if job.spec.routing.budget is not None:
        return Budget(plain.budget_rows, "")
    return choose_budget(forecast, expected, UNCHECKED, forecast.waves[1] == len(job.waves), 0.0)


def _as_report(job: Job, plan: RoutingPlan, last: Histogram) -> StageReport:
    """What the last run saw as if a stage had reduced it all: the forecast scales it to the next wave."""
    nothing = (0,) * len(last.backlog_tail)
    histogram = last.model_copy(
        update={
            "backlog_null_rows": 0,
            "head": {key: (seen, 0) for key, (seen, _) in last.head.items()},
            "backlog_tail": nothing,
        }
    )
    idle = (TaskLoad(task=str(task), queued_rows=0, processed_rows=0, backlog_rows=0, states=0) for task in plan.tasks)
    return StageReport(
        stage=plan.epoch,
        # Where rows are not counted, this input is taken to give as many of them as the last one.
        waves=(0, 0 if job.counted else len(job.waves)),
        admitted_rows=last.seen_rows,
        backlog_in_rows=0,
        forwarded_rows=0,
        processed_rows=last.seen_rows,
        backlog_rows=0,
        stage_seconds=0.0,
        tasks=tuple(idle),
        histogram=histogram,
    )


def _name(job: Job) -> str:
    """The last run, by its folder."""
    return job.warm_from[0].rstrip("/").rpartition("/")[2] if job.warm_from else "of last time"
