"""Merged states in a tree over the parts of a window: of 2, 4, 8 ... parts that are aligned by their places.

A node has the parts of the places ``size * n <= place < size * (n + 1)``, where size is a power of two, and is made of
its two halves (a segment tree: de Berg and others, "Computational Geometry", section 10.3). So a window of n parts is a
merge of at most ``2 * log2(n)`` states, and a part that changes spoils ``log2(n)`` nodes. A night makes the nodes that
its windows and those of tomorrow are merged of, unless they are kept, and a few more: so a late file costs little.

    STORE/FINGERPRINT/merges/NAME.json     the states of which parts a node is made of, and the files with its own

A node only saves time. One that is damaged, or whose files are gone, is forgotten, and made anew of its parts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import NamedTuple

from pydantic import Field

from skewless.columns import column
from skewless.document import Count, Document
from skewless.documents.commit import CommittedFile
from skewless.documents.window import WindowSpan
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.directory import RESULT_STEP, WINDOW_PLAN, RunDirectory
from skewless.standing.states_store import MergedPart, Numbered, StatesStore, node_name, states_checksum

#: Of nodes that nobody needs yet, a night makes some that have this part of all parts: a first night has much to do.
AHEAD = 1 / 8
#: The positions ``first <= at < end`` of parts of a window, oldest first.
Span = tuple[int, int]


class WindowPlan(Document):
    """Of which states the results of a night are merged: ``windows.json``."""

    parts: tuple[str, ...] = Field(min_length=1)
    """The part versions of the longest window, ``2026-11-20@3``, oldest first."""
    made: dict[str, tuple[Count, Count]]
    """The nodes that the night makes, by name, each with the span of its parts."""
    results: dict[str, tuple[str, ...]]
    """For each window, by its length or ``all``, the parts and nodes whose states are merged."""
    passed_over: tuple[str, ...] = ()
    """Nodes that could not be used, each with the reason."""

    @property
    def sentence(self) -> str:
        """How many states each window is merged of."""
        merges = (f"window {window}: a merge of {len(names):,} states" for window, names in self.results.items())
        return f"{'; '.join(merges)}; {len(self.made):,} merged states of several parts made"


class NightPlan(NamedTuple):
    """The plan of a night's merges."""

    document: WindowPlan
    files: dict[str, tuple[CommittedFile, ...]]
    """Of each part and each kept node that is read, by name."""
    pieces: dict[str, tuple[int, ...]]
    """What the nodes to be made are merged of, by name: the positions, in ``document.made``, of those nodes."""
    place_of: dict[str, int]
    """The place of the oldest part of each piece, which its states have."""


def plan_night(
    store: StatesStore, parts: Sequence[Numbered], places: Sequence[int], windows: Sequence[WindowSpan]
) -> NightPlan:
    """Choose what is merged. Every file of a node that the plan reads was looked at.

    Args:
        parts: the versions of the longest window, oldest first, each with its place.
        windows: each is an end of the longest one.
    """
    merged = [MergedPart(part=one.version.part, states=states_checksum(one.version)) for one in parts]
    names = {span: node_name(merged[slice(*span)]) for span in aligned_spans(places)}
    # In this order: another run commits the versions of its parts before it keeps nodes of them.
    listing, faults = store.merges(), list[str]()
    nodes = {span for span, name in names.items() if name in listing}
    names |= {(at, at + 1): f"{one.version.part}@{one.number}" for at, one in enumerate(parts)}
    files = {names[at, at + 1]: one.version.states for at, one in enumerate(parts)}
    length = windows[-1].length
    grows = length is None or places[-1] - places[0] + 1 < length
    while True:
        made = made_tonight(spans_to_make(names, nodes, grows=grows), nodes, windows, len(parts), grows=grows)
        results = {one.name: cover((one.first, len(parts)), nodes | set(made)) for one in windows}
        pieces = pieces_of(made, nodes)
        read = {span for spans in (*results.values(), pieces) for span in spans} & nodes
        faulty = set[Span]()
        for span in read:
            try:
                files[names[span]] = store.usable_merge(names[span]).states
            except (DocumentError, RunDirectoryError) as err:
                faults.append(f"{names[span]} ({err})")
                store.forget_merge(names[span])
                faulty.add(span)
        nodes -= faulty
        if not faulty:
            break
    document = WindowPlan(
        parts=tuple(names[at, at + 1] for at in range(len(parts))),
        made={names[span]: span for span in made},
        results={window: tuple(names[span] for span in spans) for window, spans in results.items()},
        passed_over=tuple(faults),
    )
    return NightPlan(
        document, files, {names[span]: within for span, within in pieces.items()},
        {names[span]: places[span[0]] for span in pieces},
    )  # fmt: skip


def aligned_spans(places: Sequence[int]) -> Iterator[Span]:
    """The nodes within some ascending places, each once, smaller ones first: those that a window may be made of.

    They have at least two parts. A first half whose whole is there is none of them: each window has the newest part,
    so it has such a whole, or begins within the half.
    """
    size, seen, end = 2, set[Span](), places[-1] + 1
    while size <= end - places[0]:
        for begin in range(-(-places[0] // size) * size, end - size + 1, size):
            span = bisect_left(places, begin), bisect_left(places, begin + size)
            if span[1] - span[0] > 1 and span not in seen and (begin // size % 2 or begin + 2 * size > end):
                seen.add(span)
                yield span
        size *= 2


def spans_to_make(spans: Iterable[Span], kept: AbstractSet[Span], *, grows: bool) -> list[Span]:
    """The nodes that are not kept; without those that leave tomorrow with the oldest part, unless the window grows."""
    return [span for span in spans if span[1] - span[0] > 1 and span not in kept and (grows or span[0] > 0)]


def made_tonight(
    missing: Sequence[Span], kept: AbstractSet[Span], windows: Sequence[WindowSpan], parts: int, *, grows: bool
) -> list[Span]:
    """Of nodes that are not kept, smaller ones first: those of the windows of tonight and tomorrow, and a few more."""
    firsts = {one.first for one in windows} | {one.first + 1 for one in (windows[:-1] if grows else windows)}
    wanted = {span for first in firsts for span in cover((first, parts), {*missing, *kept})}
    ahead = [span for span in missing if span not in wanted]
    before = accumulate((end - first for first, end in ahead), initial=0)
    wanted.update(span for span, more in zip(ahead, before, strict=False) if more < parts * AHEAD)
    return [span for span in missing if span in wanted]


def cover(whole: Span, nodes: Iterable[Span]) -> list[Span]:
    """The fewest nodes and single parts that make up a span. Nodes never overlap without one having the other."""
    longest = dict[int, int]()
    for first, end in nodes:
        if end <= whole[1]:
            longest[first] = max(end, longest.get(first, end))
    spans, at = list[Span](), whole[0]
    while at < whole[1]:
        spans.append((at, longest.get(at, at + 1)))
        at = spans[-1][1]
    return spans


def pieces_of(made: Sequence[Span], kept: Iterable[Span]) -> dict[Span, tuple[int, ...]]:
    """What nodes are made of, each read once: kept nodes and single parts, each with the numbers of the nodes over it.

    A kept node that has a node to be made within it is no piece.
    """
    whole = [node for node in kept if not any(node[0] <= one[0] and one[1] <= node[1] for one in made)]
    pieces = (piece for one in made for piece in cover(one, whole))  # nodes of one tree: they have the same ones
    return {
        (first, end): tuple(number for number, one in enumerate(made) if one[0] <= first and end <= one[1])
        for first, end in pieces
    }


def plan_of(run: RunDirectory) -> WindowPlan | None:
    """Of what a run merged the results of its windows; None without a window, or before the result is committed."""
    commit = run.commit_of(RESULT_STEP) if run.job().window else None
    if commit is None or not any(path.endswith(f"/{WINDOW_PLAN}") for path in column(commit.files, "path")):
        return None
    return run.committed_document(commit, WINDOW_PLAN, WindowPlan)
