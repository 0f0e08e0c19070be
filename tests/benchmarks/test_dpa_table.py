from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.dpa.actors import Look, Speeds, play, skew
from benchmarks.dpa.balancers import Adaptive, Nobody
from benchmarks.dpa.experiments import CELLS, ITEMS, LETTERS, PUBLISHED, STARTS, cell, largest_load, misses
from benchmarks.dpa.search import search
from benchmarks.dpa_table import SPEEDS_TABLE, main, markdown, speed_rows
from benchmarks.result_files import RESULTS
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from skewless.routing.ring import Ring

IDS = [f"{workload} {start}" for workload, start in CELLS]


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], dict[str, Any]]:
    return {place: cell(*place) for place in CELLS}


@pytest.mark.parametrize(
    ("processed", "expected"),
    [([25, 25, 25, 25], 0.0), ([100, 0, 0, 0], 1.0), ([81, 19, 0, 0], 56 / 75), ([26, 25, 25, 25], 0.0)],
    ids=["even", "all on one", "the paper's third workload", "one more than can be even"],
)
def test_skew_is_the_largest_load_above_the_fair_one(processed: Sequence[int], expected: float) -> None:
    assert skew(processed) == pytest.approx(expected)


@pytest.mark.parametrize(("workload", "start"), CELLS, ids=IDS)
def test_a_workload_starts_with_the_skew_that_the_paper_publishes(workload: str, start: str) -> None:
    outcome = play(LETTERS[workload], Nobody(STARTS[start]), 0)
    assert round(outcome.skew, 2) == PUBLISHED[workload][start].start
    assert max(outcome.processed) == largest_load(outcome.skew)
    assert len(LETTERS[workload]) == sum(outcome.processed) == ITEMS
    assert outcome.forwarded == 0


@pytest.mark.long
@pytest.mark.parametrize("workload", ["WL3", "WL4"])
def test_the_search_finds_the_workloads_again(workload: str) -> None:
    assert search(workload) == LETTERS[workload]


class Turning:
    """All items go to one reducer, and to the next one after each round."""

    def __init__(self) -> None:
        self.reducer = 0
        self.looks: list[Look] = []

    def owner(self, letter: str, item: int) -> int:
        del letter, item
        return self.reducer

    def relieve(self, look: Look) -> bool:
        self.looks.append(look)
        self.reducer = (self.reducer + 1) % 4
        return True


def test_items_that_wait_are_forwarded_when_their_owner_changes() -> None:
    turning = Turning()
    outcome = play("a" * 20, turning, 1, Speeds(pushes=5, first_look=3, look_every=50))
    first = turning.looks[0]
    assert (first.overloaded, first.items, first.seen, first.processed) == (0, 20, Counter(a=20), (2, 0, 0, 0))
    assert [item for _, item in first.queued] == list(range(2, 20))
    assert outcome.processed == (2, 18, 0, 0)
    assert outcome.rounds == (1, 0, 0, 0)
    assert outcome.forwarded == 18


def test_no_reducer_is_relieved_more_often_than_the_limit() -> None:
    for limit in range(3):
        outcome = play("a" * 100, Turning(), limit, Speeds(look_every=1))
        assert max(outcome.rounds) == limit
        assert sum(outcome.processed) == 100


@pytest.mark.long
def test_halving_never_helps_one_letter_and_doubling_may(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert set(cells["WL3", "halving"]["skew_by_rounds"]["paper's move"]) == {1.0}
    assert min(cells["WL3", "doubling"]["skew_by_rounds"]["paper's move"]) < 1.0


@pytest.mark.long
def test_token_moves_help_where_skew_is_high_and_change_little_where_it_is_low(
    cells: dict[tuple[str, str], dict[str, Any]],
) -> None:
    for place in [("WL1", "doubling"), ("WL4", "halving"), ("WL4", "doubling"), ("WL5", "doubling")]:
        assert cells[place]["skew_with"]["paper's move"] < cells[place]["skew_without"] - 0.2
    for place in [("WL1", "halving"), ("WL2", "halving"), ("WL2", "doubling"), ("WL5", "halving")]:
        assert abs(cells[place]["skew_with"]["paper's move"] - cells[place]["skew_without"]) < 0.15


@pytest.mark.long
def test_further_rounds_never_hurt_halving_and_can_hurt_doubling(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    curves = {place: found["skew_by_rounds"]["paper's move"][1:] for place, found in cells.items()}
    hurt = {start for (_, start), curve in curves.items() if curve != sorted(curve, reverse=True)}
    assert hurt == {"doubling"}


@pytest.mark.long
@pytest.mark.parametrize(("workload", "start"), CELLS, ids=IDS)
def test_the_planner_ends_no_higher_than_the_paper_nor_its_start_and_more_rounds_never_hurt_it(
    workload: str, start: str, cells: dict[tuple[str, str], dict[str, Any]]
) -> None:
    found = cells[workload, start]
    assert misses(found, "adaptive") == []


@pytest.mark.parametrize("letter", list("aHzQ"))
def test_any_letter_alone_is_split_exactly(letter: str) -> None:
    for pushes in (4, 25):
        outcome = play(letter * 100, Adaptive(1), 1, Speeds(pushes=pushes))
        assert outcome.processed == (25, 25, 25, 25)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**40), st.integers(1, 40))
def test_of_four_rows_in_a_row_every_quarter_gets_one_whatever_the_salt(salt: int, block: int, blocks: int) -> None:
    quarters = tuple((task, WHOLE_WEIGHT // 4) for task in range(4))
    plan = RoutingPlan(
        epoch=0, policy="adaptive", waves=(0, 1), ring=Ring.even(4, 1), head={"a": quarters}, share_salt=salt
    )
    rows = range(4 * block, 4 * (block + blocks))
    assert Counter(plan.task_of("a", row) for row in rows) == dict.fromkeys(range(4), blocks)


@pytest.mark.long
def test_both_forms_of_the_results_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--json"], tmp_path)
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "dpa_table.json").read_text(encoding="utf-8"))
    text = (tmp_path / "dpa_table.md").read_text(encoding="utf-8")
    assert text == markdown(found)
    assert "| WL4 | halving | 0.80 | 0.52 | 0.80 |" in text


def test_the_planner_of_the_table_is_the_one_of_a_run() -> None:
    """What it takes over at a look is the next plan of ``plan_next_stage`` on the documents of that look."""
    letters = LETTERS["WL4"]
    balancer = Adaptive(16)
    waiting = tuple((letter, item) for item, letter in enumerate(letters))
    look = Look(0, len(letters), Counter(letters), waiting, (0,) * 4)
    decided = plan_next_stage(balancer.job(look), balancer.plan, balancer.report(look)).next_plan
    assert decided is not None
    assert balancer.relieve(look)
    assert balancer.plan == decided.model_copy(update={"waves": (0, 1)})


def test_the_results_have_the_speeds_at_which_the_table_does_not_hold_and_the_page_tells_them() -> None:
    found = json.loads((RESULTS / "dpa_table.json").read_text(encoding="utf-8"))
    text = (RESULTS / "dpa_table.md").read_text(encoding="utf-8")
    assert "\n- 10 pushes a tick: WL1 doubling 0.480\n" in text
    (row,) = [row for row in speed_rows(found) if row[:2] == ("WL1", "doubling")]
    assert dict(zip(SPEEDS_TABLE, row, strict=True)) == {
        "workload": "WL1", "start": "doubling", "at most": "0.20",
        "2 pushes a tick": "0.09", "4 pushes a tick": "0.09", "5 pushes a tick": "0.09", "6 pushes a tick": "0.67 (!)",
        "8 pushes a tick": "0.67 (!)", "10 pushes a tick": "0.48 (!)", "13 pushes a tick": "0.09",
        "25 pushes a tick": "0.03",
        "first look in tick 2": "0.03", "first look in tick 4": "0.05", "first look in tick 8": "0.11",
    }  # fmt: skip
