"""What a night has cost: which tries count, and the price."""

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

from skewless.documents.step_documents import Amounts, RunBill, Savings, StepBill
from skewless.errors import SpecError
from skewless.run.directory import COMPARISON_STEP, RESULT_STEP, SAVINGS, RunDirectory, stage_step
from skewless.run.run_bills import Rates, bill_of, rates_of
from skewless.run.step_times import timed_step
from skewless_cli.main import main
from tests.unit import synthetic

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
    for place in (stage, RESULT_STEP):
        Path(run.new_attempt(place).path("")).mkdir()
    found = bill_of(run)
    places = {"compare": COMPARISON_STEP, "merge": RESULT_STEP, "stage 0": stage}
    attempts = {name: (run.committed(place).attempt,) for name, place in places.items()}
    assert {name: bill.attempts for name, bill in found.steps} == attempts
    assert [name for name, _ in found.lost] == ["stage 0", "stage 0"]
    assert (found.unknown, found.lost_seconds, found.held) == (2, 200.0, 500.0)


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
