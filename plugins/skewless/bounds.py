"""What no plan can beat, and how near a plan came: the certificate."""

from __future__ import annotations

from pydantic import Field

from skewless.document import Frozen


class Certificate(Frozen):
    """How far a largest load is from the best there can be.

    Attributes:
        total_rows: rows to be placed.
        tasks: tasks to place them on.
        fair_rows: ``total / tasks``, the bound that holds for every plan.
        heaviest_key: key text of the heaviest key known, if any.
        heaviest_rows: its rows.
        splittable: whether a key may be split over tasks.
        bound_rows: the better (larger) of the bounds that hold.
        makespan_rows: the largest load of a task, in rows.
        gap: ``makespan / bound - 1``; 0 where there is nothing to do.
        conclusion: in words.
    """

    total_rows: float = Field(ge=0)
    tasks: int = Field(ge=1)
    fair_rows: float = Field(ge=0)
    heaviest_key: str | None
    heaviest_rows: float = Field(ge=0)
    splittable: bool
    bound_rows: float = Field(ge=0)
    makespan_rows: float = Field(ge=0)
    gap: float
    conclusion: str


def lower_bound(total: float, tasks: int, heaviest: float, splittable: bool) -> float:
    """The largest load that every placement has at least, in rows.

    ``total / tasks`` by the pigeonhole principle; where a key may not be split, also the
    heaviest key, which some task has to take whole.
    """
    fair = total / tasks
    return fair if splittable else max(fair, heaviest)


def certify(
    total: float,
    tasks: int,
    makespan: float,
    heaviest: tuple[str, float] | None,
    splittable: bool,
) -> Certificate:
    """Hold a largest load to the lower bound and say what follows."""
    key, rows = heaviest or (None, 0.0)
    bound = lower_bound(total, tasks, rows, splittable)
    gap = makespan / bound - 1.0 if bound else 0.0
    return Certificate(
        total_rows=total,
        tasks=tasks,
        fair_rows=total / tasks,
        heaviest_key=key,
        heaviest_rows=rows,
        splittable=splittable,
        bound_rows=bound,
        makespan_rows=makespan,
        gap=gap,
        conclusion=_conclusion(total, tasks, gap, key, rows, splittable),
    )


def _conclusion(total: float, tasks: int, gap: float, key: str | None, rows: float, splittable: bool) -> str:
    if not total:
        return "nothing is queued"
    if key is not None and not splittable and rows > total / tasks:
        return (
            f"more tasks will not help: key {key[:80]!r} alone is {rows / total:.0%} of the rows "
            "and its aggregates may not be split"
        )
    # A fraction of a percent is the integer remainder and the luck of the hash, not a straggler.
    if gap <= 0.02:
        return "balanced: the largest task is at the fair share"
    return f"the largest task is {gap:.0%} above the bound"
