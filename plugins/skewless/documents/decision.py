"""What the planner decided after a stage, out of what, and why."""

from __future__ import annotations

from pydantic import Field

from skewless.document import LAST_STAGE, Document, Frozen
from skewless.documents.certificate import Certificate
from skewless.documents.engine_choice import EngineChoice
from skewless.routing.plan import RoutingPlan


class Candidate(Frozen):
    """One action the planner weighed.

    Attributes:
        action: its name.
        makespan_rows: predicted largest load of a task in the next stage, were it drained.
        forwarded_rows: predicted backlog rows that would change their owner.
        pieces: (head key, task) pairs of the plan; those beyond one per key cost a partial state each.
        cost_rows: makespan with forwarding and states priced in; the least is taken.
        chosen: whether it was taken.
        sentence: why, or why not.
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
        stage: the stage that it decides about.
        policy: who decided.
        engine: the choice of an engine, where one was made: about stage 0, and where it is revised.
        queued_rows: rows that stage will find: the backlog and the next wave.
        candidates: all that were weighed, the chosen one among them; empty when finished.
        certificate: of the chosen plan's prediction.
        sentence: the decision in words.
        next_plan: null when no further stage is needed.
        observed: whether it was only observed: the chosen candidate, the certificate and the sentence say
            what would have been done, and ``next_plan`` is that of policy ``static``.
    """

    stage: int = Field(ge=0, le=LAST_STAGE)
    policy: str
    engine: EngineChoice | None = None
    queued_rows: int = Field(ge=0)
    candidates: tuple[Candidate, ...]
    certificate: Certificate | None
    sentence: str
    next_plan: RoutingPlan | None
    observed: bool = False
