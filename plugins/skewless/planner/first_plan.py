"""The first plan: the plain ring, or one from the last run of the same job, or from a sample of the keys.

On the plain ring the first stage of every night would put the same hot keys on the same tasks, although the night
before showed which they are. So the last run's histogram, scaled to the first wave, is the forecast, and the first
plan is proposed and chosen like any other. If the keys of the last two runs differ too much, yesterday says little
about today. Then, or if there is no earlier run, a sample of today's keys is the forecast. The plan says what it was
made from, and why not from something better.

A first plan from a sample may admit more than the first wave, which is small only because usually nothing is known.
How much more depends on what is known of the cost of rows.
"""

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from skewless.documents.job import Job
from skewless.documents.stage_report import Decision, EngineChoice, Histogram, StageReport, TaskLoad
from skewless.errors import SpecError
from skewless.planner.engine_choice import plan_of_choice
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.key_sample import KeySample
from skewless.planner.forecast.observed_waves import UNCHECKED, drift, overhead_rows_before, row_seconds_before
from skewless.planner.policies import POLICIES
from skewless.planner.priced_plan import (
    Admission,
    Budget,
    PricedPlan,
    choose,
    choose_budget,
    next_waves,
    propose,
    wasted_rows,
)
from skewless.routing.plan import PlanSource, RoutingPlan
from skewless.routing.ring import MOST_BUCKETS, Ring, ring_bits_for
from skewless.spec.routing import Routing
from skewless.spec.spec import JobSpec

#: Budget of a first stage on the plain ring if waves come in order, as a multiple of the fair share: most tasks have
#: fewer rows of unknown keys than the mean, and a first wave in order may be as large as any other.
FIRST_BUDGET_IN_ORDER = 0.5
#: The price of a stage that drains what the only stage with input leaves over, at most, as a part of its budget.
DRAIN_PART = 0.01


def first_plan(job: Job, waves: tuple[int, int] | None = None) -> RoutingPlan:
    """The first plan where nothing is known: the plain ring, and the first wave unless more are given."""
    ring = first_ring(job.spec.routing)
    waves = waves or (0, min(1, len(job.waves)))
    return RoutingPlan(
        epoch=0,
        policy=job.spec.routing.policy.name,
        waves=waves,
        ring=ring,
        budget_rows=_first_budget(job, waves),
        sentence="the plain ring: nothing is known of the keys yet",
        source=PlanSource(kind="ring"),
    )


def first_ring(routing: Routing, where: str = "spec") -> Ring:
    """The ring of the first plan: fine enough for as many reducers as ``adaptive`` may add; none owns nothing on it."""
    most, tokens = routing.most_reducers, routing.initial_tokens
    bits = ring_bits_for(most, tokens)
    # Taking reducers away only gives the others more: what holds for the most of them holds for fewer.
    widest = Ring.even(most, tokens, bits)
    if widest.empty_reducers:
        fewer = "take fewer reducers" + ("" if routing.policy.name == "doubling" else " or give each more tokens")
        raise SpecError(
            f"{where}, routing", f"a slot of the ring for each of {most:,} reducers",
            f"{len(widest.empty_reducers):,} that own none of its {1 << bits:,}",
            fewer,
        )  # fmt: skip
    return widest if most == routing.reducers else Ring.even(routing.reducers, tokens, bits)


def _first_budget(job: Job, waves: tuple[int, int]) -> int | None:
    """The budget of a stage on the plain ring.

    At the last input, rows left over need one more stage, and it is not known yet how many there would be. So the
    budget is so large that the price of that stage is at most ``DRAIN_PART`` of it: the run is then at most that part
    longer than without a budget.
    """
    routing, policy = job.spec.routing, POLICIES[job.spec.routing.policy.name]
    # How many rows a map makes of one is measured in the first stage; before that the fair share is unknown.
    if job.spec.map or not policy.replans:
        return None
    rows = job.admitted_rows(waves)
    fair = rows / routing.reducers
    if routing.budget is not None:
        return math.ceil(fair * routing.budget)
    if waves[1] < len(job.waves):
        return math.ceil(fair * (FIRST_BUDGET_IN_ORDER if job.in_order and policy.places else 1.0))
    # A policy that places no keys leaves the rest where it is, and gains nothing by draining it.
    budget = max(fair, overhead_rows_before(job) / DRAIN_PART)
    return math.ceil(budget) if policy.places and budget < rows else None


#: The first plan is made from the last run as long as its keys differ from those of the run before it by no
#: more than this part of all rows (``skewless.planner.forecast.observed_waves``).
DRIFT_LIMIT = 0.2
#: A first stage that is to measure what rows cost admits at most this part of them: even a key that costs ten times as
#: much as others can then still be placed well.
PROBE = 0.05
#: If the cost of a row is unknown, so is whether one stage less is worth more than a better forecast. It is assumed to
#: be, as long as the forecast's error costs at most this part of the makespan: of two minutes, the price of a stage.
SURE = 0.03
#: A first stage that is to measure what rows cost says something of most keys if each slot has so many rows of it.
PROBE_ROWS = 10_000
#: Where it would have fewer, all rows are admitted at once, in so many tasks for each slot: a slot that is slow, or
#: that has dear keys, takes fewer tasks. A task has at least ``LEAST_TASK_ROWS``.
TASKS_PER_SLOT, LEAST_TASK_ROWS = 8, 1_000
#: The last run is as good as a sample of this one if the keys of the last two differ by no more than this.
STEADY = 0.05


def plans_from(spec: JobSpec, what: Literal["last_run", "sample"]) -> bool:
    """Whether the first plan can be made from an earlier run or a sample: the spec allows it, its policy forecasts."""
    return what in spec.routing.first_plan and POLICIES[spec.routing.policy.name].schedules


def plain_plan(job: Job, reason: str) -> RoutingPlan:
    """The plain ring, and why it is not a warm start."""
    return first_plan(job).model_copy(update={"sentence": f"the plain ring: {reason}"})


def warm_plan(job: Job, last: Histogram, before: Histogram | None) -> RoutingPlan:
    """The first plan from the last histograms of the job's last run and of the run before it.

    The plan has what it expects of each task. It is the plain ring where the last run is no guide; its sentence says
    so. If there was no run before, nothing speaks against the last one.
    """
    plain = first_plan(job)
    if not plans_from(job.spec, "last_run") or not plain.waves[1]:
        return plain
    name = job.warm_from[0].rstrip("/").rpartition("/")[2] if job.warm_from else "of last time"
    if not last.seen_rows:
        return plain_plan(job, f"run {name} had no rows")
    apart = None if before is None else drift(before, last)
    if apart is not None and apart > DRIFT_LIMIT:
        words = f"the keys of the last two runs differ by {apart:.0%}, more than the {DRIFT_LIMIT:.0%} up to which"
        return plain_plan(job, f"{words} the last one is a guide")
    last = last.on_ring(1 << plain.ring.ring_bits)
    differ = "no run before it to compare with"
    trust = differ if apart is None else f"the keys of the last two runs differ by {apart:.0%}"
    start, source = f"warm start from run {name}", PlanSource(kind="run", run=name, rows=last.seen_rows)
    if apart is None or apart > STEADY:
        return _planned(job, plain, _Known(last, source), start, trust)
    known = _Known(last, source, overhead_rows=overhead_rows_before(job, last))
    admission = _first_waves(job, plain, known)
    trust = "; ".join(filter(None, (admission.sentence, trust)))
    return _planned(job, first_plan(job, admission.waves), known, start, trust)


def sampled_plan(job: Job, plain: RoutingPlan, sample: KeySample) -> RoutingPlan:
    """The first plan from a sample of the keys, with what it expects of each task; ``plain`` if that tells nothing."""
    if not plans_from(job.spec, "sample") or not plain.waves[1]:
        return plain
    histogram = sample.histogram(plain.ring.ring_bits, job.spec.routing.head_limit)
    if histogram is None:
        return plain
    source = PlanSource(kind="sample", rows=histogram.seen_rows)
    known = _Known(histogram, source, max(UNCHECKED, sample.spread), overhead_rows_before(job, histogram))
    factors = _factors_for_unknown_costs(job, known)
    admission = Admission((0, len(job.waves)), _SEVERAL_TASKS) if factors else _first_waves(job, plain, known)
    known = known._replace(expected_keys=sample.key_counts.keys_in(job.admitted_rows(admission.waves)))
    first = first_plan(job, admission.waves).model_copy(update={"factors": factors})
    return _planned(job, first, known, f"from {source.words}", admission.sentence)


class _Known(NamedTuple):
    """What the first plan is made from: what the last run saw, or a sample."""

    seen: Histogram
    source: PlanSource
    spread: float = UNCHECKED
    """Of the forecast that is made from it; see ``forecast_error.dispersion``."""
    overhead_rows: float = 0.0
    """What a stage costs, in rows of the largest task; 0 where that is not to be weighed."""
    expected_keys: float | None = None
    """Different keys in the first stage; None where the counts tell."""


def _first_waves(job: Job, plain: RoutingPlan, known: _Known) -> Admission:
    """The waves of the first stage, from a sample or the last run, and why in words."""
    last = len(job.waves)
    if not known.overhead_rows:
        return Admission(plain.waves, "")
    if any(one.setup_seconds for one in job.algebra.values()):
        return Admission((0, last), "all waves are admitted at once, as each stage sets up its keys anew")
    unknown, tasks = row_seconds_before(job, known.seen) is None, plain.task_count
    # What the error of a forecast of all rows would cost, as a part of the makespan.
    wasted = wasted_rows(float(job.rows), float(known.seen.seen_rows), tasks, known.spread) * tasks / max(1, job.rows)
    if unknown and ("probe" in job.spec.routing.first_plan or wasted > SURE):
        probed = [end for end in range(1, last + 1) if job.admitted_rows((0, end)) <= PROBE * job.rows]
        waves = (0, max(probed, default=1))
        return Admission(waves, "the first stage is small, as nobody knows yet what a row costs")
    before = plain.model_copy(update={"waves": (0, 0)})
    return next_waves(job, before, _as_report(job, before, known.seen), known.overhead_rows, known.spread)


_SEVERAL_TASKS = "each slot takes several tasks, as nobody knows yet what a row costs, and few rows would not tell"


def _factors_for_unknown_costs(job: Job, known: _Known) -> dict[int, int]:
    """Key buckets for several tasks for each slot, where rows are unlike and a probe would be too small to tell.

    None where keys stay whole: one may take as long as all others together, and must not wait for other tasks.
    """
    routing = job.spec.routing
    asked = "probe" in routing.first_plan and row_seconds_before(job, known.seen) is None and known.overhead_rows
    if not asked or not job.splittable or PROBE * job.rows >= PROBE_ROWS * job.slots_at():
        return {}
    tasks = min(TASKS_PER_SLOT * job.slots_at(), job.rows // LEAST_TASK_ROWS)
    factor = min(MOST_BUCKETS, 1 << max(0, (tasks // routing.reducers).bit_length() - 1))
    return dict.fromkeys(range(routing.reducers), factor) if factor > 1 else {}


def _planned(job: Job, plain: RoutingPlan, known: _Known, start: str, trust: str) -> RoutingPlan:
    report = _as_report(job, plain, known.seen)
    # A sample is a part of the input, and is admitted with it; an earlier run's rows are not.
    sampled = known.source.kind == "sample"
    part = min(1.0, known.seen.seen_rows / max(1, job.rows)) if sampled else 0.0
    # Rows may cost more for some keys, and no later stage corrects it; where there is a set-up each piece has its own.
    last, setup = plain.waves[1] == len(job.waves), any(one.setup_seconds for one in job.algebra.values())
    unlike = sampled and last and not setup and row_seconds_before(job, known.seen) is None
    forecast = Forecast.after(
        job, plain, report, plain.waves, expected_keys=known.expected_keys, counted_part=part, costs_unlike=unlike
    )
    # No stage has made states yet: a key is as cheap on one task as on another.
    taken = choose([replace(one, new_states=0) for one in propose(job, forecast)])
    expected = forecast.expected_rows(taken.routing, taken.placement)
    if job.spec.routing.budget is None:
        budget = choose_budget(forecast, expected, known.spread, last, known.overhead_rows)
    else:
        budget = Budget(plain.budget_rows, "")
    return taken.routing.model_copy(
        update={
            "epoch": plain.epoch,
            "waves": plain.waves,
            "share_salt": plain.share_salt,
            "head": taken.head(),
            "budget_rows": budget.rows,
            "expected_rows": tuple(np.rint(expected).astype(int).tolist()),
            "sentence": "; ".join(filter(None, (f"{start}: {_words(taken)}", budget.sentence, trust))),
            "source": known.source,
        }
    )


def _words(taken: PricedPlan) -> str:
    if taken.proposal.action == "stand still":
        return "the plain ring, as no other plan costs less"
    who = "largest task" if len(taken.loads) <= taken.forecast.slots else "fullest slot"
    return f"{taken.proposal.action}: {taken.proposal.sentence}; the {who} is to get {taken.makespan_rows:,.0f} rows"


def _as_report(job: Job, plan: RoutingPlan, last: Histogram) -> StageReport:
    """What the last run saw as if a stage had reduced it all: the forecast scales it to the next wave."""
    histogram = last.model_copy(
        update={
            "backlog_null_rows": 0,
            "head": {key: (seen, 0) for key, (seen, _) in last.head.items()},
            "backlog_tail": np.zeros_like(last.backlog_tail),
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


def first_decision(job: Job, plan: RoutingPlan, choice: EngineChoice, sample: KeySample | None = None) -> Decision:
    """The decision about stage 0."""
    if not choice.traits.in_stages:
        placed = sample if choice.traits.places else None
        seen = placed.histogram(plan.ring.ring_bits, job.spec.routing.head_limit) if placed else None
        chosen, sentence = plan_of_choice(job, plan, choice, seen), choice.sentence
    else:
        chosen, sentence = plan, f"{choice.sentence}; {plan.sentence}" if plan.sentence else choice.sentence
    return Decision(
        stage=0, policy=plan.policy, engine=choice, queued_rows=job.admitted_rows(chosen.waves), candidates=(),
        certificate=None, sentence=sentence, next_plan=chosen,
    )  # fmt: skip
