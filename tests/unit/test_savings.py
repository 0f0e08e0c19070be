"""What a night has cost, and what routing has saved, beside runs under plain hashing that were really played."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.simulation import Simulation
from skewless.bounds import run_certificate
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport, TaskLoad
from skewless.documents.step_documents import AS_IT_RAN, Amounts, RunBill, Savings, StepBill
from skewless.errors import SpecError
from skewless.replay.replay import replay
from skewless.replay.savings import longest_seconds, savings_of
from skewless.run.directory import COMPARISON_STEP, RESULT_STEP, SAVINGS, STAGE_REPORT, RunDirectory, stage_step
from skewless.run.run_bills import Rates, bill_of, nights, rates_of
from skewless.run.step_times import timed_step
from skewless_cli.main import main
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


RATES = "core_hour: 3.6\ncurrency: EUR\n"


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
    assert (found.unknown, found.lost_seconds, found.held) == (3, 200.0, 500.0)


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


def test_the_price_of_a_core_is_read_from_the_data_root(tmp_path: Path) -> None:
    assert rates_of(str(tmp_path)) is None
    (tmp_path / "costs.yaml").write_text(RATES)
    rates = rates_of(str(tmp_path))
    assert rates == Rates(core_hour=3.6, currency="EUR")
    assert rates.price(100.0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("core_hour: 0\ncurrency: EUR\n", "core_hour"),
        ("core_hour: true\ncurrency: EUR\n", "core_hour"),
        ("core_hour: 1\ncurrency: euros\n", "currency"),
        ("core_hour: 1\ncurrency: EUR\nkey: secret\n", "key"),
        ("- 1\n", "a YAML mapping"),
    ],
)
def test_a_wrong_price_is_told_in_a_sentence(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "costs.yaml").write_text(text)
    with pytest.raises(SpecError, match=told):
        rates_of(str(tmp_path))


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
    (root / "costs.yaml").write_text(RATES)
    told = json.loads(called(monkeypatch, capsys, "--root", str(root), "--json")[1])
    first, second = told["days"]
    assert (first["day"], second["day"], told["total"]["runs"]) == ("2026-11-20", "2026-11-21", 3)
    assert (second["used_seconds"], second["idle_seconds"], second["skew_seconds"], second["lost_seconds"]) == (
        120.0, 20.0, 60.0, 100.0,
    )  # fmt: skip
    assert (first["price"], second["price"], told["total"]["price"]) == (0.1, 0.3, 0.4)
    assert [(sums["saved_seconds"], sums["saved_runs"]) for sums in (first, told["total"])] == [(15.0, 1), (30.0, 2)]
    text = called(monkeypatch, capsys, "--root", str(root))[1]
    assert "price, EUR" in text
    assert "30.0 s (2 of 3 runs)" in text, "of the views nobody knows it"
    assert "3.6 EUR for a core and an hour" in text


def test_without_a_price_there_is_none_and_days_and_jobs_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(root_of_nights(tmp_path))
    code, text, _ = called(monkeypatch, capsys, "clicks", "--root", root)
    assert code == 0
    assert "price," not in text
    assert "EUR" not in text
    assert "costs.yaml" in text
    assert [line.split()[0] for line in text.splitlines()[:4]] == ["day", "2026-11-20", "2026-11-21", "total"]
    told = json.loads(called(monkeypatch, capsys, "clicks", "--since", "2026-11-21", "--root", root, "--json")[1])
    assert ([day["day"] for day in told["days"]], told["total"]["price"]) == (["2026-11-21"], None)
    code, _, err = called(monkeypatch, capsys, "nothing", "--root", root)
    assert (code, "no run of job nothing has a bill" in err) == (1, True)
    assert called(monkeypatch, capsys, "--since", "yesterday", "--root", root)[0] == 2
