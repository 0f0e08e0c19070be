"""What the balance table was meant to show, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.balance_lines import OVERHEAD, PUBLISHED, Line

#: Numbers of tasks that the aims are for; more are reported.
AIMED_TASKS = (10, 50, 100)


@dataclass(frozen=True)
class Verdict:
    """One aim, and how it went."""

    aim: str
    #: Null where there is no aim, only a figure.
    met: bool | None
    #: The figure that is furthest off, and where.
    worst: str
    #: Every cell that misses the aim, with its figure.
    missed: tuple[str, ...]
    cells: int

    @property
    def words(self) -> str:
        """The verdict in one line."""
        if self.met is None:
            return f"reported: {self.aim}: at worst {self.worst}"
        verdict = "met" if self.met else f"MISSED in {len(self.missed)} of {self.cells} cells"
        return f"{verdict}: {self.aim}; at worst {self.worst}"


def verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """All aims of the cells that were measured, in order."""
    adaptive = [line for line in lines if line.outcome.policy == "adaptive"]
    found = [*_of_balance(adaptive), *_of_head_choices(adaptive, lines), *_of_price(adaptive, lines)]
    found += [*_of_many_tasks(adaptive, lines), *_of_peers(lines)]
    return [verdict for verdict in found if verdict.cells]


def _of_balance(adaptive: Sequence[Line]) -> Iterator[Verdict]:
    free = [line for line in adaptive if not line.overhead and line.cell.tasks in AIMED_TASKS]
    zipf = [line for line in free if line.cell.exponent is not None]
    yield _at_most("Zipf: makespan within 1.02 of T*", zipf, _makespan, 1.02)
    for workload in ("LN1", "LN2", "drift", "drift, fine", "drift, in order"):
        yield _at_most(
            f"{workload}: makespan within 1.05 of T*",
            [line for line in free if line.cell.workload == workload], _makespan, 1.05,
        )  # fmt: skip


def _of_head_choices(adaptive: Sequence[Line], lines: Sequence[Line]) -> Iterator[Verdict]:
    """W-Choices decides message by message: its imbalance is a few messages, however long the stream is."""
    free = [line for line in adaptive if not line.overhead and line.cell.tasks in AIMED_TASKS]
    theirs = {line.cell: line.outcome.imbalance_final for line in lines if line.scheme == "w_choices_stream"}
    yield _at_most(
        "the balance of w_choices_stream: final imbalance at most its own (the difference, over all messages)",
        free, lambda line: line.outcome.imbalance_final - theirs[line.cell], 0.0, "{:.1e}",
    )  # fmt: skip


def _of_price(adaptive: Sequence[Line], lines: Sequence[Line]) -> Iterator[Verdict]:
    aimed = [line for line in adaptive if line.cell.tasks in AIMED_TASKS]
    for overhead, words in ((0.0, ""), (OVERHEAD, f", where stages cost {OVERHEAD:.0%} of T*")):
        mine = [line for line in aimed if line.overhead == overhead]
        steady = [line for line in mine if not line.cell.workload.startswith("drift")]
        drifting = [line for line in mine if line.cell.workload.startswith("drift")]
        yield _at_most(f"at most 2 % of the rows forwarded{words}", steady, _forwarded, 0.02, "{:.2%}")
        yield _at_most(f"drift: at most 10 % of the rows forwarded{words}", drifting, _forwarded, 0.10, "{:.2%}")
        yield _fewer_states(f"states per key at most those of d_choices_stream{words}", mine, lines)
        stages = 3 if overhead else 7
        yield _at_most(f"at most {stages} stages{words}", mine, lambda line: line.outcome.stages, stages, "{:.0f}")
    paid = [line for line in aimed if line.overhead]
    yield _at_most(f"makespan and stages over T*, where stages cost {OVERHEAD:.0%} of T*", paid, _elapsed)


def _of_many_tasks(adaptive: Sequence[Line], lines: Sequence[Line]) -> Iterator[Verdict]:
    many = [line for line in adaptive if line.cell.tasks not in AIMED_TASKS and not line.overhead]
    words = "more than 100 tasks"
    yield _at_most(f"{words}: makespan within 1.02 of T*", many, _makespan, 1.02)
    yield _at_most(f"{words}: at most 2 % of the rows forwarded", many, _forwarded, 0.02, "{:.2%}")
    yield _fewer_states(f"{words}: states per key at most those of d_choices_stream", many, lines)


def _of_peers(lines: Sequence[Line]) -> Iterator[Verdict]:
    """How near our own hashing and PKG come to the published ones: whether the stage is set fairly."""
    ratios = []
    for line in lines:
        for known in PUBLISHED:
            same = (known.workload, known.tasks, known.scheme) == (line.cell.workload, line.cell.tasks, line.scheme)
            if same and known.scheme in {"hashing", "pkg"}:
                ours = getattr(line.outcome, known.measure)
                ratios.append((line, max(ours / known.value, known.value / ours)))
    of_line = {id(line): ratio for line, ratio in ratios}
    yield _at_most(
        "hashing and pkg within a factor 2 of the published figures",
        [line for line, _ in ratios], lambda line: of_line[id(line)], 2.0, "{:.2f}",
    )  # fmt: skip


def _fewer_states(aim: str, mine: Sequence[Line], lines: Sequence[Line]) -> Verdict:
    theirs = {line.cell: line.outcome.states_per_key for line in lines if line.scheme == "d_choices_stream"}
    return _at_most(
        f"{aim} (the ratio of both)", mine, lambda line: line.outcome.states_per_key / theirs[line.cell], 1.0, "{:.3f}"
    )


def _at_most(
    aim: str, lines: Sequence[Line], figure: Callable[[Line], float], limit: float | None = None, form: str = "{:.4f}"
) -> Verdict:
    def words(line: Line) -> str:
        return f"{form.format(figure(line))} ({line.cell.words}{', ' + line.scheme if not line.staged else ''})"

    missed = tuple(words(line) for line in lines if limit is not None and figure(line) > limit)
    worst = words(max(lines, key=figure)) if lines else ""
    return Verdict(aim, None if limit is None else not missed, worst, missed, len(lines))


def _makespan(line: Line) -> float:
    return line.outcome.makespan_over_ideal


def _elapsed(line: Line) -> float:
    return line.elapsed_over_ideal


def _forwarded(line: Line) -> float:
    return line.forwarded
