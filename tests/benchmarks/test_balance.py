"""A few cells of the balance table, and how its aims are judged."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.balance import cell_lines, document, page, staged_line
from benchmarks.balance_aims import Verdict, verdicts
from benchmarks.balance_lines import OVERHEAD, Cell, Line
from benchmarks.outcome import Outcome
from benchmarks.peers import PEERS
from benchmarks.result_files import as_lines
from benchmarks.workloads import drift, zipf
from skewless.planner.policies import POLICIES
from tests.tiers import mostly_long


@cache
def zipf_keys(exponent: float) -> npt.NDArray[np.int64]:
    return zipf(100_000, exponent, 1_000_000, seed=0)


@pytest.mark.parametrize("exponent", mostly_long([0.8, 1.4, 2.0], 1.4))
def test_adaptive_is_within_2_percent_of_the_ideal_on_100_tasks(exponent: float) -> None:
    line = staged_line(Cell(f"Zipf z={exponent}", 100, exponent), zipf_keys(exponent), "adaptive")
    assert line.outcome.makespan_over_ideal <= 1.02
    assert line.forwarded <= 0.02
    assert line.outcome.stages <= 7


@pytest.mark.long
def test_adaptive_has_fewer_partial_states_than_d_choices() -> None:
    ours = staged_line(Cell("Zipf z=2.0", 100, 2.0), zipf_keys(2.0), "adaptive").outcome
    assert ours.states_per_key <= PEERS["d_choices_stream"](zipf_keys(2.0), 100).states_per_key


@pytest.mark.long
@pytest.mark.parametrize("exponent", [0.8, 1.4, 2.0])
def test_where_stages_cost_a_tenth_of_the_ideal_there_are_at_most_three(exponent: float) -> None:
    line = staged_line(Cell(f"Zipf z={exponent}", 100, exponent), zipf_keys(exponent), "adaptive", OVERHEAD)
    free = staged_line(line.cell, zipf_keys(exponent), "adaptive")
    assert line.scheme == "adaptive, stages cost 10%"
    assert line.outcome.stages <= 3
    assert line.elapsed_over_ideal < free.outcome.makespan_over_ideal + OVERHEAD * free.outcome.stages


@pytest.mark.long
@pytest.mark.parametrize(("units", "most"), [(1_000, 1.10), (10_000, 1.05)])
def test_under_tenfold_drift_few_rows_change_hands(units: int, most: float) -> None:
    line = staged_line(Cell("drift", 100, units=units), drift(100_000, 1.4, 1_000_000), "adaptive")
    assert line.outcome.makespan_over_ideal <= most
    assert line.forwarded <= 0.10
    assert line.outcome.stages <= 7


@cache
def small_lines() -> tuple[Line, ...]:
    keys = zipf(2_000, 1.2, 40_000, seed=0)
    return tuple(cell_lines(Cell("Zipf z=1.2", 50, 1.2), keys))


@pytest.mark.long
def test_a_cell_has_a_line_of_every_policy_and_peer_and_the_page_has_these_and_the_published_figures() -> None:
    schemes, text = [line.scheme for line in small_lines()], page(small_lines())
    assert len(set(schemes)) == len(schemes)
    assert set(schemes) == {"adaptive, stages cost 10%", *POLICIES, *PEERS} - {"pkg_l"}
    assert [scheme for scheme in schemes if f"\n| {scheme} | " not in text] == []
    assert "| hashing | imbalance final | 0.18 (" in text


@pytest.mark.long
def test_the_document_is_json_and_says_no_place_and_no_time() -> None:
    found = json.loads(as_lines(document(small_lines())))
    assert found == json.loads(json.dumps(document(small_lines())))
    assert set(found) == {"setting", "verdicts", "lines"}
    assert len(found["lines"]) == len(small_lines())
    assert "/" not in json.dumps(found["setting"])
    assert "seconds" not in json.dumps(found["lines"])


def adaptive(makespan: float, cell: Cell, overhead: float = 0.0, stages: int = 5) -> tuple[Line, ...]:
    """A made-up line, and those it is held against."""
    outcome = Outcome("adaptive", cell.tasks, 1000, makespan, 0.0, 0.0, 1.0, 0, stages)
    peers = [
        Line(cell, name, False, 0.0, replace(outcome, policy=name, stages=1))
        for name in ("d_choices_stream", "w_choices_stream")
    ]
    return (Line(cell, "adaptive", True, overhead, outcome), *peers)


def of_aim(start: str, found: list[Verdict]) -> Verdict:
    return next(verdict for verdict in found if verdict.aim.startswith(start))


def test_an_aim_that_one_cell_misses_is_missed_and_says_where() -> None:
    lines = [*adaptive(1.01, Cell("Zipf z=0.8", 50, 0.8)), *adaptive(1.03, Cell("Zipf z=2.0", 100, 2.0))]
    verdict = of_aim("Zipf: makespan", verdicts(lines))
    assert verdict.met is False
    assert verdict.missed == ("1.0300 (Zipf z=2.0, W=100)",)
    assert verdict.words.startswith("MISSED in 1 of 2 cells: ")


def test_an_aim_is_met_up_to_its_limit() -> None:
    verdict = of_aim("Zipf: makespan", verdicts(adaptive(1.02, Cell("Zipf z=0.8", 50, 0.8))))
    assert verdict.met is True
    assert verdict.words == "met: Zipf: makespan within 1.02 of T*; at worst 1.0200 (Zipf z=0.8, W=50)"


def test_a_thousand_tasks_are_judged_apart() -> None:
    found = verdicts(adaptive(1.05, Cell("Zipf z=0.8", 1000, 0.8)))
    assert not any(verdict.aim.startswith("Zipf") for verdict in found)
    assert of_aim("more than 100 tasks: makespan", found).met is False


def test_three_stages_are_the_most_where_they_cost_a_tenth() -> None:
    found = verdicts(adaptive(1.01, Cell("LN1", 100), OVERHEAD, stages=4))
    assert of_aim("at most 3 stages", found).met is False
