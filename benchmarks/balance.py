"""How evenly every policy spreads skewed keys: ``python -m benchmarks.balance [--quick] [--json]``.

Nothing is timed: the same seeds give the same figures on every machine.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.balance_aims import AIMED_TASKS, verdicts
from benchmarks.balance_lines import OVERHEAD, PUBLISHED, Cell, Line
from benchmarks.peers import PEERS
from benchmarks.result_files import RESULTS, as_lines, page_of, table, write_results
from benchmarks.staged import UNITS, WAVES, simulate
from benchmarks.workloads import drift, lognormal_1, lognormal_2, zipf
from skewless.planner.policies import POLICIES

SEED = 0
SOURCES = 5
#: Distinct keys and messages of the Zipf streams; the references' own.
KEYS, MESSAGES = 100_000, 1_000_000
EPOCHS = 10
#: Source partitions where drift is to be sampled well: the first wave then has ten of each epoch.
FINE_UNITS = 10_000


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    exponents: tuple[float, ...] = (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
    zipf_tasks: tuple[int, ...] = (10, 50, 100, 1000)
    other_tasks: tuple[int, ...] = (10, 50, 100)
    lognormal_messages: int = 10_000_000


FULL = Scale()
QUICK = Scale(exponents=(0.8, 1.2, 2.0), zipf_tasks=(50, 100), other_tasks=(100,), lognormal_messages=300_000)


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Measure, write ``balance.json`` and ``balance.md`` into the folder, and print; quick ones are only printed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cells in less than a minute; nothing is written")
    parser.add_argument("--json", action="store_true", help="print the JSON document instead of the page")
    options = parser.parse_args(arguments)
    lines = list(measured(QUICK if options.quick else FULL))
    found, readable = document(lines), page(lines)
    if not options.quick:
        write_results(folder, "balance", found, readable, by_line=True)
    print(as_lines(found) if options.json else readable)


def measured(scale: Scale) -> Iterator[Line]:
    """All lines, cell by cell."""
    for cells, keys in _streams(scale):
        for cell in cells:
            print(f"{cell.workload}, {cell.tasks} tasks", file=sys.stderr)
            yield from cell_lines(cell, keys)


def cell_lines(cell: Cell, keys: npt.NDArray[np.int64]) -> Iterator[Line]:
    """Every scheme on one stream: ``adaptive`` without and with a price of stages, the other policies, the peers."""
    yield staged_line(cell, keys, "adaptive")
    yield staged_line(cell, keys, "adaptive", OVERHEAD)
    for policy in POLICIES:
        if policy != "adaptive":
            yield staged_line(cell, keys, policy)
    for policy, peer in PEERS.items():
        if policy != "pkg_l":  # which is "pkg" by its other name
            yield Line(cell, policy, False, 0.0, peer(keys, cell.tasks, sources=SOURCES, seed=SEED))


def staged_line(cell: Cell, keys: npt.NDArray[np.int64], policy: str, overhead: float = 0.0) -> Line:
    """One staged policy on one stream."""
    outcome, _ = simulate(keys, cell.tasks, policy, units=cell.units, in_order=cell.in_order, overhead=overhead)
    words = f"{policy}, stages cost {overhead:.0%}" if overhead else policy
    return Line(cell, words, True, overhead, outcome)


def _streams(scale: Scale) -> Iterator[tuple[list[Cell], npt.NDArray[np.int64]]]:
    """Each stream, drawn once, with the cells that are measured on it."""
    for exponent in scale.exponents:
        cells = [Cell(f"Zipf z={exponent}", tasks, exponent) for tasks in scale.zipf_tasks]
        yield cells, zipf(KEYS, exponent, MESSAGES, SEED)
    for name, draw in (("LN1", lognormal_1), ("LN2", lognormal_2)):
        yield [Cell(name, tasks) for tasks in scale.other_tasks], draw(scale.lognormal_messages, SEED)
    cells = [Cell("drift", tasks) for tasks in scale.other_tasks]
    cells += [Cell("drift, fine", tasks, units=FINE_UNITS) for tasks in scale.other_tasks]
    cells += [Cell("drift, in order", tasks, in_order=True) for tasks in scale.other_tasks]
    yield cells, drift(KEYS, 1.4, MESSAGES, EPOCHS, SEED)


def document(lines: Sequence[Line]) -> dict[str, Any]:
    """What is written as JSON."""
    return {
        "setting": {
            "python": platform.python_version(), "numpy": version("numpy"), "skewless": version("skewless"),
            "stream_seed": SEED, "hash_seed": SEED, "sources": SOURCES,
            "waves": WAVES, "units": UNITS, "fine_units": FINE_UNITS,
            "zipf_and_drift": {"keys": KEYS, "messages": MESSAGES, "drift_epochs": EPOCHS, "drift_exponent": 1.4},
        },
        "verdicts": [{**asdict(verdict), "words": verdict.words} for verdict in verdicts(lines)],
        "lines": [line.as_dict() for line in lines],
    }  # fmt: skip


SETTING = f"""\
Simulated with the real planner, key by key; nothing here is timed, and the seeds say every figure. T* is the number of
messages over the number W of tasks. Staged policies admit waves of 1 : 4 : 15 : 80, each a sample of the stream's
{UNITS:,} source partitions. Peers see every stream in order of arrival, in one pass, from five sources. Imbalance is
the largest load less the average one, over all messages. In "adaptive, stages cost {OVERHEAD:.0%}" every stage costs a
tenth of T*, which the makespan leaves out. [All aims](README.md) tells what is missed, for more tasks, log-normal keys
and drift too; `balance.json` has every cell.
"""
#: Figures of a scheme: their head, how a line has them, how they are written. A peer of one pass has the first ones.
FIGURES: tuple[tuple[str, Callable[[Line], float], str], ...] = (
    ("makespan / T*", lambda line: line.outcome.makespan_over_ideal, "{:.3f}"),
    ("final imbalance", lambda line: line.outcome.imbalance_final, "{:.1e}"),
    ("states per key", lambda line: line.outcome.states_per_key, "{:.3f}"),
    ("rows forwarded", lambda line: line.forwarded, "{:.2%}"),
    ("stages", lambda line: line.outcome.stages, "{:.0f}"),
)
OF_PEERS = 3


def page(lines: Sequence[Line]) -> str:
    """The whole page, in Markdown."""
    aimed = [line for line in lines if line.cell.exponent is not None and line.cell.tasks in AIMED_TASKS]
    schemes = [
        [line for line in aimed if line.scheme == scheme] for scheme in dict.fromkeys(line.scheme for line in aimed)
    ]
    cells = len({line.cell for line in aimed})
    return page_of(
        "Balance",
        SETTING.strip(),
        f"## The worst of {cells} cells: 1 M messages over 100 k Zipf keys on at most {AIMED_TASKS[-1]} tasks",
        table(("scheme", *(head for head, _, _ in FIGURES)), map(_at_worst, schemes)),
        "## Published figures (ours)",
        _published(lines),
    )


def _at_worst(lines: Sequence[Line]) -> tuple[str, ...]:
    told = FIGURES if lines[0].staged else FIGURES[:OF_PEERS]
    figures = [form.format(max(map(figure, lines))) for _, figure, form in told]
    return (lines[0].scheme, *figures, *[""] * (len(FIGURES) - len(told)))


def _published(lines: Sequence[Line]) -> str:
    """Each published figure of a scheme, and ours in parentheses."""
    found = {(line.cell.workload, line.cell.tasks, line.scheme): line.outcome for line in lines}
    rows = defaultdict[tuple[str, str], list[str]](list)
    for one in PUBLISHED:
        outcome = found.get((one.workload, one.tasks, one.scheme))
        ours = "" if outcome is None else f" ({getattr(outcome, one.measure):.3g})"
        rows[one.scheme, one.measure.replace("_", " ")].append(f"{one.value:.3g}{ours}")
    cells = dict.fromkeys(f"{one.workload}, W={one.tasks}" for one in PUBLISHED)
    return table(("scheme", "measure", *cells), [(*of, *figures) for of, figures in rows.items()])


if __name__ == "__main__":
    main()
