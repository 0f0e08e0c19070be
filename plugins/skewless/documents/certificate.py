"""How near a plan or a run came to what no plan can beat; ``skewless.bounds`` computes it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.document import Frozen

BoundName = Literal["fair share", "heaviest key", "several heavy keys"]


class Certificate(Frozen):
    """How far a largest load is from the best there can be.

    Attributes:
        total_rows: rows to be placed.
        tasks: tasks to place them on.
        fair_rows: ``total / tasks`` (with speeds, total by the sum of the speeds): the bound that
            holds for every plan.
        heaviest_key: key text of the heaviest key known, if any.
        heaviest_rows: its rows.
        splittable: whether a key may be split over tasks.
        bound_rows: the best (largest) of the bounds that hold.
        makespan_rows: the largest load of a task, in rows (with speeds: of a task of speed 1); null where nobody
            measured it.
        gap: ``makespan / bound - 1``; 0 where there is nothing to do, null where nothing was measured. At least 0
            of what was measured; a prediction may be some rows short of what its own keys come to.
        conclusion: in words.
        bound_name: which bound is the best; the first of equals.
        unit: what ``_rows`` counts, for the conclusion: rows, or a cost in rows.
        ways: tasks that a key may be split over, at most; null where nobody limits it.
        states: (known key, task) pairs of the plan; null where not given.
        states_lower: pairs that every plan with this makespan or less has at least; null where
            the known keys were not given.
        states_upper: pairs that some plan of least makespan needs at most; null as above.
    """

    total_rows: float = Field(ge=0)
    tasks: int = Field(ge=1)
    fair_rows: float = Field(ge=0)
    heaviest_key: str | None
    heaviest_rows: float = Field(ge=0)
    splittable: bool
    bound_rows: float = Field(ge=0)
    makespan_rows: float | None = Field(ge=0)
    gap: float | None
    conclusion: str
    bound_name: BoundName = "fair share"
    unit: str = "rows"
    ways: int | None = Field(default=None, ge=1)
    states: int | None = Field(default=None, ge=0)
    states_lower: int | None = Field(default=None, ge=0)
    states_upper: int | None = Field(default=None, ge=0)

    @property
    def over_fair(self) -> float | None:
        """The largest load over the fair share: at least 1, also where there is nothing to do; None if not measured."""
        if self.makespan_rows is None:
            return None
        return self.makespan_rows / self.fair_rows if self.fair_rows else 1.0
