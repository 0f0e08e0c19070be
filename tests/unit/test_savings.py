"""What a run has saved, in a sentence: beside runs under plain hashing that were really played."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks.simulation import Simulation
from skewless.bounds import run_certificate
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport, TaskLoad
from skewless.documents.step_documents import AS_IT_RAN, Savings
from skewless.replay.replay import replay
from skewless.replay.savings import longest_seconds, savings_of
from skewless.run.directory import SAVINGS, STAGE_REPORT, RunDirectory, stage_step
from skewless_lake import publication as replays
from skewless_lake.publication import keep_savings
from tests.unit import synthetic


@cache
def played(policy: str = "adaptive", exponent: float = 1.1) -> Simulation:
    counts = synthetic.zipf_rows(2000, exponent, 60_000)
    return synthetic.simulated(counts, reducers=8, policy=policy).play()


def told(run: Simulation, job: Job | None = None, reports: list[StageReport] | None = None) -> Savings:
    job, reports = job or run.job, reports or timed(run, None)
    return savings_of(job, run.plans, reports, lambda: replay(job, reports, "static"))


def over_bound(run: Simulation) -> float:
    gap = run_certificate(run.job, run.reports).gap
    assert gap is not None
    return 1.0 + gap


def timed(run: Simulation, seconds_per_row: float | None) -> list[StageReport]:
    def busy(load: TaskLoad) -> TaskLoad:
        seconds = None if seconds_per_row is None else seconds_per_row * load.processed_rows
        return load.model_copy(update={"busy_seconds": seconds})

    return [one.model_copy(update={"tasks": tuple(map(busy, one.tasks))}) for one in run.reports]


def test_a_run_says_what_plain_hashing_would_have_made_of_its_longest_task() -> None:
    plain, ours = over_bound(played("static")), over_bound(played())
    found = told(played())
    assert plain / ours > 1.1
    assert found.sentence == (
        f"Plain hashing would have made the longest task {plain / ours:.1f} times as long "
        f"({plain:.2f} of the best possible, this run {ours:.2f})."
    )
    assert found.against_over_bound == pytest.approx(plain, rel=0.02)
    assert (found.policy, found.seconds, found.against_seconds) == ("adaptive", None, None)


@pytest.mark.parametrize("slots", [2, 8, 16])
def test_seconds_are_told_where_each_task_has_measured_its_own_by_the_slots_of_its_stage(slots: int) -> None:
    ours, plain = (
        [one.model_copy(update={"slots": slots}) for one in timed(run, 0.001)] for run in (played(), played("static"))
    )
    found = told(played(), reports=ours)
    assert found.seconds == pytest.approx(longest_seconds(played().job, ours), abs=1e-3)
    assert found.against_seconds == pytest.approx(longest_seconds(played().job, plain), rel=0.02)
    assert f", {found.against_seconds:,.1f} s in place of {found.seconds:,.1f} s (" in found.sentence
    assert (found.seconds_saved or 0.0) > 0
    itself = told(played("static"), reports=plain)
    assert itself.sentence.startswith(
        "Policy static is plain hashing: it routed the rows of this run. `skewless replay`"
    )
    assert (itself.over_bound, itself.against_over_bound, itself.seconds_saved) == (None, None, None)
    (first, *others) = ours[0].tasks
    one_unknown = ours[0].model_copy(update={"tasks": (first.model_copy(update={"busy_seconds": None}), *others)})
    assert told(played(), reports=[one_unknown, *ours[1:]]).seconds is None


def test_a_time_is_not_told_where_a_replay_may_be_further_off_or_keys_cost_unlike() -> None:
    run, ours = played(), timed(played(), 0.001)
    off = replay(run.job, ours, "static").model_copy(update={"error": 0.2})
    found = savings_of(run.job, run.plans, ours, lambda: off)
    assert (found.seconds is None, found.against_seconds, " in place of " in found.sentence) == (False, None, False)
    last = ours[-1].histogram
    dear = last.model_copy(update={"head_seconds": dict.fromkeys(list(last.head)[:1], 50.0), "tail_seconds": 9.0})
    assert told(run, reports=[*ours[:-1], ours[-1].model_copy(update={"histogram": dear})]).against_seconds is None


def test_where_nothing_was_to_be_saved_it_says_so() -> None:
    even = synthetic.simulated(synthetic.zipf_rows(1, 1.0, 60_000), reducers=1, policy="adaptive").play()
    assert told(even).sentence == (
        "Nothing was to be saved: plain hashing would have come as near to the best possible "
        "(1.00 of the best possible, this run 1.00)."
    )
    skewed = played("static")
    worse = skewed.job.model_copy(update={"spec": played().job.spec})
    balanced = told(skewed, job=worse)
    assert balanced.sentence.startswith("Nothing was to be saved"), "the same loads, whatever the policy"


@pytest.mark.parametrize(("ratio", "begin"), [(0.97, "Routing did not pay"), (0.99, "Nothing was"), (1.03, "Plain")])
def test_two_in_a_hundred_are_nothing(ratio: float, begin: str) -> None:
    run, reports = played(), timed(played(), None)
    plain = replay(run.job, reports, "static").model_copy(update={"makespan_over_bound": ratio * over_bound(run)})
    assert savings_of(run.job, run.plans, reports, lambda: plain).sentence.startswith(begin)


def test_a_run_that_sent_no_row_has_nothing_to_save_and_one_that_counted_none_does_not_know() -> None:
    run = played()
    combine = run.plans[0].model_copy(update={"engine": "combine"})
    found = savings_of(run.job, [combine], run.reports[:1], lambda: replay(run.job, run.reports[:1], "static"))
    assert found.sentence.startswith("Nothing was to be saved by routing: every input split was aggregated where")
    uncounted = [one.model_copy(update={"tasks": ()}) for one in run.reports]
    assert told(run, reports=uncounted).sentence == (
        "What routing has saved is not known: not measured: the rows of each task were not counted."
    )
    unfinished = told(run, reports=run.reports[:1])
    assert unfinished.sentence.startswith("What routing has saved is not known: ")


def recorded(folder: Path) -> RunDirectory:
    run, of = RunDirectory(str(folder)), played()
    run.write_once("job.json", of.job)
    for plan in of.plans:
        run.write_once(f"plans/{plan.epoch:04d}.json", plan)
    for report in of.reports:
        attempt = run.new_attempt(stage_step(report.stage))
        attempt.write(STAGE_REPORT, report)
        attempt.commit([], {})
    return run


def test_it_is_kept_once_with_its_replays_and_publishing_does_not_fail_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, of = recorded(tmp_path / "run"), played()
    assert (run.savings(), run.replayed("static")) == (None, None)
    saved = keep_savings(run)
    assert saved == run.savings() == told(of, reports=of.reports)
    assert run.replayed("static") == replay(of.job, of.reports, "static")
    ran = run.replayed(AS_IT_RAN)
    assert ran is not None
    assert ran.makespan_over_bound == pytest.approx(over_bound(of))
    assert run.replayed("adaptive") is None, "that is for a command"
    monkeypatch.setattr(replays, "replay", lambda *_: pytest.fail("it is read"))
    assert replays.replayed(run, "static") == run.replayed("static")
    assert keep_savings(run) == saved

    def fail(*_: object) -> Savings:
        raise ZeroDivisionError("no rows")

    broken = recorded(tmp_path / "broken")
    monkeypatch.setattr(replays, "savings_of", fail)
    found = keep_savings(broken)
    assert found is not None
    assert found.sentence == "What routing has saved is not known: ZeroDivisionError: no rows."
    (tmp_path / "broken" / SAVINGS).write_text("{")
    assert keep_savings(broken) is None
