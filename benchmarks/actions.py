"""What each action of ``adaptive`` is worth, and where: ``python -m benchmarks.actions``.

Each workload is played with all actions, and once more for each action that was taken, with that one forbidden.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.in_order import EVEN, drifting, late_hot_key
from benchmarks.result_files import RESULTS, page_of, table, write_results
from benchmarks.staged import simulate
from benchmarks.workloads import Keys, zipf
from skewless.planner.forecast.observed_waves import TASK_COST_ROWS
from skewless.planner.policies import POLICIES
from skewless.planner.priced_plan import FORWARD_COST_ROWS, STATE_COST_ROWS

NAME = "actions"
SEED = 0
ROWS, FEW_ROWS = 200_000, 20_000
#: What may be forbidden: an action in words, and the names of its proposals.
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "merge key buckets": ("merge tasks",),
    "split into key buckets": ("split tasks",),
    "split full tasks": ("split full tasks",),
    "change tokens": ("even out tail",),
    "add reducers": ("add reducers",),
    "remove reducers": ("remove reducers",),
    "place the head anew": ("repack", "place whole"),
}


def alike(keys: int) -> Keys:
    """So many keys of the same weight."""
    return np.random.default_rng(SEED).integers(0, keys, ROWS)


def steady() -> Keys:
    """Zipf keys."""
    return zipf(20_000, 1.2, ROWS, SEED)


def growing() -> Keys:
    """A thousand Zipf keys at first, and ever more rows of 60,000 light ones."""
    random = np.random.default_rng(SEED)
    light = random.random(ROWS) < np.linspace(0, 1, ROWS)
    return np.where(light, random.integers(1_000, 60_000, ROWS), zipf(1_000, 1.2, ROWS, SEED))


def cooling() -> Keys:
    """A key has 60 % of the first third, and 1 % of the rest."""
    part = np.where(np.arange(ROWS) < ROWS // 3, 0.6, 0.01)
    return np.where(np.random.default_rng(SEED).random(ROWS) < part, 1_000_000, zipf(20_000, 1.0, ROWS, SEED))


def half_of_one_key() -> Keys:
    """Few rows, half of them of one key."""
    hot = np.random.default_rng(SEED).random(FEW_ROWS) < 1 / 2
    return np.where(hot, 1_000_000, zipf(2_000, 0.8, FEW_ROWS, SEED))


@dataclass(frozen=True)
class Case:
    """A workload: its stream, the reducers to begin with, and further arguments of ``simulate``."""

    words: str
    keys: Callable[[], Keys]
    reducers: int
    how: Mapping[str, Any] = field(default_factory=dict)

    def play(self, forbidden: Sequence[str] = (), policy: str = "adaptive") -> tuple[Figures, frozenset[str]]:
        """Play it with some proposals of ``adaptive`` forbidden: its figures, and the proposals that were taken."""
        with forbidding(forbidden):
            outcome, run = simulate(self.keys(), self.reducers, policy, **self.how)
        slots, rows = run.job.slots_at(), outcome.messages
        tasks, load = sum(len(plan.tasks) for plan in run.plans), sum(run.makespans)
        beside = FORWARD_COST_ROWS * outcome.rows_forwarded + STATE_COST_ROWS * run.state_pairs + TASK_COST_ROWS * tasks
        figures = Figures(
            round(load * slots / rows, 4), run.state_pairs, round(outcome.rows_forwarded / rows, 4), tasks,
            round((load * slots + beside) / rows, 4),
        )  # fmt: skip
        chosen = (one.action for decision in run.decisions for one in decision.candidates if one.chosen)
        return figures, frozenset(chosen)


@dataclass(frozen=True)
class Figures:
    """What a run came to.

    Attributes:
        load: largest loads of the stages, added up, over total / W.
        states: pairs of key and task that got a state.
        forwarded: rows forwarded, as a part of all.
        tasks: of all stages.
        price: the load, and forwarded rows, states and tasks at the planner's prices, over total / W.
    """

    load: float
    states: int
    forwarded: float
    tasks: int
    price: float

    def __str__(self) -> str:
        return f"{self.load:.3f}/{self.states}/{self.forwarded:.1%}/{self.tasks}/{self.price:.3f}"


@contextmanager
def forbidding(proposals: Sequence[str]) -> Iterator[None]:
    """``adaptive`` without some of its proposals."""
    policy = POLICIES["adaptive"]
    POLICIES["adaptive"] = policy._replace(
        propose=lambda job, forecast: [one for one in policy.propose(job, forecast) if one.action not in proposals]
    )
    try:
        yield
    finally:
        POLICIES["adaptive"] = policy


CASES = (
    Case("Zipf 1.2", steady, 32),
    Case("500 keys alike, 64 of them named", lambda: alike(500), 32, {"head_limit": 64}),
    Case("5,000 keys alike, 64 of them named", lambda: alike(5_000), 32, {"head_limit": 64}),
    Case("300 keys alike, none named", lambda: alike(300), 32, {"head_limit": 0}),
    Case("500 keys alike, 64 named, 8 reducers", lambda: alike(500), 8, {"slots": 32, "head_limit": 64}),
    Case("Zipf 1.2, 8 reducers", steady, 8, {"slots": 32}),
    Case("Zipf 1.2, 4 reducers and up to 32", steady, 4, {"reducer_range": [4, 32]}),
    Case("few rows, 64 reducers and down to 2", lambda: steady()[:FEW_ROWS], 64, {"reducer_range": [2, 64]}),
    Case(
        "half the rows in a whole key, 8 reducers", half_of_one_key, 8,
        {"slots": 64, "mergeable": False, "waves": (1.0,) * 4},
    ),
    Case("the tail grows, in order", growing, 32, {"waves": EVEN, "in_order": True, "head_limit": 64}),
    Case("hot keys change, in order", lambda: drifting(()), 32, {"waves": EVEN, "in_order": True}),
    Case("a hot key cools, in order", cooling, 32, {"waves": EVEN, "in_order": True}),
    Case("a hot key begins late, in order", lambda: late_hot_key(()), 32, {"in_order": True}),
    Case("the same, whole", lambda: late_hot_key(()), 32, {"in_order": True, "mergeable": False}),
)  # fmt: skip


#: Workloads on which virtual tasks (Samza's SEP-32) are held to tokens (consistent hashing): policies that have nothing
#: else, and ``adaptive`` without the one or the other. All pay the same prices.
COMPARED = (
    *(case for case in CASES if case.words in {"Zipf 1.2", "300 keys alike, none named", "the tail grows, in order"}),
    Case("Zipf 0.8, none named", lambda: zipf(20_000, 0.8, ROWS, SEED), 32, {"head_limit": 0}),
)
BY_BUCKETS = ("merge key buckets", "split into key buckets", "split full tasks")
#: By the heading of a column: a policy, and the actions that are forbidden.
WAYS: Mapping[str, tuple[str, Sequence[str]]] = {
    "static": ("static", ()), "virtual tasks": ("virtual_tasks", ()), "halving": ("halving", ()),
    "doubling": ("doubling", ()), "adaptive, buckets": ("adaptive", ("change tokens",)),
    "adaptive, tokens": ("adaptive", BY_BUCKETS),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A workload with all actions (``without`` is empty), with one forbidden, or in one of ``WAYS``."""

    words: str
    without: str
    figures: Figures


def measured(cases: Sequence[Case] = CASES) -> Iterator[Line]:
    """Each case with all actions, and without each one that it took."""
    for case in cases:
        figures, taken = case.play()
        yield Line(case.words, "", figures)
        for action, proposals in ACTIONS.items():
            if taken & set(proposals):
                yield Line(case.words, action, case.play(proposals)[0])


def compared(cases: Sequence[Case] = COMPARED) -> Iterator[Line]:
    """Each case in each of ``WAYS``."""
    for case in cases:
        for way, (policy, without) in WAYS.items():
            proposals = [proposal for action in without for proposal in ACTIONS[action]]
            yield Line(case.words, way, case.play(proposals, policy)[0])


WORDS = """\
32 slots (few rows: 64), no sample, stages that cost nothing; without each action that `adaptive` takes. Figures: load
over total / W, states, rows forwarded, tasks, and the load with all of these at the planner's prices.
"""


def page(lines: Sequence[Line], beside: Sequence[Line] = ()) -> str:
    """Both tables, as Markdown."""
    rows, ways = by_workload(lines), by_workload(beside)
    cells = [
        (words, str(every.figures), "; ".join(f"{one.without} {one.figures}" for one in without))
        for words, (every, *without) in rows.items()
    ]
    others = [(words, *(str(one.figures) for one in found)) for words, found in ways.items()]
    return page_of(
        "What each action is worth", WORDS.strip(), table(("workload", "all actions", "without"), cells),
        "## Virtual tasks (SEP-32) beside tokens, at equal prices", table(("workload", *WAYS), others),
    )  # fmt: skip


def by_workload(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines of each workload, in their order."""
    found: dict[str, list[Line]] = {}
    for one in lines:
        found.setdefault(one.words, []).append(one)
    return found


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Measure, write ``actions.json`` and ``actions.md`` into the folder, and print."""
    argparse.ArgumentParser(prog="python -m benchmarks.actions", description=__doc__).parse_args(arguments)
    lines, beside = list(measured()), list(compared())
    document = {"lines": list(map(asdict, lines)), "compared": list(map(asdict, beside))}
    write_results(folder, NAME, document, page(lines, beside), by_line=True)
    print(page(lines, beside))


if __name__ == "__main__":
    main()
