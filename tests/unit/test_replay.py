"""A replay on counts beside the run row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.simulation import NULL, Simulation, simulated_job
from skewless.bounds import NOT_MEASURED
from skewless.documents.bill import Replayed
from skewless.documents.decision import EngineChoice
from skewless.documents.stage_report import SplitLoad, StageReport
from skewless.errors import PlanError
from skewless.planner.engine_choice import plan_of_choice
from skewless.planner.forecast.observed_waves import WaveCounts, slot_rows
from skewless.planner.policies import POLICIES
from skewless.replay.replay import JOINED_ERROR, ORDER_ERROR, CountedRun, as_it_ran, counted_run, replay
from skewless.run.certificate import run_certificate, stage_certificate
from tests.tiers import mostly_long
from tests.unit import synthetic
from tests.unit.synthetic import WHOLE, simulated, zipf_rows

#: Those that the default run takes: one that stays, one that moves tokens, and one that places keys.
FEW_POLICIES = mostly_long(POLICIES, "static", "halving", "adaptive")


@cache
def zipf_run(policy: str = "adaptive") -> Simulation:
    """A run over sixty thousand rows of two thousand keys."""
    return synthetic.simulated(zipf_rows(2000, 1.1, 60_000), reducers=8, policy=policy).play()


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
def ordered_run(order: str, policy: str) -> Simulation:
    job = simulated_job([20] * 1000, in_order=True, reducers=8, policy=policy, stage_overhead=0)
    return Simulation(job, [f"key-{n}" for n in range(500)], stream(order)).play()


@pytest.mark.parametrize("order", mostly_long(["random", "late"], "random"))
def test_a_replay_is_off_by_no_more_than_it_says_and_exact_where_it_says_nothing(order: str) -> None:
    off = {}
    for policy in ("static", "adaptive", "partial_key", "doubling", "halving"):
        truth = recorded(ordered_run(order, policy)).makespan_over_bound
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


def test_a_replay_of_joined_stretches_of_the_input_says_that_it_may_be_off_by_more() -> None:
    for in_order, said in ((True, JOINED_ERROR), (False, ORDER_ERROR)):
        job = simulated_job([20] * 1000, in_order=in_order, reducers=8)
        run = Simulation(job, [f"key-{n}" for n in range(500)], stream("late"), overhead_seconds=2000.0).play()
        assert any(report.waves[1] - report.waves[0] > 1 for report in run.reports)
        assert replay(run.job, run.reports, "static").error == said


def test_on_a_plain_ring_without_backlog_the_rows_of_each_task_are_exact() -> None:
    found, truth = played(zipf_run(), "static").reports, zipf_run("static").reports
    total, exact = (sum(report.processed for report in reports) for reports in (found, truth))
    np.testing.assert_array_equal(total, exact)
    assert [report.admitted_rows for report in found] == [report.admitted_rows for report in truth]


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
    """All sums of a report agree with one another."""
    histogram = report.histogram
    assert report.admitted_rows + report.backlog_in_rows == report.processed_rows + report.backlog_rows
    assert report.forwarded_rows <= report.backlog_in_rows
    for name in ("processed_rows", "backlog_rows"):
        assert sum(getattr(load, name) for load in report.tasks) == getattr(report, name)
    seen, left = (sum(pair[side] for pair in histogram.head.values()) for side in (0, 1))
    assert seen + sum(histogram.seen_tail) + histogram.seen_null_rows == histogram.seen_rows
    assert left + sum(histogram.backlog_tail) + histogram.backlog_null_rows == report.backlog_rows
    assert all(before >= over for before, over in histogram.head.values())


@pytest.mark.parametrize("run", [zipf_run, awkward_run], ids=["all keys named", "few named, many null"])
def test_counts_by_wave_add_up_to_what_each_report_says(run: Callable[[], Simulation]) -> None:
    source = run()
    counts = WaveCounts.of_reports(source.job, source.reports)
    assert counts.by_item.min() >= 0
    keys = len(counts.keys)
    for report in source.reports:
        seen = counts.rows_of((0, report.waves[1]))
        slots = seen[keys:-1] + np.bincount(counts.slots, weights=seen[:keys], minlength=counts.ring_slots)
        np.testing.assert_allclose(slots, slot_rows(report.histogram), atol=1e-6)
        assert seen[-1] == pytest.approx(report.histogram.seen_null_rows)
    last = source.reports[-1].histogram.head
    np.testing.assert_allclose(seen[:keys], [last[key][0] for key in counts.keys], atol=1e-6)


def test_rows_of_a_key_that_was_not_named_yet_come_out_of_its_slot() -> None:
    run = awkward_run()
    counts = WaveCounts.of_reports(run.job, run.reports)
    first = run.reports[0]
    always = [all(key in report.histogram.head for report in run.reports) for key in counts.keys]
    named = [(number, key) for number, key in enumerate(counts.keys) if always[number]]
    late = [number for number, known in enumerate(always) if not known]
    assert named
    assert late
    seen = counts.rows_of(first.waves)
    assert seen[[number for number, _ in named]] == pytest.approx([first.histogram.head[key][0] for _, key in named])
    assert 0 < seen[late].sum() <= slot_rows(first.histogram).sum() - seen[[number for number, _ in named]].sum() + 1e-6


def test_as_it_ran_tells_the_recorded_figures() -> None:
    run = zipf_run()
    told = recorded(run)
    assert told.stages == len(run.reports)
    assert told.rows_forwarded == sum(report.forwarded_rows for report in run.reports)
    assert told.makespan_over_bound == pytest.approx(sum(run.makespans) / (len(run.rows) / 8))
    assert told.decisions == tuple(decision.sentence for decision in run.decisions)


def test_a_run_on_another_ring_than_a_policy_begins_with_is_counted_on_that_one() -> None:
    """One token for each of many reducers needs a finer ring than 64 tokens do."""
    strict = synthetic.simulated(zipf_rows(2000, 1.1, 60_000), reducers=64, policy="doubling", strict=True).play()
    plain = synthetic.simulated(zipf_rows(2000, 1.1, 60_000), reducers=64, policy="static").play()
    assert strict.plans[0].ring.ring_bits > plain.plans[0].ring.ring_bits
    found, truth = replay(strict.job, strict.reports, "static"), recorded(plain)
    assert found.makespan_over_bound == pytest.approx(truth.makespan_over_bound)
    assert found.s == pytest.approx(truth.s)
    assert replay(strict.job, strict.reports, "adaptive").makespan_over_bound == pytest.approx(1.0, abs=0.1)
    assert found.error == 0.0, "slots of a finer ring add up"
    finer = plain.job.spec.routing.model_copy(update={"tokens": 128})
    job = plain.job.model_copy(update={"spec": plain.job.spec.model_copy(update={"routing": finer})})
    assert replay(job, plain.reports, "static").error == ORDER_ERROR, "what is in half a slot nobody counted"


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


def test_skew_is_that_of_the_paper() -> None:
    run = zipf_run("static")
    most = int(np.sum([report.processed for report in run.reports], axis=0).max())
    rows, fair = len(run.rows), -(-len(run.rows) // 8)
    assert replay(run.job, run.reports, "static").s == pytest.approx((most - fair) / (rows - fair))


def test_keys_that_may_not_be_split_are_not_split_in_a_replay_either() -> None:
    run = zipf_run("static")
    job = run.job.model_copy(update={"algebra": dict.fromkeys(run.job.algebra, WHOLE)})
    plans = counted_run(job, run.reports, "adaptive").plans
    assert all(len(shares) == 1 for plan in plans for shares in plan.head.values())


def test_a_run_that_has_not_ended_is_refused_in_one_sentence() -> None:
    run = zipf_run()
    with pytest.raises(PlanError, match=r"replay: expected .* all 4 waves, .* 2 stages.*let the run end first"):
        replay(run.job, run.reports[:2], "static")
    with pytest.raises(PlanError, match="let the run end first"):
        replay(run.job, [], "static")


def test_an_empty_run_is_replayed_to_nothing() -> None:
    job = simulated_job([], reducers=3)
    run = Simulation(job, [], np.zeros(0, dtype=np.int64)).play()
    found = replay(job, run.reports, "adaptive")
    assert (found.stages, found.states, found.rows_forwarded, found.s) == (1, 0, 0, 0.0)


# The certificate of a whole run: the same figure wherever it is said, and never better than the best there is.

WAVES = (10, 20, 70)


def elastic(**routing: Any) -> Simulation:
    """A run that begins with two reducers and may have others."""
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
    slots = run.job.spec.routing.parallelism
    found = run_certificate(run.job, run.reports)
    assert (found.tasks, found.total_rows) == (slots, run.job.rows)
    assert found.fair_rows == found.bound_rows == run.job.rows / slots
    assert found.makespan_rows == sum(run.makespans), "what the slots took, one stage after the other"
    assert found.gap is not None
    assert found.gap >= 0
    assert found.over_fair == pytest.approx(1 + found.gap)


def test_a_run_that_ends_even_on_added_reducers_is_certified_against_all_slots_from_its_first_stage_on() -> None:
    run = elastic(reducer_range=[2, 8])
    found = run_certificate(run.job, run.reports)
    assert found.gap is not None
    alone = run.makespans[0] - run.reports[0].processed_rows / 8
    assert found.gap * found.bound_rows >= alone > 0, "two tasks on eight slots leave six of them idle"
    assert stage_certificate(run.job, run.reports[-1]).gap == pytest.approx(0, abs=0.05)


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


def test_reports_that_claim_less_than_any_run_takes_are_refused() -> None:
    run = elastic()
    report = run.reports[-1]
    short = report.model_copy(update={"processed_rows": 10 * report.processed_rows})
    with pytest.raises(PlanError, match=r"certificate: expected a makespan of at least .*, but got "):
        run_certificate(run.job, [*run.reports[:-1], short])


def combined(*rows: int) -> tuple[Simulation, StageReport]:
    """A run of four slots, and the report of a stage that reduced so many rows in each input split."""
    run = simulated(zipf_rows(10, 1.0, 1_000), (1,), reducers=4).play()
    total = sum(rows) or 1_000
    splits = tuple(SplitLoad(rows=one) for one in rows)
    update = {"tasks": (), "splits": splits, "processed_rows": total, "admitted_rows": total}
    return run, run.reports[0].model_copy(update=update)


def test_input_splits_that_are_reduced_where_they_are_read_are_scheduled_as_tasks_are() -> None:
    run, report = combined(100, 100, 100, 100, 300, 100)
    found = run_certificate(run.job, [report])
    assert (found.makespan_rows, found.bound_rows, found.gap) == (400, 200, 1.0)
    assert report.max_over_mean == pytest.approx(300 / (800 / 6))


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


def test_splits_that_do_not_add_up_are_no_report() -> None:
    _, report = combined(100, 200)
    raw = report.model_dump(mode="json")
    raw["splits"]["rows"][0] += 1
    with pytest.raises(ValueError, match="splits that have all 300 rows processed"):
        StageReport.model_validate(raw)
