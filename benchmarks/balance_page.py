"""The balance table as a page to read: a row for each scheme, and the published figures beside ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from benchmarks.balance_aims import AIMED_TASKS
from benchmarks.balance_lines import OVERHEAD, PUBLISHED, Line
from benchmarks.result_files import page_of, table
from benchmarks.staged import UNITS

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
