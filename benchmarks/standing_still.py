"""Whole runs of every policy beside ``static``: ``python -m benchmarks.standing_still [--workloads 50]``.

Random workloads, the same for the same number on every machine. What a run costs is the sum of the
stages' largest loads and the price of its stages, in rows.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import numpy as np

from benchmarks.result_files import RESULTS, Verdict, as_documents, table, write_results
from benchmarks.simulation import Simulation
from benchmarks.staged import WAVES, simulate
from benchmarks.workloads import Keys, draw_ranks
from skewless.planner.policies import POLICIES

NAME = "standing_still"
#: Workloads of a whole measurement, and of a look that tests can afford; and those after them, on which no constant of
#: the planner was chosen.
MANY, FEW, HELD_OUT = 500, 50, 500
#: ``random``: every wave is a sample. In the others waves come as the input does: ``sorted`` by key, ``late``
#: with a hot key that begins half way, ``drifting`` with hot keys that change over the input.
Order = Literal["random", "sorted", "late", "drifting"]
ORDERS: tuple[Order, ...] = get_args(Order)
#: Half of the workloads have the usual waves, the others some of these.
OTHER_WAVES: tuple[tuple[float, ...], ...] = ((1, 9), (1, 2, 4, 8), (1,) * 5, (1,) * 10, (1,))
#: What a run may cost beside ``static`` with the rows in random order, at worst; and in the other orders, in
#: the median and at worst.
RANDOM_AT_WORST, ORDERED_IN_MEDIAN, ORDERED_AT_WORST = 1.01, 1.00, 1.05


@dataclass(frozen=True)
class Workload:
    """One stream, and how it is run.

    Attributes:
        number: its number, which it is drawn from.
        words: what it is, for people.
        order: in which rows come.
        keys: in order of arrival.
        tasks: W.
        overhead: what a stage costs, as a part of T*.
        mergeable: whether a key may be split.
        waves: relative sizes of the slices that stages admit.
    """

    number: int
    words: str
    order: Order
    keys: Keys
    tasks: int
    overhead: float
    mergeable: bool
    waves: tuple[float, ...]

    def run(self, policy: str, **routing: Any) -> Simulation:
        """Play it under a policy."""
        _, simulation = simulate(
            self.keys, self.tasks, policy, self.waves, in_order=self.order != "random", overhead=self.overhead,
            mergeable=self.mergeable, **routing,
        )  # fmt: skip
        return simulation

    def cost(self, policy: str, **routing: Any) -> float:
        """The largest loads of a run's stages and the price of its stages, in rows."""
        run = self.run(policy, **routing)
        return sum(run.makespans) + run.overhead_seconds * len(run.reports)


def workload(number: int) -> Workload:
    """Draw a workload: orders in turn, everything else at random by its number, which is at least 0."""
    random = np.random.default_rng([13, number])
    order = ORDERS[number % len(ORDERS)]
    rows = int(np.exp(random.uniform(np.log(20_000), np.log(120_000))))
    tasks = int(2 ** random.uniform(1, 6))
    ranks, words = _ranks(random, rows)
    keys = _ordered(random, ranks, order)
    overhead = float(random.choice([0.0, 0.0, 0.01, 0.05, 0.15]))
    mergeable = bool(random.random() < 2 / 3)
    waves = WAVES if random.random() < 1 / 2 else OTHER_WAVES[int(random.integers(len(OTHER_WAVES)))]
    return Workload(number, f"{words}, {rows:,} rows", order, keys, tasks, overhead, mergeable, waves)


def _ranks(random: np.random.Generator, rows: int) -> tuple[Keys, str]:
    """Rows of keys numbered from 0, in random order."""
    if random.random() < 1 / 4:
        mean, deviation = random.uniform(1.5, 2.5), random.uniform(1.0, 2.4)
        drawn = np.rint(random.lognormal(mean, deviation, rows)).astype(np.int64)
        return np.minimum(drawn, 10_000_000), f"log-normal {mean:.1f}, {deviation:.1f}"
    exponent, keys = random.uniform(0.6, 2.2), int(10 ** random.uniform(2, 4.3))
    return draw_ranks(random, keys, exponent, rows) - 1, f"Zipf {exponent:.2f}, {keys:,} keys"


def _ordered(random: np.random.Generator, ranks: Keys, order: Order) -> Keys:
    """The rows in an order, the names of their keys drawn at random."""
    names = random.permutation(int(ranks.max()) + 1) if ranks.max() < 1_000_000 else None
    keys = ranks * 7919 + 13 if names is None else names[ranks]
    if order == "sorted":
        return np.sort(keys)
    if order == "late":
        begins = int(len(keys) * random.uniform(0.3, 0.9))
        late = np.flatnonzero(random.random(len(keys)) < random.uniform(0.1, 0.6))
        keys[late[late >= begins]] = int(keys.max()) + 1
    if order == "drifting":
        parts = np.array_split(keys, int(random.integers(2, 13)))
        shifts = random.integers(0, 1_000_003, len(parts))
        return np.concatenate([(part + shift) % 1_000_003 for part, shift in zip(parts, shifts, strict=True)])
    return keys


@dataclass(frozen=True)
class Line:
    """What the policies cost on one workload, over what ``static`` costs."""

    number: int
    words: str
    order: Order
    tasks: int
    overhead: float
    mergeable: bool
    static_rows: float
    ratios: dict[str, float]


def line(number: int) -> Line:
    """All policies on a workload."""
    one = workload(number)
    static = one.cost("static")
    ratios = {policy: round(one.cost(policy) / static, 5) for policy in POLICIES if policy != "static"}
    return Line(number, one.words, one.order, one.tasks, one.overhead, one.mergeable, round(static), ratios)


def measured(numbers: Sequence[int], processes: int = 2) -> list[Line]:
    """The lines of these workloads."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(line, numbers, chunksize=4))


@dataclass(frozen=True)
class Summary:
    """A policy over all workloads of one order."""

    policy: str
    order: Order
    workloads: int
    worst: float
    worst_number: int
    median: float
    worse: float

    @property
    def met(self) -> bool:
        """Whether it kept to what is promised of its order."""
        if self.order == "random":
            return self.worst <= RANDOM_AT_WORST
        return self.median <= ORDERED_IN_MEDIAN and self.worst <= ORDERED_AT_WORST


def summaries(lines: Sequence[Line]) -> Iterator[Summary]:
    """One for each policy and order that was measured."""
    for policy in lines[0].ratios:
        for order in ORDERS:
            mine = {one.number: one.ratios[policy] for one in lines if one.order == order}
            if mine:
                worst = max(mine, key=lambda number: mine[number])
                worse = sum(ratio > 1 for ratio in mine.values()) / len(mine)
                yield Summary(policy, order, len(mine), mine[worst], worst, median(mine.values()), worse)


WORDS = (
    "(Zipf 0.6 to 2.2 and log-normal, 2 to 64 tasks, stages that cost 0 to 15 % of the ideal, two thirds with keys "
    "that may be split) in the simulation. A run costs the largest loads of its stages and their price, over what "
    "`static` costs."
)


def page(lines: Sequence[Line], held_out: Sequence[Line] = ()) -> str:
    """The worst of each policy and what was promised, as Markdown."""
    promised = (
        f"Promised: at most {RANDOM_AT_WORST} where waves are samples; in the order of the input at most "
        f"{ORDERED_IN_MEDIAN:.2f} in the median and {ORDERED_AT_WORST:.2f} at worst."
    )
    parts = [
        "# Whole runs beside standing still",
        f"{len(lines)} random workloads {WORDS}",
        f"{promised} {_verdict(lines)}",
    ]
    if held_out:
        parts.append(
            f"Held out: {len(held_out)} further workloads, on which no constant of the planner was chosen. "
            f"{_verdict(held_out)}"
        )
    return "\n\n".join([*parts, _table(lines, held_out)]) + "\n"


def _verdict(lines: Sequence[Line]) -> str:
    missed = [f"{one.policy}, {one.order}" for one in summaries(lines) if not one.met]
    return f"MISSED: {'; '.join(missed)}." if missed else "All met."


def _table(lines: Sequence[Line], held_out: Sequence[Line]) -> str:
    """The worst run and the median of each policy; of the orders that are no samples the highest median."""
    head, rows = ["policy"], [[policy] for policy in lines[0].ratios]
    parts = [(lines, ""), *([(held_out, "held out, ")] if held_out else [])]
    for some, words in parts:
        for random, order in ((True, "samples"), (False, "in order")):
            head += [f"{words}{order}: worst", "median"]
            for row in rows:
                mine = [one for one in summaries(some) if one.policy == row[0] and (one.order == "random") == random]
                row += [
                    f"{max(getattr(one, name) for one in mine):.3f}" if mine else "" for name in ("worst", "median")
                ]
    return table(head, rows)


def judged(lines: Sequence[Line]) -> Iterator[Verdict]:
    """What was promised of the policies together."""
    found = list(summaries(lines))
    for random, limit in ((True, RANDOM_AT_WORST), (False, ORDERED_AT_WORST)):
        mine = [one for one in found if (one.order == "random") == random]
        if mine:
            worst = max(mine, key=lambda one: one.worst)
            where = f"every policy, waves {'as samples' if random else 'in order'}"
            yield Verdict("cost of a run over that of static, at worst", where, worst.worst, limit)
            if not random:
                median_cost = max(one.median for one in mine)
                yield Verdict("the same in the median", where, median_cost, ORDERED_IN_MEDIAN)


def document(lines: Sequence[Line], held_out: Sequence[Line]) -> dict[str, Any]:
    """What is written as JSON."""
    return {
        "verdicts": as_documents(judged([*lines, *held_out])),
        "setting": {"python": platform.python_version(), "numpy": version("numpy"), "skewless": version("skewless")},
        "summaries": [{**asdict(one), "met": one.met} for one in summaries(lines)],
        "held_out": [{**asdict(one), "met": one.met} for one in summaries(held_out)],
        "lines": [asdict(one) for one in [*lines, *held_out]],
    }


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Measure, write ``standing_still.json`` and ``standing_still.md`` into the folder, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standing_still", description=__doc__)
    parser.add_argument("--workloads", type=int, default=MANY, help="how many; fewer than all are only printed")
    options = parser.parse_args(arguments)
    whole = options.workloads >= MANY
    found = measured(range(options.workloads + HELD_OUT * whole))
    lines, held_out = found[: options.workloads], found[options.workloads :]
    if whole:
        write_results(folder, NAME, document(lines, held_out), page(lines, held_out), by_line=True)
    print(page(lines, held_out))


if __name__ == "__main__":
    main()
