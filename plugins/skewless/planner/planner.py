"""Propose, choose: what the next stage's plan should be. Enacting is somebody else's.

Never worse than standing still: that is always a candidate, and another plan is only taken
when its predicted cost is lower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skewless.bounds.certificate import certify
from skewless.bounds.makespan import makespan
from skewless.document import LARGEST_COUNT, shortened
from skewless.documents.certificate import Certificate
from skewless.documents.decision import Candidate, Decision
from skewless.documents.engine_choice import EngineChoice
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.errors import PlanError, SpecError, nearest
from skewless.planner.cost import overhead_rows_before, stage_cost
from skewless.planner.drift import drifted_sentence
from skewless.planner.engine_choice import choose_engine
from skewless.planner.forecast import Forecast
from skewless.planner.key_counts import KeyCounts
from skewless.planner.lasting_cost import rest_of_run
from skewless.planner.placement.placement import Placement, Rows
from skewless.planner.policies import POLICIES
from skewless.planner.policies.proposal import Proposal
from skewless.planner.recency import weighted
from skewless.planner.schedule import Admission, Budget, choose_budget, dispersion, misses, next_waves
from skewless.routing.plan import PlanSource, RoutingPlan
from skewless.routing.ring import Ring, ring_bits_for
from skewless.spec.routing import Routing

#: What forwarding a row costs, in rows reduced: it is written, read and shuffled once more.
FORWARD_COST_ROWS = 0.25
#: What one more partial state costs, in rows reduced: it is written and merged.
STATE_COST_ROWS = 1.0
#: What one more task costs, in rows reduced: it is started, and writes files of its own.
TASK_COST_ROWS = 100.0
#: Budget of a first stage on the plain ring where waves come in order, as a multiple of the fair share: most
#: tasks get less of keys that nobody knows, and waves that are no samples are not small for nothing.
FIRST_BUDGET_IN_ORDER = 0.5
#: The price of a stage that drains what the only stage with input leaves over, at most, as a part of its budget.
DRAIN_PART = 0.01
#: Budget of the policies that do not choose their own, as a multiple of the fair share.
USUAL_BUDGET = 1.02


@dataclass(frozen=True, eq=False)
class Weighed:
    """A plan with its prediction, before anyone chose.

    Attributes:
        proposal: what is proposed; for standing still and for a refusal, nothing.
        routing: ring, factors and salt of the plan, its head left out.
        placement: of the head keys of the forecast.
        loads: predicted load of each task, shape ``(tasks,)``.
        forwarded_rows: predicted backlog rows that change their task.
        new_states: pairs of head key and task that there were not before.
        draw_error_rows: by how much the luck of the draw may miss the loads.
        later_rows: see ``skewless.planner.lasting_cost.Rest``; 0 for a policy that places keys anew in each stage.
        luck_rows: see there; 0 likewise.
    """

    forecast: Forecast
    proposal: Proposal
    routing: RoutingPlan
    placement: Placement
    loads: Rows
    forwarded_rows: float
    new_states: int
    draw_error_rows: float = 0.0
    later_rows: float = 0.0
    luck_rows: float = 0.0

    @property
    def action(self) -> str:
        """The name of what is done."""
        return self.proposal.action

    @property
    def sentence(self) -> str:
        """What is done, in words."""
        return self.proposal.sentence

    @property
    def pieces(self) -> int:
        """(Head key, task) pairs of the plan."""
        return self.placement.states

    @cached_property
    def makespan_rows(self) -> float:
        """When the last task is done, in rows of average cost."""
        return makespan(self.loads, self.forecast.slots)

    @cached_property
    def cost_rows(self) -> float:
        """What the planner compares, in rows of one slot.

        The makespan of the next stage; the makespans of later stages, if the plan lasts; the errors of draws and of
        the prediction; and the price of forwarding, states and tasks, divided by the slots.
        """
        # A key that is whole has one state wherever it goes; a split one has a state of each piece in each stage.
        states = self.pieces - self.placement.keys + self.new_states
        state_rows = STATE_COST_ROWS + self.forecast.setup_rows
        extra = FORWARD_COST_ROWS * self.forwarded_rows + state_rows * states + TASK_COST_ROWS * len(self.loads)
        return (
            self.makespan_rows + self.later_rows + self.draw_error_rows + self.luck_rows + extra / self.forecast.slots
        )

    @cached_property
    def plan(self) -> RoutingPlan:
        """The whole plan, without a budget."""
        return self.routing.model_copy(update={"head": self.head()})

    def head(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The head of the plan; empty where every key goes where ring and buckets say."""
        on_ring = len(self.placement.key) == self.placement.keys and np.array_equal(
            self.placement.task, self.forecast.on_ring(self.routing)
        )
        return {} if on_ring and self.proposal.placement is None else self.placement.as_head(self.forecast.keys)


def first_plan(job: Job, waves: tuple[int, int] | None = None) -> RoutingPlan:
    """Plan 0 where nothing is known: the plain ring.

    Args:
        job: the frozen job.
        waves: those that the first stage admits; the first one by default.
    """
    job = job.enacted
    routing = job.spec.routing
    waves = waves or (0, min(1, len(job.waves)))
    return RoutingPlan(
        epoch=0,
        policy=routing.policy,
        waves=waves,
        ring=first_ring(routing),
        budget_rows=_first_budget(job, waves),
        sentence="the plain ring: nothing is known of the keys yet",
        source=PlanSource(kind="ring"),
    )


def first_ring(routing: Routing, where: str = "spec") -> Ring:
    """The ring of plan 0: fine enough for as many reducers as ``adaptive`` may add.

    Args:
        routing: of the spec.
        where: the spec, for messages.

    Raises:
        SpecError: a reducer would own nothing on it.
    """
    most, tokens = max(routing.reducers, routing.max_reducers or 0), routing.initial_tokens
    fine = ring_bits_for(most, tokens)
    bits = routing.ring_bits or fine
    # Taking reducers away only gives the others more: what holds for the most of them holds for fewer.
    widest = Ring.even(most, tokens, bits)
    if widest.empty_reducers:
        coarse = bits < fine and not Ring.even(most, tokens, fine).empty_reducers
        fewer = "take fewer reducers" + ("" if routing.policy == "doubling" else " or give each more tokens")
        raise SpecError(
            f"{where}, routing", f"a slot of the ring for each of {most:,} reducers",
            f"{len(widest.empty_reducers):,} that own none of its {1 << bits:,}",
            f"leave ring_bits out or set it to {fine}" if coarse else fewer,
        )  # fmt: skip
    return widest if most == routing.reducers else Ring.even(routing.reducers, tokens, bits)


def _first_budget(job: Job, waves: tuple[int, int]) -> int | None:
    """The budget of a stage on the plain ring.

    At the last input whatever is left over needs a stage to drain it, and nobody knows yet how much that would be.
    So a task first takes so many rows that the price of the stage is at most ``DRAIN_PART`` of them: the run is then
    at most that part longer than without a budget.
    """
    routing, policy = job.spec.routing, POLICIES[job.spec.routing.policy]
    # How many rows a map makes of one is seen in the first stage: until then there is no fair share to speak of.
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


def first_choice(job: Job, counts: KeyCounts | None) -> EngineChoice:
    """The engine of stage 0.

    Args:
        job: the frozen job.
        counts: of a sample of the keys; None where there is none.
    """
    largest = max((unit.rows for unit in job.units), default=0)
    return choose_engine(job, counts, job.rows, job.combine_splits, largest)


def first_decision(job: Job, plan: RoutingPlan, choice: EngineChoice) -> Decision:
    """The decision about stage 0.

    Args:
        job: the frozen job.
        plan: plan 0 as a staged run has it.
        choice: of the engine.
    """
    if choice.engine == "combine":
        chosen, sentence = combine_plan(job, plan, choice), choice.sentence
    else:
        chosen, sentence = plan, f"{choice.sentence}; {plan.sentence}" if plan.sentence else choice.sentence
    return Decision(
        stage=0, policy=plan.policy, engine=choice, queued_rows=job.admitted_rows(chosen.waves), candidates=(),
        certificate=None, sentence=sentence, next_plan=chosen,
    )  # fmt: skip


def plan_next_stage(job: Job, plan: RoutingPlan, report: StageReport, earlier: Sequence[StageReport] = ()) -> Decision:
    """Decide about the stage after ``report``, purely from the documents.

    Args:
        job: the frozen job.
        plan: the plan of the reported stage.
        report: what happened.
        earlier: the reports of the stages before, for what stages cost; may be left out.

    Raises:
        PlanError: plan and report are not of the same stage.
    """
    _refuse_unlike(plan, report)
    if job.spec.mode == "observe":
        return _observed(job, plan, report, earlier)
    if plan.engine == "combine":  # it took in all there was
        return _finished(report.stage + 1, plan.policy)
    revised = _revised_engine(job, plan, report)
    if revised is not None:
        return revised
    so_far = [*earlier, report]
    cost = stage_cost(job, so_far)
    overhead_rows = cost.overhead_rows
    chooses = POLICIES[plan.policy].schedules
    admission = next_waves(job, plan, report, overhead_rows if chooses else 0.0)
    forecast = Forecast.after(job, plan, report, admission.waves, memory=weighted(job, so_far))
    if not forecast.queued_rows:
        return _finished(report.stage + 1, plan.policy)
    weighed = propose(job, forecast)
    taken = choose(weighed, strict=job.spec.routing.strict)
    expected = forecast.expected_rows(taken.routing, taken.placement)
    budget = _budget(job, forecast, expected, overhead_rows, so_far[0])
    budget = _guarded(job, forecast, budget, expected, cost.seconds_per_row)
    certificate = _certificate(job, forecast, taken)
    return Decision(
        stage=report.stage + 1,
        policy=plan.policy,
        queued_rows=forecast.queued_rows,
        candidates=tuple(_candidate(one, weighed[0], one is taken) for one in weighed),
        certificate=certificate,
        sentence="; ".join(
            filter(None, (_sentence(taken, weighed[0], certificate, admission, budget), drifted_sentence(plan, report)))
        ),
        next_plan=_next_plan(taken, expected, budget),
    )


def _observed(job: Job, plan: RoutingPlan, report: StageReport, earlier: Sequence[StageReport]) -> Decision:
    """What would have been decided, with the plan that policy ``static`` goes on with."""
    enacted = plan_next_stage(job.enacted, plan, report, earlier)
    if enacted.next_plan is None or enacted.next_plan.engine == "combine":
        return enacted  # nothing is routed any more, so there is nothing to observe
    # It decides about the ring that there is, which has the tokens of the enacted policy.
    routing = job.spec.routing.model_copy(update={"tokens": job.enacted.spec.routing.initial_tokens})
    deciding = job.model_copy(update={"spec": job.spec.model_copy(update={"mode": "run", "routing": routing})})
    under = plan.model_copy(update={"policy": job.spec.routing.policy})
    would = plan_next_stage(deciding, under, report, earlier)
    return would.model_copy(
        update={
            "observed": True,
            "next_plan": enacted.next_plan,
            "sentence": f"observed, not enacted: {would.sentence}; rows go on as with policy static",
        }
    )


def _revised_engine(job: Job, plan: RoutingPlan, report: StageReport) -> Decision | None:
    """After the first stage, ``auto`` may find that what is left is better combined where it is read."""
    rows = report.backlog_rows + job.admitted_rows((plan.waves[1], len(job.waves)))
    if job.spec.engine != "auto" or report.stage > 0 or not rows:
        return None
    choice = choose_engine(job, KeyCounts.of_report(report), rows, job.combine_splits)
    if choice.engine == "staged":
        return None
    here = plan.model_copy(update={"epoch": plan.epoch + 1})
    return Decision(
        stage=here.epoch, policy=plan.policy, engine=choice, queued_rows=rows, candidates=(), certificate=None,
        sentence=choice.sentence, next_plan=combine_plan(job, here, choice),
    )  # fmt: skip


def combine_plan(job: Job, plan: RoutingPlan, choice: EngineChoice) -> RoutingPlan:
    """A plan that takes in everything from a plan's waves on, and routes nothing.

    Args:
        job: the frozen job.
        plan: of this epoch as it would be staged, or the last one with the epoch of this one.
        choice: the engine's.
    """
    first = plan.waves[0] if not plan.epoch else plan.waves[1]
    return plan.model_copy(
        update={
            "engine": "combine",
            "waves": (first, len(job.waves)),
            "head": {},
            "budget_rows": None,
            "expected_rows": (),
            "sentence": choice.sentence,
        }
    )


def propose(job: Job, forecast: Forecast) -> Sequence[Weighed]:
    """Standing still, first, and whatever the policy proposes, each with its predicted loads.

    Raises:
        PlanError: the policy splits a key that may not be split.
    """
    still = Weighed(
        forecast=forecast,
        proposal=Proposal("stand still", "change nothing"),
        routing=forecast.plan_with(),
        placement=forecast.placement_now,
        loads=forecast.loads_unchanged(),
        forwarded_rows=0.0,
        new_states=0,
    )
    policy = POLICIES[forecast.plan.policy]
    weighed = [still, *(_weigh(job, forecast, one, still) for one in policy.propose(job, forecast))]
    if policy.places:
        return weighed
    kept = [(one, rest_of_run(job, forecast, one.routing, one.placement)) for one in weighed]
    return [replace(one, later_rows=rest.later_rows, luck_rows=rest.luck_rows) for one, rest in kept]


def _weigh(job: Job, forecast: Forecast, proposal: Proposal, still: Weighed) -> Weighed:
    proposal = _refused_if_empty(proposal, forecast.plan.ring)
    if proposal.refusal:
        return Weighed(forecast, proposal, still.routing, still.placement, still.loads, 0.0, 0)
    routing = forecast.plan_with(proposal.ring, proposal.factors)
    placement = proposal.placement or Placement.pinned(forecast.on_ring(routing))
    refuse_unsafe(job, forecast, placement)
    same_tasks = routing.tasks == forecast.plan.tasks
    if not same_tasks or (proposal.redraw and (len(placement.split) or len(still.placement.split))):
        routing = routing.model_copy(update={"share_salt": routing.epoch})
    new_states = placement.pairs_beyond(still.placement) if same_tasks else placement.states
    return Weighed(
        forecast=forecast,
        proposal=proposal,
        routing=routing,
        placement=placement,
        loads=forecast.loads(routing, placement),
        forwarded_rows=forecast.forwarded_rows(routing, placement),
        new_states=new_states,
        draw_error_rows=forecast.draw_error(routing, placement),
    )


def _refused_if_empty(proposal: Proposal, now: Ring) -> Proposal:
    """Refuse a ring on which a reducer would come to own nothing: it would be a task without keys in each stage."""
    empty = sorted(proposal.ring.empty_reducers - now.empty_reducers) if proposal.ring else []
    if not empty:
        return proposal
    who = f"reducer {empty[0]}" if len(empty) == 1 else f"{len(empty):,} reducers"
    return proposal._replace(refusal=f"{who} would own none of the ring's {1 << now.ring_bits:,} slots")


def choose(weighed: Sequence[Weighed], *, strict: bool = False) -> Weighed:
    """The cheapest that does not last longer than standing still; the first of equals.

    Standing still comes first. Raising the makespan never pays, however much it saves elsewhere.

    Args:
        weighed: as ``propose`` has them.
        strict: take the last proposal that can be carried out, whatever it costs, as a published policy does.
    """
    still = weighed[0]
    if strict:
        return [one for one in weighed if not one.proposal.refusal][-1]
    able = [one for one in weighed if not one.proposal.refusal and one.makespan_rows <= still.makespan_rows]
    return able[int(np.argmin([one.cost_rows for one in able]))]


def refuse_unsafe(job: Job, forecast: Forecast, placement: Placement) -> None:
    """Refuse a placement that splits a key whose aggregates may not be split.

    Raises:
        PlanError: names the key.
    """
    if job.splittable or not len(placement.split):
        return
    key = forecast.keys[int(placement.split[0])]
    raise PlanError(
        f"plan {forecast.report.stage + 1}", "every key whole, as its aggregates demand", f"key {key[:80]!r} split"
    )


def _next_plan(taken: Weighed, expected: Rows, budget: Budget) -> RoutingPlan:
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
    if given is None and last_input and not policy.places:
        return Budget(None, "")
    if given is not None or not (policy.schedules or last_input):
        return Budget(_fair_budget(job, forecast.queued_rows, len(expected), given or USUAL_BUDGET), "")
    spread = dispersion(forecast.plan, forecast.report, job.in_order)
    missed = misses(forecast.plan, forecast.report, first) if job.in_order else None
    splits = policy.splits and job.splittable
    return choose_budget(forecast, expected, spread, last_input, overhead_rows, missed, splits)


def _guarded(job: Job, forecast: Forecast, budget: Budget, expected: Rows, seconds_per_row: float) -> Budget:
    """The budget, held to the seconds that the spec allows a task in a stage.

    Never to less than a fair share: a stage that leaves over more than it must only moves the work to
    the stage that drains, which has no limit.
    """
    seconds = job.spec.routing.budget_seconds
    if seconds is None or seconds_per_row <= 0 or not forecast.wave_rows:
        return budget
    rows = max(math.ceil(seconds / seconds_per_row), math.ceil(float(expected.mean())))
    if rows >= (float(expected.max()) if budget.rows is None else budget.rows):
        return budget
    words = f"a task may reduce for {seconds:g} s, which is {rows:,} rows"
    return Budget(rows, "; ".join(filter(None, (budget.sentence, words))))


def _fair_budget(job: Job, queued_rows: int, tasks: int, slack: float) -> int | None:
    if not POLICIES[job.spec.routing.policy].replans:
        return None
    return math.ceil(queued_rows / tasks * slack)


def _refuse_unlike(plan: RoutingPlan, report: StageReport) -> None:
    """Refuse documents that are not of one stage.

    Raises:
        PlanError: says what differs.
    """
    if plan.policy not in POLICIES:
        raise PlanError(
            f"plan {plan.epoch}, policy", "a known policy", shortened(plan.policy), nearest(plan.policy[:80], POLICIES)
        )
    if plan.epoch != report.stage:
        raise PlanError("planner", f"the report of stage {plan.epoch}", f"that of stage {report.stage}")
    if plan.waves != report.waves:
        raise PlanError(f"report of stage {report.stage}", f"the waves {plan.waves} of its plan", str(report.waves))
    if plan.engine == "staged" and [str(task) for task in plan.tasks] != [load.task for load in report.tasks]:
        raise PlanError(
            f"report of stage {report.stage}", f"the {len(plan.tasks)} tasks of its plan", f"{len(report.tasks)} others"
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


def _all_counts(report: StageReport) -> int:
    """All counts of a report added up: what is reckoned from them fits into 64 bits if this does."""
    histogram = report.histogram
    whole = (report.admitted_rows, report.backlog_in_rows, report.processed_rows, report.backlog_rows)
    further = (histogram.seen_rows, histogram.seen_null_rows, histogram.backlog_null_rows, report.given_rows or 0)
    return (
        sum(whole) + sum(further) + sum(histogram.seen_tail) + sum(histogram.backlog_tail)
        + sum(seen + left for seen, left in histogram.head.values())
        + sum(load.queued_rows + load.processed_rows + load.backlog_rows + load.states for load in report.tasks)
    )  # fmt: skip


def _certificate(job: Job, forecast: Forecast, taken: Weighed) -> Certificate:
    keys = forecast.head_loads
    heaviest = int(np.argmax(keys)) if len(keys) else None
    speeds = forecast.speeds_under(taken.routing)
    if speeds is not None and len(speeds) > forecast.slots:
        # Nobody knows which slot a task will run in: what holds is that all slots work all the time.
        return certify(
            float(taken.loads.sum()), forecast.slots, taken.makespan_rows, heaviest=None, splittable=True,
            predicted=True,
        )  # fmt: skip
    total = taken.loads if speeds is None else taken.loads * speeds
    if speeds is not None:
        # A slot that has had no task is taken to be as fast as the median one.
        speeds = np.append(speeds, np.ones(forecast.slots - len(speeds)))
    return certify(
        total=max(float(total.sum()), float(keys.sum())),
        tasks=forecast.slots,
        makespan=taken.makespan_rows,
        heaviest=None if heaviest is None else (forecast.keys[heaviest], float(keys[heaviest])),
        splittable=job.splittable,
        weights=keys,
        speeds=speeds,
        states=taken.placement.states,
        predicted=True,
    )


def _candidate(one: Weighed, still: Weighed, chosen: bool) -> Candidate:
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


def _verdict(one: Weighed, still: Weighed, chosen: bool) -> str:
    if chosen:
        return "taken"
    if one.makespan_rows > still.makespan_rows:
        return "refused, standing still is done sooner"
    return "refused, another costs less"


def _sentence(taken: Weighed, still: Weighed, certificate: Certificate, admission: Admission, budget: Budget) -> str:
    if taken is still:
        words = f"stand still: no other plan costs less; {certificate.conclusion}"
    else:
        words = (
            f"{taken.action}: {taken.sentence}; largest task {still.makespan_rows:,.0f} -> "
            f"{taken.makespan_rows:,.0f} rows; {certificate.conclusion}"
        )
    return "; ".join(filter(None, (words, admission.sentence, budget.sentence)))


def _finished(stage: int, policy: str) -> Decision:
    return Decision(
        stage=stage,
        policy=policy,
        queued_rows=0,
        candidates=(),
        certificate=None,
        sentence="no further stage: the input is used up and no backlog is left",
        next_plan=None,
    )
