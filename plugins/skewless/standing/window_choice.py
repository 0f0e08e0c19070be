"""How the results of a night's windows are made of kept states, and what else was weighed; the plan chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from skewless.document import Count, Document, Frozen, unmet

#: A version of a part: the part's name, and the number of the version.
PartId = tuple[str, int]
#: Versions of parts, oldest first, whose states are merged.
Piece = tuple[PartId, ...]


def name_of(piece: Sequence[PartId]) -> str:
    """The name of the states of some part versions: equal parts have equal names, in any run."""
    first = f"{piece[0][0]}@{piece[0][1]}"
    if len(piece) == 1:
        return first
    content = "\n".join(f"{name}@{version}" for name, version in piece)
    return f"{first}+{len(piece) - 1}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def added_between(before: PartId, after: PartId) -> PartId:
    """What tells the states that came to a part between two of its versions from those of whole versions."""
    return f"{before[0]}@{before[1]}..", after[1]


class MergeStep(Frozen):
    """One merge of states. Those that it names are kept, or made by an earlier step.

    Attributes:
        span: the parts of the choice that it then stands for, ``first <= at < end``.
        subtract: the names of the states whose rows are taken out of them again.
        copy_from: with a name: the states of keys that are not touched are copied from there, and only those of touched
            keys are merged.
        touched_by: the names of the states whose keys are the touched ones.
    """

    makes: str
    span: tuple[Count, Count]
    add: tuple[str, ...] = Field(min_length=1)
    subtract: tuple[str, ...] = ()
    copy_from: str = ""
    touched_by: tuple[str, ...] = ()
    keep: bool = False

    @property
    def merges(self) -> int:
        """How often two states of a key are made one, at most."""
        return len(self.add) + len(self.subtract) + bool(self.copy_from) - 1


class WindowCandidate(Frozen):
    """One way to make the result of one window.

    Attributes:
        possible: whether it could have been taken; if not, it has no price.
        seconds: of a core tonight, predicted, without what all ways need.
        nightly_seconds: the same of a usual night hereafter, with its part of what is done once per window.
        merges: how often two states of a key are made one tonight, at most.
        sentence: what it does, and why it was taken or not.
    """

    window: str
    action: str
    possible: bool
    chosen: bool
    seconds: float = Field(default=0.0, ge=0)
    nightly_seconds: float = Field(default=0.0, ge=0)
    merges: Count = 0
    states: Count = 0
    sentence: str


class WindowChoice(Document):
    """How the results of a night are made.

    Attributes:
        parts: the part versions of the longest window, name and number, oldest first. Shorter windows are ends of it.
        candidates: all ways that were weighed, of each window.
        steps: in an order in which they can be made.
        results: for each window, by its length or ``all``, the name of its states: of a step, of a kept merge, or of
            the only part.
        dropped: the names of kept merges that no night to come needs.
        passed_over: kept merges that could not be used, each with the reason.
    """

    parts: tuple[tuple[str, Count], ...] = Field(min_length=1)
    candidates: tuple[WindowCandidate, ...]
    steps: tuple[MergeStep, ...]
    results: dict[str, str]
    dropped: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    sentence: str

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        made = [step.makes for step in self.steps]
        if len(set(made)) < len(made):
            raise unmet("steps that make different states", "two that make the same")
        if not all(step.span[0] < step.span[1] <= len(self.parts) for step in self.steps):
            raise unmet(f"spans within the {len(self.parts)} parts", "another one")
        return self

    def parts_of(self, step: MergeStep) -> tuple[tuple[str, int], ...]:
        """The part versions that a step's states stand for, oldest first."""
        return self.parts[slice(*step.span)]
