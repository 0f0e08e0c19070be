"""What the plan of a night's merges starts from: its windows, the states that there are, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from skewless.documents.job import Algebra
from skewless.errors import PlanError
from skewless.planner.engine_choice import STATE_BYTE_SECONDS, STATE_SECONDS
from skewless.standing.window_choice import PartId, Piece, added_between

#: Seconds of a core to write a state, or to copy one without merging it, beside its bytes.
WRITTEN_STATE_SECONDS = 2e-7


class PartStates(NamedTuple):
    """The states of a version of a part: how many, and the bytes of their files."""

    name: str
    version: int
    keys: int
    size_bytes: int

    @property
    def ident(self) -> PartId:
        """What tells it from other versions and parts."""
        return self.name, self.version


class Addition(NamedTuple):
    """The states that version ``after`` of a part has beside those of an earlier version ``before``."""

    part: str
    before: int
    after: int
    keys: int
    size_bytes: int

    @property
    def ident(self) -> PartId:
        """What tells it from whole versions."""
        return added_between((self.part, self.before), (self.part, self.after))


class RunningMerge(NamedTuple):
    """Merged states that are kept: of which parts, oldest first, how many, and the bytes of their files."""

    parts: Piece
    keys: int
    size_bytes: int


class Window(NamedTuple):
    """The parts that a result covers.

    Attributes:
        length: how many parts it may cover; None for all.
        parts: those that there are, oldest first.
    """

    length: int | None
    parts: tuple[PartStates, ...]

    @property
    def name(self) -> str:
        """Its length, or ``all``."""
        return "all" if self.length is None else str(self.length)

    @property
    def piece(self) -> Piece:
        """What its result is made of."""
        return tuple(part.ident for part in self.parts)

    @property
    def grows(self) -> bool:
        """Whether its oldest part is still there tomorrow."""
        return self.length is None or len(self.parts) < self.length


class Night(NamedTuple):
    """What is known when the merges of a night are planned.

    Attributes:
        windows: in any order; each has at least one part, and shorter ones are ends of the longest.
        algebra: of the job's aggregates, by name; all of them can be merged, or at least in the order of parts.
        left: versions of parts that are in no window, or not any more, and whose states are still there.
        additions: what versions in the windows have beside the states of earlier ones.
        slides: whether the next night's windows follow these. Where an old day is computed again they do not: then only
            tonight counts, and nothing is kept or dropped.
        unsettled: to how many of the newest parts late rows usually come. Running merges leave these parts out, as a
            merge with a part that changes is made for nothing.
        result_keys: of the last result of the longest window; 0 where it is not known.
        preferred: a way that is taken wherever it is possible, whatever its price.
    """

    windows: Sequence[Window]
    algebra: Mapping[str, Algebra]
    kept: Sequence[RunningMerge] = ()
    left: Sequence[PartStates] = ()
    additions: Sequence[Addition] = ()
    slides: bool = True
    unsettled: int = 0
    result_keys: int = 0
    preferred: str = ""

    @property
    def longest(self) -> Piece:
        """The parts of the longest window; a ``PlanError`` if a window has no parts, or is no end of it."""
        longest = max((window.piece for window in self.windows), key=len, default=())
        if not longest or not all(one.parts and longest[-len(one.parts) :] == one.piece for one in self.windows):
            raise PlanError("windows of a night", "windows with parts, each the end of the longest one", "another one")
        return longest


class Sizes:
    """How many states a piece has, and their bytes: known, or estimated for what is made tonight.

    A merge has at most as many keys as its parts together. It is taken to have no more than the largest piece known,
    since most keys come again every night. Where they do not, the next night knows from what was kept.
    """

    def __init__(self, night: Night) -> None:
        parts: list[PartStates | Addition] = [*night.left, *night.additions]
        parts += [part for window in night.windows for part in window.parts]
        self._known: dict[Piece, tuple[int, int]] = {one.parts: (one.keys, one.size_bytes) for one in night.kept}
        self._known |= {(part.ident,): (part.keys, part.size_bytes) for part in parts}
        self._most = max((night.result_keys, *(one.keys for one in night.kept)))

    def of(self, piece: Piece) -> tuple[int, int]:
        """States and bytes."""
        if piece not in self._known:
            parts = [self._known[part,] for part in piece]
            total = sum(keys for keys, _ in parts)
            keys = min(total, max(self._most, *(keys for keys, _ in parts)))
            self._known[piece] = (keys, sum(size for _, size in parts) * keys // max(1, total))
        return self._known[piece]

    def states(self, pieces: Iterable[Piece]) -> int:
        """States of some pieces."""
        return sum(self.of(piece)[0] for piece in pieces)

    def merged(self, pieces: Iterable[Piece], *, at_most: int | None = None) -> float:
        """Seconds to read and merge pieces, or at most so many states of each."""
        seconds = 0.0
        for piece in pieces:
            keys, size = self.of(piece)
            part = 1.0 if at_most is None or not keys else min(1.0, at_most / keys)
            seconds += part * (keys * STATE_SECONDS + size * STATE_BYTE_SECONDS)
        return seconds

    def written(self, piece: Piece) -> float:
        """Seconds to write a piece, or to copy it."""
        keys, size = self.of(piece)
        return keys * WRITTEN_STATE_SECONDS + size * STATE_BYTE_SECONDS / 2
