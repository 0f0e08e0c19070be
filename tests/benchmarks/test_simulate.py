"""The command ``python -m benchmarks.simulate`` and the staged run behind it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.peers import PEERS
from benchmarks.simulate import main
from benchmarks.staged import imbalances, simulate, unit_sizes
from benchmarks.workloads import numbered, zipf
from skewless.planner.policies import POLICIES
from tests.tiers import mostly_long

NAMES = {
    "policy", "tasks", "messages", "makespan_over_ideal", "imbalance_fraction", "imbalance_final", "states_per_key",
    "rows_forwarded", "stages",
}  # fmt: skip
KEYS = zipf(300, 1.3, 20_000, seed=5)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return saved(tmp_path, KEYS)


def saved(folder: Path, array: Any, name: str = "keys.npy") -> str:
    np.save(folder / name, array)
    return str(folder / name)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    found: dict[str, Any] = json.loads(out)
    assert found.pop("seconds") >= 0
    return found


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert ": expected " in err
    assert ", but got " in err
    return err.removesuffix("\n")


@pytest.mark.parametrize("policy", mostly_long(POLICIES, "adaptive", "static"))
def test_a_staged_policy_answers_with_the_names_of_the_results(
    keys: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "--keys", keys, "--tasks", "6", "--policy", policy)
    assert set(found) == NAMES
    assert (found["policy"], found["tasks"], found["messages"]) == (policy, 6, 20_000)
    assert found["makespan_over_ideal"] >= 1.0
    assert 1.0 <= found["states_per_key"] <= 6.0
    assert 1 <= found["stages"] <= 5


@pytest.mark.parametrize("policy", ["hashing", "pkg", "d_choices_stream", "w_choices_stream"])
def test_a_peer_answers_as_it_does_when_called(keys: str, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--keys", keys, "--tasks", "6", "--policy", policy, "--sources", "3", "--seed", "9")
    assert found == PEERS[policy](KEYS, 6, sources=3, seed=9).as_dict()


def test_without_json_it_prints_lines_to_read(keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--keys", keys, "--tasks", "6", "--policy", "adaptive"]) == 0
    assert "makespan over ideal" in capsys.readouterr().out


def test_waves_and_budget_reach_the_planner(keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--waves", "1,2,3,4,5", "--budget", "1.25", "--units", "200", "--in-order", "--overhead", "0.01")
    found = answer(capsys, "--keys", keys, "--tasks", "6", "--policy", "w_choices", *options)
    outcome, run = simulate(
        KEYS, 6, "w_choices", (1, 2, 3, 4, 5), 1.25, units=200, in_order=True, overhead=0.01
    )  # fmt: skip
    assert found == outcome.as_dict()
    assert list(run.job.spec.routing.waves) == [1, 2, 3, 4, 5]
    assert [len(wave) for wave in run.job.waves] == [14, 26, 40, 54, 66]
    assert run.job.waves[0] == tuple(range(14))
    for plan, report in zip(run.plans[1:5], run.reports[1:5], strict=True):
        assert plan.budget_rows == math.ceil((report.admitted_rows + report.backlog_in_rows) / 6 * 1.25)


def test_costs_and_speeds_make_the_ideal(tmp_path: Path, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    costs, speeds = np.linspace(1, 5, len(np.unique(KEYS))), np.array([1.0, 1.0, 0.5])
    found = answer(
        capsys, "--keys", keys, "--tasks", "3", "--policy", "static",
        "--costs", saved(tmp_path, costs, "costs.npy"), "--speeds", saved(tmp_path, speeds, "speeds.npy"),
    )  # fmt: skip
    _, run = simulate(KEYS, 3, "static", costs=costs, speeds=speeds)
    total = costs[np.unique(KEYS, return_inverse=True)[1]].sum()
    assert found["makespan_over_ideal"] == pytest.approx(sum(run.makespans) / (total / 2.5))


def test_a_key_that_may_not_be_split_has_one_task_in_each_stage(keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--keys", keys, "--tasks", "6", "--policy", "adaptive", "--not-mergeable")
    hottest = np.bincount(KEYS).max() / len(KEYS)
    assert found["makespan_over_ideal"] >= 6 * hottest * 0.9


def test_imbalance_is_that_of_all_rows_a_task_has_processed() -> None:
    outcome, run = simulate(KEYS, 4, "static")
    processed = np.cumsum([[load.processed_rows for load in report.tasks] for report in run.reports], axis=0)
    by_hand = processed.max(axis=1) - processed.mean(axis=1)
    assert imbalances(run.reports) == pytest.approx(by_hand)
    assert outcome.imbalance_final == pytest.approx(by_hand[-1] / 20_000)
    shares = np.diff(processed.sum(axis=1), prepend=0) / 20_000
    assert outcome.imbalance_fraction == pytest.approx((by_hand * shares).sum() / 20_000)
    assert outcome.states_per_key == 1.0


@pytest.mark.parametrize(
    "array",
    [
        np.array([5, 3, 5, 9], dtype=np.int8),
        np.array([5, 3, 5, 9], dtype=">i4"),
        np.array([-5, 3, 2**62, 3]),
        np.array([2**63 + 5, 3, 2**63 + 5], dtype=np.uint64),
        np.array(["zürich", "b", "zürich", ""]),
        np.array([b"b", b"a", b"b"]),
    ],
)
def test_keys_of_any_integer_or_text_type_are_the_same_to_it(
    array: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distinct, numbers = numbered(array)
    assert np.array_equal(distinct, np.unique(array))
    assert np.array_equal(distinct[numbers], array)
    path = saved(tmp_path, np.repeat(array, 50))
    for policy in ("adaptive", "hashing"):
        assert answer(capsys, "--keys", path, "--tasks", "2", "--policy", policy)["messages"] == 50 * len(array)


@pytest.mark.parametrize(("messages", "units"), [(10, 3), (3, 10), (1000, 1000), (1, 1)])
def test_source_partitions_are_of_equal_size(messages: int, units: int) -> None:
    sizes = unit_sizes(messages, units)
    assert (sum(sizes), len(sizes)) == (messages, min(messages, units))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("array", "came"),
    [
        (np.zeros((3, 2), dtype=int), "an array of shape (3, 2)"),
        (np.array(3), "an array of shape ()"),
        (np.zeros(0, dtype=int), "an empty array"),
        (np.array([1.0, 2.0]), "an array of float64;"),
        (np.array([1.0, np.nan]), "an array of float64 with 1 NaN"),
        (np.array([True]), "an array of bool"),
        (np.array(["a", 1], dtype=object), "an array of Python objects"),
        (np.array([b"\xff"]), "other bytes"),
    ],
)
def test_keys_of_another_kind_are_refused(
    array: np.ndarray, came: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complaint(capsys, "--keys", saved(tmp_path, array), "--tasks", "2", "--policy", "adaptive")
    assert said.startswith("--keys ")
    assert came in said


NO_ARRAYS = {None: "No such file", b"": "another kind of file", b"1,2\n": "another kind of file", b"\x93NUMPY\x01": ""}


@pytest.mark.parametrize(("content", "came"), NO_ARRAYS.items())
def test_a_file_that_is_no_array_is_refused(
    content: bytes | None, came: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.npy"
    if content is not None:
        path.write_bytes(content)
    assert came in complaint(capsys, "--keys", str(path), "--tasks", "2", "--policy", "adaptive")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "adaptve"], "did you mean 'adaptive'"),
        (["--policy", "pkq"], "did you mean 'pkg'"),
        (["--tasks", "0"], "--tasks: expected a whole number from 1"),
        (["--tasks", "many"], "but got 'many'"),
        (["--waves", "1,four"], "--waves: expected finite numbers above 0"),
        (["--waves", "1,,4"], "but got '1,,4'"),
        (["--waves", "1,-4"], "but got '1,-4'"),
        (["--waves", "nan"], "but got 'nan'"),
        (["--waves", ",".join("1" * 33)], "a list of at most 32 items"),
        (["--budget", "0.5"], "routing, field budget: expected at least 1"),
        (["--overhead", "inf"], "--overhead: expected a finite number"),
        (["--units", "0"], "--units: expected a whole number"),
        (["--seed", "-1"], "--seed: expected a whole number"),
        (["--wafes", "1"], "unrecognized arguments: --wafes 1; see --help"),
        (["--policy", "pkg", "--not-mergeable"], "a peer counts messages only"),
    ],
    ids=lambda value: " ".join(value)[:20] if isinstance(value, list) else "",
)
def test_a_bad_option_is_refused_in_one_sentence(
    keys: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in complaint(capsys, "--keys", keys, "--tasks", "4", "--policy", "adaptive", *options)


@pytest.mark.parametrize(
    ("option", "array", "came"),
    [
        ("--costs", np.ones(3), "but got 3 numbers"),
        ("--costs", np.array([1.0, np.nan, 1.0, 1.0]), "but got nan among them"),
        ("--costs", np.zeros(4), "but got nothing but 0"),
        ("--speeds", np.ones(4), "but got 4 numbers"),
        ("--speeds", np.array([1.0, 0.0]), "but got 0.0 among them"),
        ("--speeds", np.array(["fast", "slow"]), "but got an array of <U4"),
    ],
    ids=["few-costs", "nan-cost", "all-free", "many-speeds", "a-stop", "words"],
)
def test_bad_costs_and_speeds_are_refused(
    option: str, array: np.ndarray, came: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, np.arange(40) % 4)
    said = complaint(
        capsys, "--keys", path, "--tasks", "2", "--policy", "adaptive", option, saved(tmp_path, array, "n.npy")
    )
    assert said.startswith(option)
    assert came in said
