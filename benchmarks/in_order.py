"""Waves that come in the order of the input, and are no samples: ``python -m benchmarks.in_order``.

Benchmark B4 (b) to (e), in the simulation with the real planner and no sample of the keys: hot keys that
change over the input, a new hot key in each wave, a hot key that begins late.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.result_files import RESULTS, Verdict, as_documents, page_of, table, write_results
from benchmarks.simulation import Simulation
from benchmarks.staged import WAVES, simulate
from benchmarks.workloads import Keys, drift, zipf
from skewless.planner import priced_plan

NAME = "in_order"
SEED = 0
EVEN = (1.0,) * 10
#: Part of the rows that a hot key has, while it is hot.
HOT = 0.3
#: The key that begins late, by its text.
LATE = "1000000"


@dataclass(frozen=True)
class Case:
    """One stream in order.

    Attributes:
        row: of the benchmark.
        words: what it is.
        aim: largest loads over the ideal, at most; None where there is only a figure.
        tasks: W.
        waves: relative sizes of the waves.
        mergeable: whether a key may be split.
    """

    row: str
    words: str
    aim: float | None
    tasks: int
    waves: Sequence[float]
    mergeable: bool

    @property
    def keys(self) -> Keys:
        """In order of arrival."""
        return STREAMS[self.words](self.waves)

    def measure(self) -> Line:
        """Run it under ``adaptive``."""
        keys = self.keys
        outcome, run = simulate(keys, self.tasks, "adaptive", self.waves, in_order=True, mergeable=self.mergeable)
        fair = len(keys) / self.tasks
        heaviest = 0.0 if self.mergeable else float(np.unique(keys, return_counts=True)[1].max())
        ideal = max(fair, heaviest)
        load = outcome.makespan_over_ideal * fair / ideal
        least = max(1.0, _least(run) / ideal) if self.row == "d" else None
        return Line(
            self.row, self.words, self.aim, self.tasks, len(self.waves), self.mergeable, round(load, 4),
            None if least is None else round(least, 4), round(outcome.rows_forwarded / len(keys), 4), outcome.stages,
        )  # fmt: skip


def _least(run: Simulation) -> float:
    """What no plan could have beaten once the late key was reported, in rows.

    The stages up to the first report that names it have taken their time. From then on some task reduces all of its
    rows that are not reduced yet, and all tasks together reduce all other rows.
    """
    first = next(at for at, report in enumerate(run.reports) if LATE in report.histogram.head)
    seen, left = run.reports[first].histogram.head[LATE]
    rows_of_it = run.reports[-1].histogram.head[LATE][0] - (seen - left)
    reduced = sum(report.processed_rows for report in run.reports[: first + 1])
    fair = (len(run.rows) - reduced) / len(run.plans[first].tasks)
    return sum(run.makespans[: first + 1]) + max(rows_of_it, fair)


def drifting(_: Sequence[float]) -> Keys:
    """Zipf keys whose hot ones are others in each tenth of the input."""
    return drift(100_000, 1.4, 1_000_000, 10, SEED)


def new_hot_keys(waves: Sequence[float]) -> Keys:
    """A new hot key in each wave."""
    keys, random = zipf(20_000, 1.0, 200_000, SEED), np.random.default_rng(SEED)
    ends = np.cumsum(waves) / sum(waves) * len(keys)
    wave = np.searchsorted(ends, np.arange(len(keys)), side="right")
    return np.where(random.random(len(keys)) < HOT, 1_000_000 + wave, keys)


def late_hot_key(_: Sequence[float]) -> Keys:
    """A hot key that begins half way, with 15 % of all rows."""
    return _late(HOT)


def lighter_late_hot_key(_: Sequence[float]) -> Keys:
    """The same with 7.5 %: on 8 tasks less than a fair share."""
    return _late(HOT / 2)


def _late(part: float) -> Keys:
    keys, random = zipf(20_000, 1.0, 200_000, SEED), np.random.default_rng(SEED)
    late = (np.arange(len(keys)) >= len(keys) // 2) & (random.random(len(keys)) < part)
    return np.where(late, int(LATE), keys)


def sorted_keys(_: Sequence[float]) -> Keys:
    """Sorted by key."""
    return np.sort(np.random.default_rng(SEED).permutation(20_001)[zipf(20_000, 1.0, 200_000, SEED)])


STREAMS: dict[str, Callable[[Sequence[float]], Keys]] = {
    "hot keys change ten times": drifting, "a new hot key in each wave": new_hot_keys,
    "a hot key begins half way": late_hot_key, "sorted by key": sorted_keys,
    "a lighter one begins half way": lighter_late_hot_key,
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All that is measured."""
    drift_words, new, late, ordered, lighter = STREAMS
    for waves in (WAVES, EVEN):
        for tasks in (8, 50, 100):
            yield Case("b", drift_words, 1.08, tasks, waves, True)
        for tasks in (8, 32):
            yield Case("c", new, 1.15, tasks, waves, True)
            yield Case("c", new, None, tasks, waves, False)
        for tasks in (8, 32, 64):
            yield Case("d", late, 1.10, tasks, waves, False)
        yield Case("d", lighter, 1.10, 8, waves, False)
        for tasks in (8, 32):
            yield Case("e", late, 1.05, tasks, waves, True)
            yield Case("", ordered, None, tasks, waves, True)
            yield Case("", ordered, None, tasks, waves, False)


@dataclass(frozen=True)
class Line:
    """What came of a case.

    Attributes:
        load: largest loads of the stages, added up, over total / W or the heaviest key that may not be split.
        least: what no plan could have beaten once the late key was reported, over the same; None in other rows.
        forwarded: rows forwarded, as a part of all.
        stages: how many there were.
    """

    row: str
    words: str
    aim: float | None
    tasks: int
    waves: int
    mergeable: bool
    load: float
    least: float | None
    forwarded: float
    stages: int

    @property
    def met(self) -> bool:
        """Whether the aim was met, if there is one."""
        return self.aim is None or self.load <= self.aim

    def judged(self) -> Verdict | None:
        """The same for the table of all aims; None without an aim."""
        where = f"({self.row}) {self.words}, W = {self.tasks}, {self.waves} waves"
        return None if self.aim is None else Verdict("largest loads over the ideal", where, self.load, self.aim)


def measured() -> list[Line]:
    """All cases."""
    return [case.measure() for case in cases()]


#: By the heading of a column: how many times their price a row forwarded and a row left over cost.
PRICES = {"as priced": (1, 1), "forwarded 16 times": (16, 1), "left over 10 times": (1, 10)}


@contextmanager
def priced(forwarded: float, left_over: float) -> Iterator[None]:
    """A row forwarded, and in order a row left over, at so many times their price."""
    before = priced_plan.FORWARD_COST_ROWS, priced_plan.BACKLOG_IN_ORDER_ROWS
    priced_plan.FORWARD_COST_ROWS, priced_plan.BACKLOG_IN_ORDER_ROWS = before[0] * forwarded, before[1] * left_over
    try:
        yield
    finally:
        priced_plan.FORWARD_COST_ROWS, priced_plan.BACKLOG_IN_ORDER_ROWS = before


def at_prices() -> Iterator[tuple[str, Line]]:
    """The cases of ten waves whose keys may be split, at each of ``PRICES``."""
    for words, prices in PRICES.items():
        with priced(*prices):
            for case in cases():
                if case.mergeable and len(case.waves) == len(EVEN):
                    yield words, case.measure()


WORDS = (
    "Benchmark B4 (b) to (e) in the simulation: `adaptive`, no sample, stages that cost nothing. Four waves are 1, 4, "
    "15 and 80 % of the input, ten are of one size. A figure is the sum of the stages' largest "
    "loads, over total / W or the heaviest whole key. Aims: at most 1.08 (b), 1.15 "
    "(c), 1.10 (d), 1.05 (e), whose key may be split.\n\n"
    "The key of (d) must stay whole. No plan could have come to less than `least` once a report named the key."
)


def page(lines: Sequence[Line]) -> str:
    """The lines with an aim, as Markdown; those at other prices stand in the JSON."""
    found = {(one.row, one.words, one.tasks, one.waves): one for one in lines if one.aim is not None}
    waves = sorted({one.waves for one in found.values()})
    rows = [
        (f"({row})", words, str(tasks), *(_cell(found.get((row, words, tasks, number))) for number in waves))
        for row, words, tasks in dict.fromkeys(key[:3] for key in found)
    ]
    head = ("row", "stream", "W", *(f"{number} waves" for number in waves))
    return page_of("Waves in the order of the input", WORDS, table(head, rows))


def _cell(one: Line | None) -> str:
    if one is None:
        return ""
    least = "" if one.least is None else f" (least {one.least:.3f})"
    return f"{one.load:.3f}{least}{'' if one.met else ' **missed**'}"


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Measure, write ``in_order.json`` and ``in_order.md`` into the folder, and print."""
    argparse.ArgumentParser(prog="python -m benchmarks.in_order", description=__doc__).parse_args(arguments)
    lines, at = measured(), list(at_prices())
    document = {
        "verdicts": as_documents(aim for one in lines if (aim := one.judged()) is not None),
        "lines": [asdict(one) for one in lines],
        "at_prices": [{"prices": words, **asdict(one)} for words, one in at],
    }
    write_results(folder, NAME, document, page(lines), by_line=True)
    print(page(lines))


if __name__ == "__main__":
    main()
