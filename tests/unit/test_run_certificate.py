"""The certificate of a whole run: the same figure wherever it is said, and never better than the best there is."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulation import Simulation
from skewless.bounds import NOT_MEASURED
from skewless.documents.stage_report import SplitLoad, StageReport
from skewless.errors import PlanError
from skewless.planner.policies import POLICIES
from skewless.replay.replay import as_it_ran, replay
from skewless.run.certificate import run_certificate, stage_certificate
from tests.tiers import mostly_long
from tests.unit.synthetic import WHOLE, simulated, zipf_rows

WAVES = (10, 20, 70)


def elastic(**routing: int | str) -> Simulation:
    """A run that begins with two reducers and may have others."""
    return simulated(zipf_rows(500, 0.8, 40_000), WAVES, **{"reducers": 2, **routing}).play()


@pytest.mark.parametrize(
    ("routing", "reducers"),
    [
        pytest.param({"max_reducers": 8}, 8, id="more"),
        pytest.param({"max_reducers": 8, "slots": 4}, 4, id="more, but no more than slots"),
        pytest.param({"reducers": 8, "min_reducers": 2, "slots": 2}, 2, id="fewer"),
        pytest.param({"reducers": 8, "min_reducers": 1, "max_reducers": 16, "slots": 3}, 3, id="between"),
    ],
)
def test_reducers_that_come_and_go_change_no_bound(routing: dict[str, int], reducers: int) -> None:
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
    run = elastic(max_reducers=8)
    found = run_certificate(run.job, run.reports)
    assert found.gap is not None
    alone = run.makespans[0] - run.reports[0].processed_rows / 8
    assert found.gap * found.bound_rows >= alone > 0, "two tasks on eight slots leave six of them idle"
    assert stage_certificate(run.job, run.reports[-1]).gap == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("policy", mostly_long(POLICIES, "adaptive", "static", "partial_key"))
def test_replay_says_of_the_run_as_it_ran_what_its_certificate_says(policy: str) -> None:
    run = elastic(policy=policy, max_reducers=8) if policy == "adaptive" else elastic(policy=policy)
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
    raw["splits"][0]["rows"] += 1
    with pytest.raises(ValueError, match="splits that have all 300 rows processed"):
        StageReport.model_validate(raw)
