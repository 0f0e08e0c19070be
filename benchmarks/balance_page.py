"""The balance table as a page to read: the verdicts, ``adaptive`` in full, and one table per question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.balance_aims import Verdict
from benchmarks.balance_lines import OVERHEAD, PUBLISHED, Line
from benchmarks.staged import UNITS

SETTING = f"""\
Simulated with the real planner, key by key; nothing here is timed, and the seeds say every figure. T* is the
number of messages over the number W of tasks. Zipf streams and drift have 1 M messages over 100 k keys; drift has
z=1.4 and ten epochs, each with other hot keys. Staged policies admit waves of 1 : 4 : 15 : 80; a wave is a sample
of the stream's {UNITS:,} source partitions, of 10,000 in "drift, fine"; in "drift, in order" it is the next part of
the stream: the worst case. Peers see every stream in order of arrival, in one pass, from five sources. Imbalance is
the largest load less the average one, over all messages; "on average" it is that over time, for staged policies at
the ends of the stages. In "adaptive, stages cost {OVERHEAD:.0%}" every stage costs a tenth of T*, which the makespan
leaves out.
"""


class Question(NamedTuple):
    """A table: what it asks, how a line answers it, and whether peers of one pass have an answer of their own."""

    title: str
    figure: Callable[[Line], str]
    of_peers: bool = True


QUESTIONS = (
    Question("How long does it take? Makespan over T*", lambda line: f"{line.outcome.makespan_over_ideal:.3f}"),
    Question("How even is it in the end? Final imbalance", lambda line: f"{line.outcome.imbalance_final:.1e}"),
    Question("How even is it on average?", lambda line: f"{line.outcome.imbalance_fraction:.1e}"),
    Question("How many partial states does a key have?", lambda line: f"{line.outcome.states_per_key:.3f}"),
    Question("How many rows change hands? Part of all messages", lambda line: f"{line.forwarded:.2%}", of_peers=False),
    Question("How many stages?", lambda line: str(line.outcome.stages), of_peers=False),
)
ADAPTIVE = (
    "scheme", "workload", "W", "makespan / T*", "average imbalance", "final imbalance", "states per key",
    "forwarded", "stages",
)  # fmt: skip


def page(lines: Sequence[Line], verdicts: Sequence[Verdict]) -> str:
    """The whole page, in Markdown."""
    parts = ["# Balance", SETTING.strip(), "## Aims", *_verdicts(verdicts)]
    parts += ["## Beside the published figures", _published(lines)]
    parts += ["## adaptive in full", _table(ADAPTIVE, [_in_full(line) for line in lines if _is_adaptive(line)])]
    for question in QUESTIONS:
        parts += [f"## {question.title}", *_answers(question, lines)]
    return "\n\n".join(parts) + "\n"


def _verdicts(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield "\n".join(f"- {verdict.words}" for verdict in verdicts)
    for verdict in verdicts:
        if len(verdict.missed) > 1:
            yield f'All that miss "{verdict.aim}": {"; ".join(verdict.missed)}.'


def _published(lines: Sequence[Line]) -> str:
    rows = []
    for known in PUBLISHED:
        for line in lines:
            if (line.cell.workload, line.cell.tasks, line.scheme) == (known.workload, known.tasks, known.scheme):
                ours = getattr(line.outcome, known.measure)
                figures = (f"{known.value:.3g}", f"{ours:.3g}", f"{ours / known.value:.2f}")
                rows.append((known.measure.replace("_", " "), line.cell.words, known.scheme, *figures))
    return _table(("measure", "cell", "scheme", "published", "ours", "ratio"), rows)


def _is_adaptive(line: Line) -> bool:
    return line.outcome.policy == "adaptive"


def _in_full(line: Line) -> tuple[str, ...]:
    found = line.outcome
    return (
        line.scheme, line.cell.workload, str(found.tasks), f"{found.makespan_over_ideal:.4f}",
        f"{found.imbalance_fraction:.1e}", f"{found.imbalance_final:.1e}", f"{found.states_per_key:.3f}",
        f"{line.forwarded:.2%}", str(found.stages),
    )  # fmt: skip


def _answers(question: Question, lines: Sequence[Line]) -> Iterator[str]:
    """A table of schemes by Zipf exponents for each W, and one of all other streams."""
    asked = [line for line in lines if line.staged or question.of_peers]
    zipf = [line for line in asked if line.cell.exponent is not None]
    for tasks in dict.fromkeys(line.cell.tasks for line in zipf):
        chosen = [line for line in zipf if line.cell.tasks == tasks]
        yield _by_scheme(f"W={tasks}", chosen, lambda line: line.cell.workload, question)
    others = [line for line in asked if line.cell.exponent is None]
    if others:
        yield _by_scheme("other streams", others, lambda line: line.cell.words, question)


def _by_scheme(corner: str, lines: Sequence[Line], column: Callable[[Line], str], question: Question) -> str:
    columns = list(dict.fromkeys(column(line) for line in lines))
    figures = {(line.scheme, column(line)): question.figure(line) for line in lines}
    schemes = dict.fromkeys(line.scheme for line in lines)
    return _table((corner, *columns), [(scheme, *(figures[scheme, name] for name in columns)) for scheme in schemes])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
