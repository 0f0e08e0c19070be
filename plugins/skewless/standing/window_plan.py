"""How the states of a window's parts become one: all merged, running merges, subtraction, or touched keys only.

A window that moves by a part each night shares nearly all of its parts with the window of the night before. Four ways
are priced:

- **merge all**: the states of all parts are merged. Nothing is kept for the next night.
- **running merges** (two stacks, for any aggregate that merges): the window is a suffix of the older parts, of which
  all suffixes were merged once, and a running merge of the newer ones. When the older parts have all left, the suffixes
  of the whole window are made. So a night makes at most three merges of two on average, however long the window is.
  Tangwongsan, Hirzel, Schneider, Wu: "General incremental sliding-window aggregation", VLDB 2015, section 3.
- **subtract** (where every aggregate is invertible): the merge of the night before, without the parts that left, and
  with those that came. A part that changed leaves in its old version and comes in its new one. Of a part to which files
  were only added, the added states come.
- **touched keys**: the merge of the night before, where only the keys of what left, came or changed are merged anew.

Windows that end in the same part share their merges: the result of a shorter one is a piece of a longer one. A merge
stands for part versions, and is used only where the window has just these versions side by side: one that holds a part
which has changed since is never used as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skewless.standing.night import Night, Sizes, Window
from skewless.standing.window_choice import MergeStep, PartId, Piece, WindowCandidate, WindowChoice, name_of

#: Seconds of a core for a step whose states are written: a query is planned, its tasks are started, its files are
#: committed (measured: 0.4 to 0.5). A step that is not kept is a part of the query that writes the result.
STEP_SECONDS = 0.5
#: Seconds of a core to read a key and see whether it is touched.
SCANNED_STATE_SECONDS = 1e-7
#: So many parts are merged at once rather than by running merges.
FEW_PARTS = 3


def plan_windows(night: Night) -> WindowChoice:
    """Choose how the results of a night are made, and what is kept for the next one."""
    ways_of = _Ways(night)
    steps: dict[str, MergeStep] = {}
    results: dict[str, str] = {}
    candidates: list[WindowCandidate] = []
    useful: set[Piece] = set()
    words = []
    for window in sorted(night.windows, key=lambda one: (one.length is None, one.length or 0)):
        ways = ways_of.all_of(window)
        possible = [way for way in ways if way.possible]
        chosen = min(possible, key=lambda way: (way.action != night.preferred, ways_of.price(way, window)))
        candidates += [_candidate(window, way, chosen) for way in ways]
        for step in chosen.steps:
            # Another window may keep what this one only makes.
            known = steps.get(step.makes)
            steps[step.makes] = step if known is None else known.model_copy(update={"keep": known.keep or step.keep})
        results[window.name] = name_of(window.piece)
        ways_of.made.add(window.piece)
        useful |= chosen.useful
        words.append(f"window {window.name}: {chosen.action}, {chosen.sentence}")
    dropped = sorted(name_of(piece) for piece in ways_of.kept - useful) if night.slides else []
    return WindowChoice(
        parts=night.longest, candidates=tuple(candidates), steps=tuple(steps.values()), results=results,
        dropped=tuple(dropped), sentence="; ".join(words),
    )  # fmt: skip


class _Way(NamedTuple):
    """One way to make the result of a window; not a possible one if it has no steps but needs some."""

    action: str
    sentence: str
    possible: bool = True
    steps: tuple[MergeStep, ...] = ()
    seconds: float = 0.0
    nightly_seconds: float = 0.0
    states: int = 0
    useful: frozenset[Piece] = frozenset()


class _Ways:
    """The ways to make a window of a night.

    Attributes:
        made: the results of shorter windows that the night makes.
    """

    def __init__(self, night: Night) -> None:
        self.sizes, self.slides, self.unsettled = Sizes(night), night.slides, night.unsettled
        self.made: set[Piece] = set()
        self.kept = frozenset(one.parts for one in night.kept)
        self.left = {one.ident for one in night.left}
        self.places = {part: at for at, part in enumerate(night.longest)}
        self._named: dict[str, Piece] = {}
        self.floats = [name for name, one in night.algebra.items() if not one.invertible]
        self.in_order = any(not one.mergeable for one in night.algebra.values())
        # In order, what was added may belong between other states.
        self.additions = {} if self.in_order else {(one.part, one.before): one for one in night.additions}

    def all_of(self, window: Window) -> list[_Way]:
        return [self._merge_all(window), self._running_merges(window), self._subtract(window), self._touched(window)]

    def price(self, way: _Way, window: Window) -> float:
        """Seconds a night, over tonight and the nights until all parts of the window have left."""
        nights = len(window.parts) if self.slides else 1
        return (way.seconds + (nights - 1) * way.nightly_seconds) / nights

    def _merge_all(self, window: Window) -> _Way:
        """All parts at once, or the result of a shorter window and the parts before it."""
        pieces = self._cover(window.piece, self.made)
        steps = self._steps(window.piece, pieces)
        shared = [piece for piece in pieces if len(piece) > 1]
        seconds = self._price_of(steps) + sum(STEP_SECONDS + self.sizes.written(piece) for piece in shared)
        words = f"{len(pieces) - len(shared)} parts at once"
        words += "".join(f", and the result of the last {len(piece)}" for piece in shared)
        return self._way("merge all", words, steps, seconds)

    def _running_merges(self, window: Window) -> _Way:
        """Two stacks: a suffix of the older parts, and a running merge of the newer ones."""
        parts, action = window.piece, "running merges"
        settled = parts[: max(0, len(parts) - self.unsettled)]
        if len(settled) <= FEW_PARTS:
            return _Way(action, "there are too few parts to keep merges of them", possible=False)
        recent = _ones(parts[len(settled) :])
        pieces = self._cover(settled, self.kept, fewest=True)
        newest = max((at for at, piece in enumerate(pieces) if len(piece) > 1), default=len(pieces))
        if newest <= 1:
            front, back = pieces[0], settled[len(pieces[0]) :]
            steps = self._steps(back, pieces[1:], keep=True)
            pieces = [piece for piece in (front, back) if piece]
            useful = {back, *_suffixes(front if window.grows else front[1:])}
            words = f"{len(front)} older parts as one and {len(back)} newer ones as one"
        elif not self.slides:
            return _Way(action, "no merge is kept of parts like these", possible=False)
        else:
            steps, useful = [], set()
            for tail in reversed(_suffixes(settled)):
                keep = window.grows or tail != settled
                steps += self._steps(tail, [tail[:1], tail[1:]] if len(tail) > 1 else [tail], keep=keep)
                useful |= {tail} if keep else set()
            pieces, words = [settled], f"begun anew with the suffixes of {len(settled)} parts"
        steps += self._steps(parts, [*pieces, *recent])
        # A running merge grows, a suffix is made, and the two are merged.
        nightly = 3 * self.sizes.merged([parts, parts]) + 2 * (STEP_SECONDS + self.sizes.written(parts))
        return self._way(action, words, steps, None, nightly + self.sizes.merged(recent), useful)

    def _subtract(self, window: Window) -> _Way:
        """The merge of another night, without what left and with what came."""
        action, parts = "subtract", set(window.piece)
        if len(parts) == 1:
            return _Way(action, "there is one part", possible=False)
        available = set() if self.floats else self.left
        bases = self._bases(window.piece, available)
        if self.in_order:
            bases = [base for base in bases if base == window.piece[: len(base)]]
        if self.floats and window.length is not None:
            words = f"not every aggregate is invertible: {', '.join(sorted(self.floats))}"
            return _Way(action, words, possible=False)
        part = self.sizes.merged(_ones(window.piece)) / len(parts)
        nightly = STEP_SECONDS + self.sizes.merged([window.piece]) + self.sizes.written(window.piece)
        nightly += part if window.grows else 2 * part
        if not bases:
            return self._begun(action, window, nightly)
        base = min(bases, key=lambda one: (self.sizes.merged([one, *_ones(self._changed(one, window.piece))]), one))
        gone, come = self._changes(base, window.piece)
        steps = [self._step(window.piece, [base, *_ones(come)], subtract=_ones(gone))] if gone or come else []
        words = f"a merge of {len(base)} parts, {len(gone)} taken out and {len(come)} added"
        return self._way(action, words, steps, None, nightly, {window.piece})

    def _touched(self, window: Window) -> _Way:
        """The merge of another night, where only keys of parts that left, came or changed are merged anew."""
        action, parts = "touched keys", set(window.piece)
        if len(parts) == 1:
            return _Way(action, "there is one part", possible=False)
        bases = self._bases(window.piece, self.left)
        usual = self.sizes.states(_ones(window.piece)) // len(parts)
        nightly = self._touched_seconds(window.piece, window.piece, usual if window.grows else 2 * usual)
        if not bases:
            return self._begun(action, window, nightly)
        base = min(bases, key=lambda one: (self.sizes.states(_ones(self._changed(one, window.piece))), one))
        changed = _ones(sorted(self._changed(base, window.piece)))
        touched = min(self.sizes.states(changed), self.sizes.of(window.piece)[0])
        steps, seconds = [], 0.0
        if changed:
            steps = [self._step(window.piece, _ones(window.piece), copy_from=base, touched_by=changed)]
            seconds = self._touched_seconds(window.piece, base, touched)
        words = f"at most {touched:,} keys of {len(changed)} parts that left, came or changed; the others are copied"
        return self._way(action, words, steps, seconds, nightly, {window.piece})

    def _bases(self, parts: Piece, available: set[PartId]) -> list[Piece]:
        """The kept merges that share a part with others, and have no more than these and some available ones."""
        if parts in self.kept:
            return [parts]
        sharing = (base for base in self.kept if not set(parts).isdisjoint(base))
        return [base for base in sharing if available.issuperset(self._changes(base, parts)[0])]

    def _changes(self, base: Piece, parts: Piece) -> tuple[list[PartId], list[PartId]]:
        """What a merge has that some parts have not, and what it lacks."""
        merged, wanted = set(base), set(parts)
        gone, come = sorted(merged - wanted), [one for one in parts if one not in merged]
        for before in list(gone):
            added = self.additions.get(before)
            if added is not None and (added.part, added.after) in come:
                gone.remove(before)
                come[come.index((added.part, added.after))] = added.ident
        return gone, come

    def _changed(self, base: Piece, parts: Piece) -> list[PartId]:
        gone, come = self._changes(base, parts)
        return gone + come

    def _touched_seconds(self, parts: Piece, base: Piece, touched: int) -> float:
        scanned = self.sizes.states(_ones(parts)) * SCANNED_STATE_SECONDS
        copied = self.sizes.written(base) + self.sizes.written(parts)
        return STEP_SECONDS + scanned + self.sizes.merged(_ones(parts), at_most=touched) + copied

    def _begun(self, action: str, window: Window, nightly: float) -> _Way:
        """All parts are merged tonight, and the merge is kept for the next night."""
        if not self.slides:
            return _Way(action, "no merge is kept of parts like these", possible=False)
        steps = self._steps(window.piece, self._cover(window.piece, self.made), keep=True)
        return self._way(action, "begun with a merge of all parts", steps, None, nightly, {window.piece})

    def _way(
        self, action: str, words: str, steps: Sequence[MergeStep], seconds: float | None,
        nightly_seconds: float | None = None, useful: Iterable[Piece] = (),
    ) -> _Way:  # fmt: skip
        tonight = self._price_of(steps) if seconds is None else seconds
        nightly = tonight if nightly_seconds is None else nightly_seconds
        states = self.sizes.states(self._named[name] for step in steps for name in (*step.add, *step.subtract))
        kept = frozenset(piece for piece in useful if len(piece) > 1)
        return _Way(action, words, True, tuple(steps), tonight, nightly, states, kept)

    def _price_of(self, steps: Iterable[MergeStep]) -> float:
        seconds = 0.0
        for step in steps:
            seconds += self.sizes.merged(self._named[name] for name in (*step.add, *step.subtract))
            seconds += STEP_SECONDS + self.sizes.written(self._named[step.makes]) if step.keep else 0.0
        return seconds

    def _steps(self, makes: Piece, pieces: Sequence[Piece], *, keep: bool = False) -> list[MergeStep]:
        """One step, or none where there is nothing to merge, or where the merge is kept already."""
        needed = len(pieces) > 1 and makes not in self.kept
        return [self._step(makes, pieces, keep=keep)] if needed else []

    def _step(
        self, makes: Piece, add: Sequence[Piece], *, subtract: Sequence[Piece] = (), copy_from: Piece = (),
        touched_by: Sequence[Piece] = (), keep: bool = True,
    ) -> MergeStep:  # fmt: skip
        first = self.places[makes[0]]
        self._named |= {name_of(piece): piece for piece in (makes, *add, *subtract)}
        return MergeStep(
            makes=name_of(makes), span=(first, first + len(makes)), add=tuple(map(name_of, add)),
            subtract=tuple(map(name_of, subtract)), copy_from=name_of(copy_from) if copy_from else "",
            touched_by=tuple(map(name_of, touched_by)), keep=keep and self.slides,
        )  # fmt: skip

    def _cover(self, parts: Piece, pool: Iterable[Piece], *, fewest: bool = False) -> list[Piece]:
        """The pieces of a pool, and single parts, that make up some parts: the cheapest to merge, or the fewest.

        A piece fits where its part versions lie side by side.
        """
        ending: dict[int, list[int]] = {end: [end - 1] for end in range(1, len(parts) + 1)}
        begin = self.places[parts[0]]
        for piece in pool:
            first = self.places.get(piece[0], -1) - begin
            if first >= 0 and len(piece) > 1 and parts[first : first + len(piece)] == piece:
                ending[first + len(piece)].append(first)
        best: list[tuple[float, int]] = [(0.0, 0)]
        for end in range(1, len(parts) + 1):
            priced = [(best[at][0] + (1.0 if fewest else self.sizes.merged([parts[at:end]])), at) for at in ending[end]]
            best.append(min(priced))
        pieces, end = [], len(parts)
        while end:
            first = best[end][1]
            pieces.append(parts[first:end])
            end = first
        return pieces[::-1]


def _ones(parts: Iterable[PartId]) -> list[Piece]:
    return [(part,) for part in parts]


def _suffixes(piece: Piece) -> list[Piece]:
    return [piece[at:] for at in range(len(piece))]


def _candidate(window: Window, way: _Way, chosen: _Way) -> WindowCandidate:
    words = way.sentence
    if way.possible:
        priced = (
            f"{way.states:,} states, {way.seconds:,.1f} s tonight and {way.nightly_seconds:,.1f} s a night hereafter"
        )
        words = f"{words}: {priced}" + ("" if way is chosen else f"; {chosen.action} is cheaper")
    return WindowCandidate(
        window=window.name, action=way.action, possible=way.possible, chosen=way is chosen,
        seconds=round(way.seconds, 3), nightly_seconds=round(way.nightly_seconds, 3),
        merges=sum(step.merges for step in way.steps), states=way.states, sentence=words,
    )  # fmt: skip
