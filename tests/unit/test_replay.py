"""A replay on counts beside the run row by row."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.simulation import NULL, Simulation, simulated_job
from skewless.bounds import NOT_MEASURED, run_certificate, stage_certificate
from skewless.documents.stage_report import EngineChoice, SplitLoad, StageReport
from skewless.documents.step_documents import Replayed
from skewless.errors import PlanError
from skewless.planner.engine_choice import plan_of_choice
from skewless.planner.policies import POLICIES
from skewless.replay import JOINED_ERROR, CountedRun, as_it_ran, counted_run, replay
from tests.tiers import mostly_long
from tests.unit import synthetic
from tests.unit.synthetic import WHOLE, simulated, zipf_rows

#: Those that the default run takes: one that stays, one that moves tokens, and one that places keys.
FEW_POLICIES = mostly_long(POLICIES, "static", "halving", "adaptive")


@cache
def zipf_run(policy: str = "adaptive") -> Simulation:
    waves = (1.0,) if policy == "static" else (1.0, 4.0, 15.0, 80.0)
    return synthetic.simulated(zipf_rows(2000, 1.1, 60_000), waves, reducers=8, policy=policy).play()


@cache
def awkward_run() -> Simulation:
    """A run with few named keys, waves that are joined, and a tenth of the rows without a key."""
    counts = zipf_rows(3000, 1.0, 40_000)
    numbers = np.repeat(np.arange(len(counts)), counts)
    numbers = np.random.default_rng(7).permutation(numbers)
    numbers[::10] = NULL
    job = simulated_job([100] * (len(numbers) // 100), reducers=5, head_limit=200)
    rows = numbers[: job.rows]
    return Simulation(job, [f"key-{n}" for n in range(len(counts))], rows, overhead_seconds=500.0).play()


def recorded(run: Simulation) -> Replayed:
    return as_it_ran(run.job, run.plans, run.reports, [decision.sentence for decision in run.decisions])


def played(run: Simulation, policy: str) -> CountedRun:
    return counted_run(run.job, run.reports, policy)


@pytest.mark.parametrize("policy", FEW_POLICIES)
def test_a_replay_says_what_a_run_of_the_policy_would_have_come_to(policy: str) -> None:
    run = zipf_run(policy)
    found, was, of_another = replay(run.job, run.reports, policy), recorded(run), zipf_run()
    told = replay(of_another.job, of_another.reports, policy)
    for one in (found, told):
        assert one.makespan_over_bound == pytest.approx(was.makespan_over_bound, rel=0.02)
        assert abs(one.stages - was.stages) <= 1, "a handful of rows left over is a stage more"
    assert found.states == pytest.approx(was.states, rel=0.05)
    assert found.s == pytest.approx(was.s, abs=0.005)


def stream(order: str) -> npt.NDArray[np.int64]:
    """Twenty thousand rows of five hundred keys: in random order, or with a key that comes in the last third only."""
    draw = np.random.default_rng(0)
    weights = np.arange(1, 501) ** -0.8
    numbers = draw.choice(500, 20_000, p=weights / weights.sum())
    if order == "late":
        numbers[14_000:] = np.where(draw.random(6000) < 0.5, 499, numbers[14_000:])
    return numbers


@cache
def ordered_run(order: str, policy: str, waves: tuple[int, ...] = (1, 4, 15, 80)) -> Simulation:
    job = simulated_job([20] * 1000, in_order=True, reducers=8, policy=policy, stage_overhead=0, waves=waves)
    return Simulation(job, [f"key-{n}" for n in range(500)], stream(order)).play()


@pytest.mark.parametrize("order", mostly_long(["random", "late"], "random"))
def test_a_replay_is_off_by_no_more_than_it_says_and_exact_where_it_says_nothing(order: str) -> None:
    off = {}
    for policy in ("static", "adaptive", "partial_key", "doubling", "halving"):
        truth = recorded(ordered_run(order, policy, *[(1,)] * (policy == "static"))).makespan_over_bound
        for of in ("static", "adaptive"):
            found = replay(ordered_run(order, of).job, ordered_run(order, of).reports, policy)
            assert truth is not None
            assert found.makespan_over_bound is not None
            off[policy, of] = abs(found.makespan_over_bound / truth - 1.0)
            assert off[policy, of] <= found.error + 1e-9
            assert (found.error == 0.0) == (policy == "static")
    worst = max(off.values())
    assert worst < 0.05 if order == "random" else worst > 0.05, "what is said of late keys is needed"
    assert recorded(ordered_run(order, "static")).error == 0.0


def test_a_replay_of_joined_waves_says_that_it_may_be_off_by_more_but_not_plain_hashing() -> None:
    job = simulated_job([20] * 1000, in_order=True, reducers=8)
    run = Simulation(job, [f"key-{n}" for n in range(500)], stream("late"), overhead_seconds=2000.0).play()
    assert any(report.waves[1] - report.waves[0] > 1 for report in run.reports)
    found = [replay(run.job, run.reports, policy).error for policy in ("static", "partial_key")]
    assert found == [0.0, JOINED_ERROR], "plain hashing takes one stage, whose rows were counted"


@pytest.mark.parametrize("policy", FEW_POLICIES)
def test_every_row_is_counted_once_in_every_replayed_report(policy: str) -> None:
    run = awkward_run()
    left = 0
    reports = played(run, policy).reports
    for report in reports:
        assert report.backlog_in_rows == left
        assert report.admitted_rows == run.job.admitted_rows(report.waves)
        balanced(report)
        left = report.backlog_rows
    assert left == 0
    assert sum(report.processed_rows for report in reports) == run.job.rows


def balanced(report: StageReport) -> None:
    histogram = report.histogram
    assert report.admitted_rows + report.backlog_in_rows == report.processed_rows + report.backlog_rows
    assert report.forwarded_rows <= report.backlog_in_rows
    for name in ("processed_rows", "backlog_rows"):
        assert sum(getattr(load, name) for load in report.tasks) == getattr(report, name)
    seen, left = (sum(pair[side] for pair in histogram.head.values()) for side in (0, 1))
    assert seen + sum(histogram.seen_tail) + histogram.seen_null_rows == histogram.seen_rows
    assert left + sum(histogram.backlog_tail) + histogram.backlog_null_rows == report.backlog_rows
    assert all(before >= over for before, over in histogram.head.values())


def test_a_run_that_was_combined_is_replayed_as_if_routed_also_under_its_own_policy() -> None:
    run = zipf_run()
    combined = EngineChoice(engine="combine", sentence="combine")
    last, plan = run.reports[-1], plan_of_choice(run.job, run.plans[0], combined)
    rows, half = run.job.rows, SplitLoad(rows=run.job.rows // 2)
    counted = {"waves": plan.waves, "admitted_rows": rows, "processed_rows": rows, "tasks": (), "splits": (half, half)}
    report = last.model_copy(update={"stage": 0, "backlog_in_rows": 0, "forwarded_rows": 0, **counted})
    found = replay(run.job, [report], "adaptive", plan)
    assert found == replay(run.job, [report], "adaptive")
    assert found.makespan_over_bound == pytest.approx(1.0, abs=0.02)


def test_a_run_that_has_not_ended_is_refused_in_one_sentence() -> None:
    run = zipf_run()
    with pytest.raises(PlanError, match=r"replay: expected .* all 4 waves, .* 2 stages.*let the run end first"):
        replay(run.job, run.reports[:2], "static")
    with pytest.raises(PlanError, match="let the run end first"):
        replay(run.job, [], "static")


# The certificate of a whole run: the same figure wherever it is said, and never better than the best there is.

WAVES = (10, 20, 70)


def elastic(**routing: Any) -> Simulation:
    return simulated(zipf_rows(500, 0.8, 40_000), WAVES, **{"reducers": 2, **routing}).play()


@pytest.mark.parametrize(
    ("routing", "reducers"),
    [
        pytest.param({"reducer_range": [2, 8]}, 8, id="more"),
        pytest.param({"reducer_range": [2, 8], "slots": 4}, 4, id="more, but no more than slots"),
        pytest.param({"reducers": 8, "reducer_range": [2, 8], "slots": 2}, 2, id="fewer"),
        pytest.param({"reducers": 8, "reducer_range": [1, 16], "slots": 3}, 3, id="between"),
    ],
)
def test_reducers_that_come_and_go_change_no_bound(routing: dict[str, Any], reducers: int) -> None:
    run = elastic(**routing)
    assert len(run.plans[-1].ring.tokens) == reducers != len(run.plans[0].ring.tokens)
    slots = run.job.slots_at()
    found = run_certificate(run.job, run.reports)
    assert (found.tasks, found.total_rows) == (slots, run.job.rows)
    assert found.fair_rows == found.bound_rows == run.job.rows / slots
    assert found.makespan_rows == sum(run.makespans), "what the slots took, one stage after the other"
    assert found.gap is not None
    assert found.gap >= 0
    assert found.over_fair == pytest.approx(1 + found.gap)


@pytest.mark.parametrize("policy", mostly_long(POLICIES, "adaptive", "static", "partial_key"))
def test_replay_says_of_the_run_as_it_ran_what_its_certificate_says(policy: str) -> None:
    run = elastic(policy=policy, reducer_range=[2, 8]) if policy == "adaptive" else elastic(policy=policy)
    gap = run_certificate(run.job, run.reports).gap
    assert gap is not None
    assert as_it_ran(run.job, run.plans, run.reports, []).makespan_over_bound == 1 + gap
    played = replay(run.job, run.reports, policy).makespan_over_bound
    assert played is not None
    assert played >= 1


def test_a_key_that_may_not_be_split_is_the_bound_over_all_stages() -> None:
    run = simulated(np.array([9_000, *[10] * 1000]), WAVES, reducers=4)
    run.job = run.job.model_copy(update={"algebra": dict.fromkeys(run.job.algebra, WHOLE)})
    run.play()
    found = run_certificate(run.job, run.reports)
    assert (found.heaviest_key, found.bound_rows, found.bound_name) == ("key-0", 9_000, "heaviest key")
    assert "more tasks will not help" in found.conclusion
    before_the_end = run_certificate(run.job, run.reports[:1])
    seen, left = run.reports[0].histogram.head["key-0"]
    assert before_the_end.heaviest_rows == seen - left, "what is left over has not been reduced"


def combined(*rows: int) -> tuple[Simulation, StageReport]:
    """A run of four slots, and the report of a stage that reduced so many rows in each input split."""
    run = simulated(zipf_rows(10, 1.0, 1_000), (1,), reducers=4).play()
    total = sum(rows) or 1_000
    splits = tuple(SplitLoad(rows=one) for one in rows)
    update = {"tasks": (), "splits": splits, "processed_rows": total, "admitted_rows": total}
    return run, run.reports[0].model_copy(update=update)


def test_what_nobody_measured_is_called_so_and_never_balanced() -> None:
    run, report = combined()
    for found in (run_certificate(run.job, [report]), stage_certificate(run.job, report)):
        assert (found.makespan_rows, found.gap, found.over_fair) == (None, None, None)
        assert (found.total_rows, found.bound_rows) == (1_000, 250), "what is known is said"
        assert found.conclusion == NOT_MEASURED
    assert report.max_over_mean is None
    measured = [*run.reports, report]
    assert run_certificate(run.job, measured).gap is None, "one stage that was not measured is enough"
    played = as_it_ran(run.job, run.plans, [report], [])
    assert (played.makespan_over_bound, played.s, played.imbalance_final, played.imbalance_fraction) == (None,) * 4
    assert replay(run.job, [report], "static").makespan_over_bound is not None, "its keys were counted"


def test_a_run_whose_keys_nobody_counted_is_not_replayed() -> None:
    run, report = combined()
    nothing = report.histogram.model_copy(update={"seen_rows": 0, "head": {}})
    with pytest.raises(PlanError, match=r"replay: expected reports that count the keys .*not measured"):
        replay(run.job, [report.model_copy(update={"histogram": nothing})], "static")


def test_what_a_combined_run_did_is_known_by_its_splits_but_not_which_key_was_in_which() -> None:
    run, report = combined(300, 300, 200, 200)
    combining = [run.plans[0].model_copy(update={"engine": "combine"})]
    played = as_it_ran(run.job, combining, [report], [])
    assert (played.makespan_over_bound, played.states) == (1.2, None)
    assert played.imbalance_final == pytest.approx((300 - 250) / 1_000)
