"""What the planner decided after a stage, out of what, and why."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.document import LAST_STAGE, Document, Frozen
from skewless.routing.plan import RoutingPlan
from skewless.spec.routing import ENGINES, EngineName, EngineTraits


class EngineChoice(Frozen):
    """The engine of a run's next stages, with the numbers that spoke for it.

    Attributes:
        splits: input splits that ``combine`` would read.
        keys: different keys among the rows, estimated; 0 where nothing is known.
        states: that ``combine`` would make, estimated.
        combine_seconds: predicted seconds of one core beyond reading and updating, as for the other engines.
        bypass_seconds: 0 where it was no candidate.
    """

    engine: EngineName
    rows: int = Field(default=0, ge=0)
    splits: int = Field(default=0, ge=0)
    keys: int = Field(default=0, ge=0)
    states: int = Field(default=0, ge=0)
    combine_seconds: float = Field(default=0.0, ge=0)
    bypass_seconds: float = Field(default=0.0, ge=0)
    staged_seconds: float = Field(default=0.0, ge=0)
    sentence: str

    @property
    def traits(self) -> EngineTraits:
        """What the engine makes of a plan."""
        return ENGINES[self.engine]


BoundName = Literal["fair share", "heaviest key", "several heavy keys"]


class Certificate(Frozen):
    """How far a largest load is from the best there can be.

    Attributes:
        fair_rows: ``total / tasks``: the bound that holds for every plan.
        heaviest_key: key text of the heaviest key known, if any.
        splittable: whether a key may be split over tasks.
        bound_rows: the best (largest) of the bounds that hold.
        makespan_rows: the largest load of a task, in rows. Null if it was not measured.
        gap: ``makespan / bound - 1``; 0 if there is nothing to do, null if nothing was measured. A measured gap is
            at least 0. A predicted one may be below it: the prediction may be some rows short.
        bound_name: which bound is the best; the first of equals.
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
    bound_name: BoundName

    @property
    def over_fair(self) -> float | None:
        """The largest load over the fair share: at least 1, also where there is nothing to do; None if not measured."""
        if self.makespan_rows is None:
            return None
        return self.makespan_rows / self.fair_rows if self.fair_rows else 1.0


class Candidate(Frozen):
    """One action the planner weighed.

    Attributes:
        makespan_rows: predicted largest load of a task in the next stage, were it drained.
        forwarded_rows: predicted backlog rows that would change their owner.
        pieces: (head key, task) pairs of the plan; those beyond one per key cost a partial state each.
        cost_rows: makespan with forwarding and states priced in; the least is taken.
    """

    action: str
    makespan_rows: float = Field(ge=0)
    forwarded_rows: float = Field(ge=0)
    pieces: int = Field(ge=0)
    cost_rows: float = Field(ge=0)
    chosen: bool
    sentence: str


class Decision(Document):
    """The planner's answer to one report; about stage 0, to what is known before any.

    Attributes:
        engine: the choice of an engine, where one was made: about stage 0, and where it is revised.
        queued_rows: rows that stage will find: the backlog and the next wave.
        candidates: all that were weighed, the chosen one among them; empty when finished.
        certificate: of the chosen plan's prediction.
    """

    stage: int = Field(ge=0, le=LAST_STAGE)
    policy: str
    engine: EngineChoice | None = None
    queued_rows: int = Field(ge=0)
    candidates: tuple[Candidate, ...]
    certificate: Certificate | None
    sentence: str
    next_plan: RoutingPlan | None
