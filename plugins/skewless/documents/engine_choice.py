"""Which engine the next stages of a run take, and the numbers that spoke for it; the planner chooses."""

from __future__ import annotations

from pydantic import Field

from skewless.document import Frozen
from skewless.spec.routing import ENGINES, EngineName, EngineTraits


class EngineChoice(Frozen):
    """The engine of a run's next stages, with the numbers that spoke for it.

    Attributes:
        engine: what was chosen.
        rows: rows to be reduced.
        splits: input splits that ``combine`` would read.
        keys: different keys among the rows, estimated; 0 where nothing is known.
        states: states that ``combine`` would make, estimated.
        combine_seconds: predicted seconds of one core beyond reading and updating, engine ``combine``.
        bypass_seconds: the same, engine ``bypass``; 0 where it was no candidate.
        staged_seconds: the same, engine ``staged``.
        sentence: the choice in words.
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
