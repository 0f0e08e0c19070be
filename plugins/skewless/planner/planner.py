"""Decide about the next stage: forecast what it finds, price the proposed plans, take one, set its budget.

A pure function of the documents of a run; the Spark job enacts the decision.
"""

import math
from collections.abc import Sequence

import numpy as np

from skewless.bounds import Keys, certify
from skewless.columns import column, exact_sum, numbers
from skewless.document import LARGEST_COUNT, shortened
from skewless.documents.job import Job
from skewless.documents.stage_report import Candidate, Certificate, Decision, StageReport
from skewless.errors import PlanError, nearest
from skewless.planner.engine_choice import choose_engine, plan_of_choice
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.key_sample import KeyCounts
from skewless.planner.forecast.observed_waves import dispersion, drifted_sentence, misses, stage_cost, weighted
from skewless.planner.placement.placement import Rows
from skewless.planner.policies import POLICIES
from skewless.planner.priced_plan import (
    USUAL_BUDGET,
    Admission,
    Budget,
    PricedPlan,
    choose,
    choose_budget,
    next_waves,
    propose,
)
from skewless.routing.plan import RoutingPlan
from skewless.spec.routing import ENGINES


def plan_next_stage(job: Job, plan: RoutingPlan, report: StageReport, earlier: Sequence[StageReport] = ()) -> Decision:
    """Decide about the stage after ``report``, purely from the documents; earlier reports tell what stages cost."""
    _refuse_unlike(plan, report)
    # Facts, never a forecast: a condition may have left no row of the waves so far, and some of those to come.
    if plan.takes_all or not (report.backlog_rows or plan.waves[1] < len(job.waves)):
        return Decision(
            stage=report.stage + 1, policy=plan.policy, queued_rows=0, candidates=(), certificate=None,
            sentence="no further stage: the input is used up and no backlog is left", next_plan=None,
        )  # fmt: skip
    revised = _revised_engine(job, plan, report)
    if revised is not None:
        return revised
    so_far = [*earlier, report]
    overhead_rows = stage_cost(job, so_far).overhead_rows
    chooses = POLICIES[plan.policy].schedules
    admission = next_waves(job, plan, report, overhead_rows if chooses else 0.0)
    forecast = Forecast.after(job, plan, report, admission.waves, memory=weighted(job, so_far))
    priced = propose(job, forecast)
    taken = choose(priced, strict=job.spec.routing.policy.strict)
    expected = forecast.expected_rows(taken.routing, taken.placement)
    budget = _budget(job, forecast, expected, overhead_rows, so_far[0])
    certificate = certificate_of(job, forecast, taken)
    words = sentence_of(taken, priced[0], certificate, admission, budget), drifted_sentence(plan, report)
    return Decision(
        stage=report.stage + 1,
        policy=plan.policy,
        queued_rows=forecast.queued_rows,
        candidates=tuple(candidate_of(one, priced[0], one is taken) for one in priced),
        certificate=certificate,
        sentence="; ".join(filter(None, words)),
        next_plan=_next_plan(taken, expected, budget),
    )


def _revised_engine(job: Job, plan: RoutingPlan, report: StageReport) -> Decision | None:
    """After the first stage, ``auto`` may find that what is left is better not taken in stages."""
    rows = report.backlog_rows + job.admitted_rows((plan.waves[1], len(job.waves)))
    asked = ENGINES.get(job.spec.engine)
    if asked is not None or report.stage > 0 or not rows:
        return None
    places = POLICIES[plan.policy].places
    now = job.model_copy(update={"slots": job.slots_at(report)})
    choice = choose_engine(now, KeyCounts.of_report(report), rows, job.combine_splits, named=places)
    if choice.traits.in_stages:
        return None
    here = plan.model_copy(update={"epoch": plan.epoch + 1})
    return Decision(
        stage=here.epoch, policy=plan.policy, engine=choice, queued_rows=rows, candidates=(), certificate=None,
        sentence=choice.sentence, next_plan=plan_of_choice(now, here, choice, report.histogram if places else None),
    )  # fmt: skip


def _next_plan(taken: PricedPlan, expected: Rows, budget: Budget) -> RoutingPlan:
    still = taken.proposal.action == "stand still"
    head = taken.forecast.plan.head if still else taken.head()
    return taken.routing.model_copy(
        update={
            "head": head,
            "budget_rows": budget.rows,
            "expected_rows": tuple(np.rint(expected).astype(int).tolist()),
        }
    )


def _budget(job: Job, forecast: Forecast, expected: Rows, overhead_rows: float, first: StageReport) -> Budget:
    """The spec's, the usual one, or the one that is chosen; none once no input is left.

    A backlog only pays if a later plan can place it better. So no budget makes a stage of its own necessary under a
    policy that places nothing; and under the others only where that stage is worth its price.
    """
    policy, given = POLICIES[forecast.plan.policy], job.spec.routing.budget
    if not policy.replans or not forecast.wave_rows:
        return Budget(None, "")
    last_input = forecast.waves[1] == len(job.waves)
    # A task that waits for another to end has no use for a budget: a stage then lasts several budgets, however even.
    waits = len(expected) > forecast.slots
    if given is None and (waits or (last_input and not policy.places)):
        return Budget(None, "")
    if given is not None or not (policy.schedules or last_input):
        return Budget(math.ceil(forecast.queued_rows / len(expected) * (given or USUAL_BUDGET)), "")
    spread = dispersion(forecast.plan, forecast.report, job.in_order)
    missed = misses(forecast.plan, forecast.report, first) if job.in_order else None
    splits = policy.splits and job.splittable
    return choose_budget(forecast, expected, spread, last_input, overhead_rows, missed, splits)


def _refuse_unlike(plan: RoutingPlan, report: StageReport) -> None:
    if plan.policy not in POLICIES:
        raise PlanError(
            f"plan {plan.epoch}, policy", "a known policy", shortened(plan.policy), nearest(plan.policy[:80], POLICIES)
        )
    if plan.epoch != report.stage:
        raise PlanError("planner", f"the report of stage {plan.epoch}", f"that of stage {report.stage}")
    if plan.waves != report.waves:
        raise PlanError(f"report of stage {report.stage}", f"the waves {plan.waves} of its plan", str(report.waves))
    if plan.traits.in_tasks and plan.task_names != column(report.tasks, "task"):
        raise PlanError(
            f"report of stage {report.stage}", f"the {plan.task_count} tasks of its plan", f"{len(report.tasks)} others"
        )
    if (total := _all_counts(report)) > LARGEST_COUNT:
        raise PlanError(
            f"report of stage {report.stage}", f"counts of at most {LARGEST_COUNT:,} in all", f"{total:,}",
            "restore the file from a copy, or begin a new run directory",
        )  # fmt: skip
    slots = 1 << plan.ring.ring_bits
    if {len(report.histogram.seen_tail), len(report.histogram.backlog_tail)} != {slots}:
        raise PlanError(
            f"report of stage {report.stage}", f"a tail of {slots} slots, as its plan has",
            f"{len(report.histogram.seen_tail)} and {len(report.histogram.backlog_tail)}",
        )  # fmt: skip


_TASK_COUNTS = ("queued_rows", "processed_rows", "backlog_rows", "states")


def _all_counts(report: StageReport) -> int:
    """The sum of all counts of a report: if it fits into 64 bits, so does everything computed from them."""
    histogram = report.histogram
    whole = (report.admitted_rows, report.backlog_in_rows, report.processed_rows, report.backlog_rows)
    further = (histogram.seen_rows, histogram.seen_null_rows, histogram.backlog_null_rows, report.given_rows or 0)
    return (
        sum(whole) + sum(further) + exact_sum(histogram.seen_tail) + exact_sum(histogram.backlog_tail)
        + exact_sum(histogram.head_counts)
        + sum(exact_sum(numbers(report.tasks, name)) for name in _TASK_COUNTS)
    )  # fmt: skip


def certificate_of(job: Job, forecast: Forecast, taken: PricedPlan) -> Certificate:
    """How near the taken plan is predicted to come to the bound of the next stage.

    As in the certificate of a run, the bound takes all tasks that run side by side to be busy all the time.
    """
    loads = forecast.head_loads
    first = int(np.argmax(loads)) if len(loads) else None
    heaviest = None if first is None else (forecast.keys[first], float(loads[first]))
    known = Keys(max(float(taken.loads.sum()), float(loads.sum())), heaviest, job.splittable, weights=loads)
    return certify(known, forecast.slots, taken.makespan_rows, predicted=True)


def candidate_of(one: PricedPlan, still: PricedPlan, chosen: bool) -> Candidate:
    """A proposed plan as the decision lists it, with the reason why it was taken or refused."""
    proposal = one.proposal
    against = one.makespan_rows / still.makespan_rows - 1.0 if still.makespan_rows else 0.0
    if proposal.refusal:
        words = f"refused, {proposal.refusal}"
    else:
        beside = "" if one is still else f" ({against:+.1%} against standing still)"
        longer = one.makespan_rows > still.makespan_rows
        refusal = "refused, standing still is done sooner" if longer else "refused, another costs less"
        words = f"the largest task gets {one.makespan_rows:,.0f} rows{beside}; {'taken' if chosen else refusal}"
    return Candidate(
        action=proposal.action,
        makespan_rows=one.makespan_rows,
        forwarded_rows=one.forwarded_rows,
        pieces=one.placement.states,
        cost_rows=one.cost_rows,
        chosen=chosen,
        sentence=f"{proposal.sentence}: {words}",
    )


def sentence_of(
    taken: PricedPlan, still: PricedPlan, certificate: Certificate, admission: Admission, budget: Budget
) -> str:
    """The decision in words: the plan that was taken, its certificate, the waves and the budget."""
    if taken is still:
        words = f"stand still: no other plan costs less; {certificate.conclusion}"
    else:
        words = (
            f"{taken.proposal.action}: {taken.proposal.sentence}; largest task {still.makespan_rows:,.0f} -> "
            f"{taken.makespan_rows:,.0f} rows; {certificate.conclusion}"
        )
    return "; ".join(filter(None, (words, admission.sentence, budget.sentence)))
