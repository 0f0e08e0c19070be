"""What a night has cost: which tries count, what plain hashing would have held, the price, and the next night."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from skewless.documents.bill import Amounts, OtherBill, RunBill, Savings
from skewless.documents.steps import StepBill
from skewless.errors import SpecError
from skewless.replay.replay import replay
from skewless.replay.savings import savings_of
from skewless.run.bill import bill_of, rates_of
from skewless.run.directory import COMPARISON_STEP, RESULT_STEP, SAVINGS, RunDirectory, stage_step
from skewless.run.step_times import timed_step
from skewless.spec.rates import Rates
from skewless_cli.main import main
from tests.unit import synthetic

RATES = "core_hour: 3.6\ncurrency: EUR\n"


def step_bill(attempt: str = "a", **fields: Any) -> StepBill:
    given = {
        "attempts": (attempt,), "cores": 4, "tasks": 8, "held_seconds": 100.0, "used_seconds": 60.0,
        "skew_seconds": 30.0, "reduce_used_seconds": 40.0, "reduce_skew_seconds": 24.0,
        "shuffle_bytes": 1_000, "spilled_bytes": 0,
    }  # fmt: skip
    return StepBill(**{**given, **fields})


def night(**fields: Any) -> RunBill:
    return RunBill((("stage 0", step_bill(**fields)),), (), 0)


def savings(**fields: Any) -> Savings:
    """Half of the slots waited for the longest task, and under plain hashing they would have waited for twice as long.

    The longest task took 16 seconds; at best it would have taken 10, which are 40 core-seconds of all 4 slots.
    """
    given = {
        "sentence": "", "policy": "adaptive", "against": "static", "over_bound": 1.6, "against_over_bound": 3.1,
        "slots": 4, "seconds": 16.0, "against_error": 0.0,
        "whole_keys_over_bound": 2.0,
    }  # fmt: skip
    return Savings(**{**given, **fields})


def test_held_is_used_idle_and_lost_to_skew_and_more_than_was_held_is_no_bill() -> None:
    amounts = night().counted
    assert amounts == Amounts(held=100.0, used=60.0, idle=10.0, skew=30.0, shuffle_bytes=1_000, spilled_bytes=0)
    assert Amounts.total([amounts, amounts]).held == 200.0
    with pytest.raises(ValidationError, match="core-seconds that were held"):
        step_bill(held_seconds=89.0)


def test_plain_hashing_holds_more_by_what_was_measured_for_a_row() -> None:
    plain, keys = night().replayed(savings())
    assert plain == pytest.approx((160.0, 0.0)), "1.5 times the bound's 40 core-seconds more"
    assert keys == pytest.approx((116.0, 0.0))


def test_the_error_is_that_of_the_replay_and_of_the_run_itself() -> None:
    """It was waited for 16 core-seconds more than the own plans say when they are replayed."""
    plain, _ = night(reduce_skew_seconds=40.0, held_seconds=130.0).replayed(savings(against_error=0.2))
    assert plain is not None
    assert plain.error == pytest.approx((0.2 * 3.1 * 40.0 + 16.0) / plain.held)
    assert night().replayed(savings(against_error=2.0))[0] is None, "it says nothing"


@pytest.mark.parametrize("unknown", [{"over_bound": None}, {"seconds": None}, {"against": "adaptive"}])
def test_what_was_not_measured_is_not_told(unknown: dict[str, Any]) -> None:
    assert night().replayed(savings(**unknown))[0] is None
    assert night(reduce_used_seconds=0.0, reduce_skew_seconds=0.0).replayed(savings()) == (None, None)
    assert night().replayed(None) == (None, None)
    waited_too_much = savings(over_bound=9.0, seconds=90.0, against_over_bound=1.0, whole_keys_over_bound=1.0)
    assert night().replayed(waited_too_much) == (None, None), "less than nothing is no bill"


def test_a_run_that_plain_hashing_routed_is_its_own_bill() -> None:
    found = savings(policy="static", against="adaptive")
    assert night().replayed(found)[0] == OtherBill(100.0, 0.0)
    assert night().replayed(savings(policy="static", seconds=None)) == (OtherBill(100.0, 0.0), None)


def test_savings_have_what_a_bill_needs_of_the_replay() -> None:
    run = synthetic.simulated(synthetic.zipf_rows(2000, 1.1, 60_000), reducers=8, policy="adaptive").play()
    found = savings_of(run.job, run.plans, run.reports, lambda policy: replay(run.job, run.reports, policy))
    assert found.slots == 8
    heaviest = max(seen for seen, _ in run.reports[-1].histogram.head.values())
    assert found.whole_keys_over_bound == pytest.approx(max(1.0, heaviest / (60_015 / 8)))
    assert found.against_error is not None


class Ticks:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self._ticks: Iterator[float] = (float(number) for number in range(1_000))

    def __call__(self) -> float:
        return next(self._ticks)


def tried(run: RunDirectory, step: str, place: str, *, commits: bool, fails: bool = False, tasks: int = 8) -> None:
    """A try at a step of Spark."""
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
    Path(run.new_attempt(stage).path("")).mkdir()
    found = bill_of(run)
    places = {"compare": COMPARISON_STEP, "merge": RESULT_STEP, "stage 0": stage}
    attempts = {name: (run.committed(place).attempt,) for name, place in places.items()}
    assert {name: bill.attempts for name, bill in found.steps} == attempts
    assert [name for name, _ in found.lost] == ["stage 0", "stage 0"]
    assert (found.unknown, found.lost_seconds, found.held) == (1, 200.0, 500.0)


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
    assert first["plain_hashing"] == {
        "runs": 1, "held_seconds": 160.0, "saved_seconds": 60.0, "error_seconds": 0.0, "price": 0.16, "saved": 0.06,
    }  # fmt: skip
    text = called(monkeypatch, capsys, "--root", str(root))[1]
    assert "price, EUR" in text
    assert "0.2600 (1 of 2 runs)" in text, "of the views nobody knows it"
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
