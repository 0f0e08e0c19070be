"""What a night has cost, and what routing has saved, beside runs under plain hashing that were really played."""

import datetime as dt
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.simulation import Simulation
from skewless.bounds import run_certificate
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport, TaskLoad
from skewless.documents.step_documents import AS_IT_RAN, Amounts, Replayed, RunBill, Savings, StepBill
from skewless.replay import as_it_ran, replay
from skewless.run.directory import COMPARISON_STEP, RESULT_STEP, SAVINGS, STAGE_REPORT, RunDirectory, stage_step
from skewless.run.step_times import bill_of, nights, timed_step
from skewless.savings import longest_seconds, savings_of
from skewless_cli.main import main
from skewless_lake import publication as replays
from skewless_lake.publication import keep_savings
from tests.unit import synthetic


@cache
def played(policy: str = "adaptive", slots: int | None = None, costs: str = "none") -> Simulation:
    """A run whose tasks measured their times, unless rows have no costs; plain hashing takes one stage."""
    run = synthetic.simulated(
        synthetic.zipf_rows(2000, 1.1, 60_000), (1, 4) if policy == "adaptive" else (1,), reducers=8, policy=policy,
        slots=slots,
    )  # fmt: skip
    draw = np.random.default_rng(3)
    run.costs = {"none": None, "alike": np.full(2000, 0.001), "unlike": draw.lognormal(-7.0, 1.0, 2000)}[costs]
    return run.play()


def told(run: Simulation, job: Job | None = None, reports: list[StageReport] | None = None) -> Savings:
    job, reports = job or run.job, reports or (run.reports if run.costs is not None else untimed(run))

    def replayed(policy: str) -> Replayed:
        return as_it_ran(job, run.plans, reports, []) if policy == AS_IT_RAN else replay(job, reports, policy)

    return savings_of(job, run.plans, reports, replayed)


def over_bound(run: Simulation) -> float:
    gap = run_certificate(run.job, run.reports).gap
    assert gap is not None
    return 1.0 + gap


def untimed(run: Simulation) -> list[StageReport]:
    untimed = [[load.model_copy(update={"busy_seconds": None}) for load in one.tasks] for one in run.reports]
    return [one.model_copy(update={"tasks": tuple(tasks)}) for one, tasks in zip(run.reports, untimed, strict=True)]


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


@pytest.mark.parametrize("costs", ["alike", "unlike"])
@pytest.mark.parametrize("slots", [2, 4, 8, 16])
def test_the_time_of_plain_hashing_is_told_to_a_tenth_where_rows_were_timed(slots: int, costs: str) -> None:
    run, plain = played("adaptive", slots, costs), played("static", slots, costs)
    found, seconds = told(run), longest_seconds(plain.job, plain.reports)
    assert found.seconds == pytest.approx(sum(run.makespans), abs=1e-3)
    assert found.against_seconds == pytest.approx(seconds, rel=0.1 if costs == "unlike" else 0.01)
    assert f", {found.against_seconds:,.1f} s in place of {found.seconds:,.1f} s (" in found.sentence
    itself = told(plain)
    assert itself.sentence.startswith(
        "Policy static is plain hashing: it routed the rows of this run. `skewless replay`"
    )
    assert (itself.over_bound, itself.against_over_bound, itself.seconds_saved) == (None, None, None)


def test_no_time_is_told_where_the_costs_of_rows_do_not_tell_that_of_the_run() -> None:
    run = played(costs="alike")
    slow = synthetic.simulated(synthetic.zipf_rows(2000, 1.1, 60_000), (1, 4), reducers=8)
    slow.costs, slow.speeds = run.costs, np.array([0.3, 1.0])
    first, *others = run.reports
    (task, *tasks) = first.tasks
    unknown = first.model_copy(update={"tasks": (task.model_copy(update={"busy_seconds": None}), *tasks)})
    idle = TaskLoad(task="9-0-1", queued_rows=0, processed_rows=0, backlog_rows=0, states=0)
    fields = {name: getattr(first, name) for name in StageReport.model_fields} | {"tasks": (*first.tasks, idle)}
    assert longest_seconds(run.job, [StageReport(**fields)]) is not None
    bare = run.reports[-1].model_copy(update={"histogram": played().reports[-1].histogram})
    for found in (
        told(slow.play()),
        told(run, reports=[unknown, *others]),
        told(run, reports=[*run.reports[:-1], bare]),  # whether keys cost alike is not known
        told(run, reports=[first.model_copy(update={"slots": 4}), *others]),
    ):
        assert (found.against_seconds, " in place of " in found.sentence) == (None, False)
        assert found.against_over_bound is not None


def test_where_nothing_was_to_be_saved_it_says_so() -> None:
    even = synthetic.simulated(synthetic.zipf_rows(1, 1.0, 60_000), reducers=1, policy="adaptive").play()
    assert told(even).sentence == (
        "Nothing was to be saved: plain hashing would have come as near to the best possible "
        "(1.00 of the best possible, this run 1.00)."
    )
    skewed = played("static")
    same = told(skewed, job=skewed.job.model_copy(update={"spec": played().job.spec}))
    assert same.sentence.startswith("Routing has saved nothing: plain hashing would have come as near to the best"), (
        "not that nothing was to be saved, as the best possible is far below"
    )


@pytest.mark.parametrize(
    ("ratio", "begin"), [(0.97, "Routing did not pay"), (0.99, "Routing has saved nothing"), (1.03, "Plain")]
)
def test_two_in_a_hundred_are_nothing(ratio: float, begin: str) -> None:
    run, reports = played(), untimed(played())
    own = as_it_ran(run.job, run.plans, reports, [])
    plain = own.model_copy(update={"makespan_over_bound": ratio * over_bound(run)})
    sentence = savings_of(run.job, run.plans, reports, {AS_IT_RAN: own, "static": plain}.__getitem__).sentence
    assert sentence.startswith(begin)


def test_a_run_that_sent_no_row_has_nothing_to_save_and_one_that_counted_none_does_not_know() -> None:
    run = played()
    combine = run.plans[0].model_copy(update={"engine": "combine"})
    found = savings_of(run.job, [combine], run.reports[:1], lambda _: pytest.fail("it is not replayed"))
    assert found.sentence.startswith("No row was sent to a task: every input split was aggregated where it was read")
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


def step_bill(attempt: str = "a", **fields: Any) -> StepBill:
    given = {
        "attempts": (attempt,), "cores": 4, "tasks": 8, "held_seconds": 100.0, "used_seconds": 60.0,
        "skew_seconds": 30.0,
        "shuffle_bytes": 1_000, "spilled_bytes": 0,
    }  # fmt: skip
    return StepBill(**{**given, **fields})


def night(**fields: Any) -> RunBill:
    return RunBill((("stage 0", step_bill(**fields)),), (), 0)


def savings() -> Savings:
    return Savings(sentence="", policy="adaptive", seconds=16.0, against_seconds=31.0)


def test_held_is_used_idle_and_lost_to_skew_and_more_than_was_held_is_no_bill() -> None:
    amounts = night().counted
    assert amounts == Amounts(held=100.0, used=60.0, idle=10.0, skew=30.0, shuffle_bytes=1_000, spilled_bytes=0)
    assert Amounts.total([amounts, amounts]).held == 200.0
    step_bill(held_seconds=89.98)  # Spark rounds to a millisecond: of 8 tasks and 4 cores, at the begin and at the end
    with pytest.raises(ValidationError, match="core-seconds that were held"):
        step_bill(held_seconds=89.97)


class Ticks:
    def __init__(self) -> None:
        self._ticks: Iterator[float] = (float(number) for number in range(1_000))

    def __call__(self) -> float:
        return next(self._ticks)


def tried(run: RunDirectory, step: str, place: str, *, commits: bool, fails: bool = False, tasks: int = 8) -> None:
    with suppress(ZeroDivisionError), timed_step(run, step, Ticks()) as clock:
        clock.bill = step_bill(tasks=tasks)
        attempt = run.new_attempt(place)
        Path(attempt.path("")).mkdir(parents=True)
        if commits:
            attempt.commit([], {})
        _ = 1 / (not fails)


def test_the_try_that_committed_counts_and_the_others_are_lost(tmp_path: Path) -> None:
    """The first to end well need not be the first to commit; and a driver that was killed leaves nothing to tell."""
    run, stage = RunDirectory(str(tmp_path / "run")), stage_step(0)
    tried(run, "stage 0", stage, commits=False, fails=True)
    tried(run, "stage 0", stage, commits=False)
    tried(run, "stage 0", stage, commits=True)
    tried(run, "merge", RESULT_STEP, commits=True)
    tried(run, "compare", COMPARISON_STEP, commits=True)
    for place in (stage, stage_step(1), RESULT_STEP):
        Path(run.new_attempt(place).path("")).mkdir(parents=True)
    Path(run.path("times/torn.json")).write_text("{")
    found = bill_of(run)
    places = {"compare": COMPARISON_STEP, "merge": RESULT_STEP, "stage 0": stage}
    attempts = {name: (run.committed(place).attempt,) for name, place in places.items()}
    assert {name: bill.attempts for name, bill in found.steps} == attempts
    assert [name for name, _ in found.lost] == ["stage 0", "stage 0"]
    assert (found.unknown, found.lost_seconds, found.counted.held) == (3, 200.0, 300.0)


def test_of_clusters_that_share_a_stage_each_counts(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"))
    for name in ("east", "west"):
        tried(run, f"stages on {name}", stage_step(0), commits=name == "west")
    tried(run, "stages on west", stage_step(0), commits=False, fails=True)
    found = bill_of(run)
    assert [name for name, _ in found.steps] == ["stages on east", "stages on west"]
    assert [name for name, _ in found.lost] == ["stages on west"]


def test_a_step_that_found_all_done_costs_no_try(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"))
    tried(run, "merge", RESULT_STEP, commits=True)
    with timed_step(run, "merge", Ticks()) as clock:
        clock.bill = step_bill(tasks=0, held_seconds=1.0, used_seconds=0.0, skew_seconds=0.0)
    assert (len(bill_of(run).steps), bill_of(run).lost) == (1, ())


def root_of_nights(folder: Path) -> Path:
    """Two jobs, one of them with two nights, the second of which lost a try."""
    job = synthetic.job([1_000], reducers=4)
    for name, run_id, day, losses in (
        ("clicks", "one", 20, 0), ("clicks", "two", 21, 1), ("views", "one", 21, 0)
    ):  # fmt: skip
        run = RunDirectory(str(folder / "runs" / name / run_id))
        run.write_once("job.json", job.model_copy(update={"date": dt.date(2026, 11, day)}))
        for _ in range(losses):
            tried(run, "stage 0", stage_step(0), commits=False, fails=True)
        with timed_step(run, "stage 0", Ticks()) as clock:
            clock.bill = step_bill()
            attempt = run.new_attempt(stage_step(0))
            attempt.commit([], {})
        if name == "clicks":
            run.write_once(SAVINGS, savings())
    return folder


def test_lost_tries_alone_are_a_bill_and_a_run_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    root = root_of_nights(tmp_path) / "runs"
    lost = RunDirectory(str(root / "views" / "lost"))
    lost.write_once("job.json", synthetic.job([1_000]))
    tried(lost, "stage 0", stage_step(0), commits=False, fails=True)
    RunDirectory(str(root / "views" / "begun")).write_once("job.json", synthetic.job([1_000]))
    for name, content in (("torn", "{"), ("empty", ""), ("another", "{}")):
        (root / "views" / name).mkdir()
        (root / "views" / name / "job.json").write_text(content)
    found = [(one.job, one.run) for one in nights(str(root))]
    assert found == [("clicks", "one"), ("clicks", "two"), ("views", "lost"), ("views", "one")]


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["skewless", "costs", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_the_command_tells_each_day_and_the_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = root_of_nights(tmp_path)
    told = json.loads(called(monkeypatch, capsys, "--root", str(root), "--json")[1])
    first, second = told["days"]
    assert (first["day"], second["day"], told["total"]["runs"]) == ("2026-11-20", "2026-11-21", 3)
    assert (second["used_seconds"], second["idle_seconds"], second["skew_seconds"], second["lost_seconds"]) == (
        120.0, 20.0, 60.0, 100.0,
    )  # fmt: skip
    assert [(sums["saved_seconds"], sums["saved_runs"]) for sums in (first, told["total"])] == [(15.0, 1), (30.0, 2)]
    text = called(monkeypatch, capsys, "--root", str(root))[1]
    assert "30.0 s (2 of 3 runs)" in text, "of the views nobody knows it"


def test_days_and_jobs_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(root_of_nights(tmp_path))
    code, text, _ = called(monkeypatch, capsys, "clicks", "--root", root)
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()[:4]] == ["day", "2026-11-20", "2026-11-21", "total"]
    told = json.loads(called(monkeypatch, capsys, "clicks", "--since", "2026-11-21", "--root", root, "--json")[1])
    assert [day["day"] for day in told["days"]] == ["2026-11-21"]
    code, _, err = called(monkeypatch, capsys, "nothing", "--root", root)
    assert (code, "no run of job nothing has a bill" in err) == (1, True)
    assert called(monkeypatch, capsys, "--since", "yesterday", "--root", root)[0] == 2
