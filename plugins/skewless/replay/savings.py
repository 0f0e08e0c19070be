"""What the routing of a run has saved: the run beside a replay under plain hashing, in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from skewless.bounds import NEAR, NOT_MEASURED, makespan
from skewless.documents.bill import PLAIN, Replayed, Savings
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.errors import PlanError, SpecError
from skewless.routing.plan import RoutingPlan
from skewless.run.certificate import run_certificate


def savings_of(
    job: Job, plans: Sequence[RoutingPlan], reports: Sequence[StageReport], plain: Callable[[], Replayed]
) -> Savings:
    """What was saved by a run whose stages have committed.

    Args:
        plans: of its stages, in order, as are the reports.
        plain: replays the run under plain hashing.
    """
    policy = job.spec.routing.policy.name
    if not any(plan.traits.in_tasks for plan in plans):
        return Savings(
            policy=policy,
            sentence="Nothing was to be saved by routing: every input split was aggregated where it was read (engine "
            "combine), as plain Spark does, and no row was sent to a task.",
        )
    if policy == PLAIN:
        return Savings(
            policy=policy,
            sentence=f"Policy {PLAIN} is plain hashing: it routed the rows of this run. `skewless replay` shows what "
            "other policies would have made of them.",
        )
    gap = run_certificate(job, reports).gap
    if gap is None:
        return Savings.unknown(policy, NOT_MEASURED)
    try:
        other = plain()
    except (PlanError, SpecError) as err:
        return Savings.unknown(policy, str(err).rstrip("."))
    if other.makespan_over_bound is None:
        return Savings.unknown(policy, NOT_MEASURED)
    seconds = longest_seconds(job, reports)
    ratio = other.makespan_over_bound / (1.0 + gap)
    savings = Savings(
        sentence="",
        policy=policy,
        over_bound=round(1.0 + gap, 4),
        against_over_bound=round(other.makespan_over_bound, 4),
        seconds=None if seconds is None else round(seconds, 3),
        against_seconds=None if seconds is None else round(seconds * ratio, 3),
    )
    return savings.model_copy(update={"sentence": _sentence(savings, ratio, other.error)})


def longest_seconds(job: Job, reports: Sequence[StageReport]) -> float | None:
    """What the longest tasks of the stages took together, in seconds; None where a task has not measured its time."""
    total = 0.0
    for report in reports:
        busy = [load.busy_seconds for load in report.tasks or report.splits]
        known = [one for one in busy if one is not None]
        if len(known) < len(busy) or (report.processed_rows and not busy):
            return None
        total += makespan(np.array(known), job.spec.routing.parallelism)
    return total


def _sentence(savings: Savings, ratio: float, error: float) -> str:
    off = f" \N{PLUS-MINUS SIGN} {error:.0%}" if error else ""
    figures = f"({savings.against_over_bound:.2f} of the best possible{off}, this run {savings.over_bound:.2f})"
    timed = savings.seconds is not None and savings.against_seconds is not None
    seconds = f", {savings.against_seconds:,.1f} s in place of {savings.seconds:,.1f} s" if timed else ""
    if abs(ratio - 1.0) <= NEAR:
        return f"Nothing was to be saved: plain hashing would have come as near to the best possible {figures}."
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 1.1 else f"{ratio:.2f}"
    longer = f"hashing would have made the longest task {times} times as long{seconds} {figures}."
    return f"Plain {longer}" if ratio > 1.0 else f"Routing did not pay: plain {longer}"
