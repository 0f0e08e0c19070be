"""Where the head keys go, as arrays: a hundred thousand keys are placed without a loop over them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.routing.plan import WHOLE_WEIGHT, Weights
from skewless.routing.ring import Ring

Rows = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Cells that each piece of a split key has at least in Spark's table of shares, as long as there
#: are that many: so many are needed for a share to be met to within half a percent of a piece.
CELLS_PER_PIECE = 256


@dataclass(frozen=True, eq=False)
class Placement:
    """Pieces of head keys on tasks; a key with one piece is pinned, with more it is split.

    A piece is a segment of the range of a draw; those of a key lie end to end in their order.
    """

    keys: int
    """How many keys there are, numbered from 0 in an order of the caller's."""
    key: Indices
    """The key of each piece, ascending, shape ``(pieces,)``."""
    task: Indices
    """Its task index, shape ``(pieces,)``."""
    weight: Indices
    """Its share, of ``WHOLE_WEIGHT``; a key's weights add up to that, shape ``(pieces,)``."""

    @classmethod
    def pinned(cls, tasks: Indices) -> "Placement":
        """Each key whole: ``tasks[k]`` is the task of key k."""
        return cls(len(tasks), np.arange(len(tasks)), tasks.astype(np.int64), np.full(len(tasks), WHOLE_WEIGHT))

    @classmethod
    def of_shares(cls, shares: Sequence[Weights]) -> "Placement":
        """From the shares of each key as a plan writes them."""
        pieces = np.fromiter(map(len, shares), dtype=np.int64, count=len(shares))
        flat = chain.from_iterable(chain.from_iterable(shares))
        pairs = np.fromiter(flat, dtype=np.int64, count=2 * int(pieces.sum())).reshape(-1, 2)
        return cls(len(shares), np.repeat(np.arange(len(shares)), pieces), pairs[:, 0], pairs[:, 1])

    @classmethod
    def under(cls, head: Mapping[str, Weights], keys: Sequence[str], on_ring: Indices) -> "Placement":
        """Where keys go under the head of a plan: to their shares, or where ring and buckets say."""
        if not head:
            return cls.pinned(on_ring)
        shares = list(map(head.get, keys))
        named = np.fromiter(map(bool, shares), dtype=bool, count=len(shares))
        placed = cls.of_shares([one for one in shares if one])
        pieces = np.ones(len(keys), dtype=np.int64)
        pieces[named] = placed.pieces
        key = np.repeat(np.arange(len(keys)), pieces)
        task, weight = on_ring[key], np.full(len(key), WHOLE_WEIGHT)
        task[named[key]], weight[named[key]] = placed.task, placed.weight
        return cls(len(keys), key, task, weight)

    @classmethod
    def of_rows(cls, keys: int, key: Indices, task: Indices, rows: Rows) -> "Placement":
        """From rows of pieces, in any order, several for one pair of key and task among them.

        Every key has at least one piece. Rows become whole weights that add up; the largest remainders get the rest.
        """
        tasks = int(task.max()) + 1 if len(task) else 1
        pairs, where = np.unique(key * tasks + task, return_inverse=True)
        amounts = sums(where, rows, len(pairs))
        key, task = pairs // tasks, pairs % tasks
        pieces = np.bincount(key, minlength=keys)
        weight = np.full(len(key), WHOLE_WEIGHT)
        starts = np.cumsum(pieces) - pieces
        for count in distinct(pieces[pieces > 1]).tolist():
            mine = starts[pieces == count][:, None] + np.arange(count)
            weight[mine] = whole_weights(amounts[mine])
        keep = weight > 0
        return cls(keys, key[keep], task[keep], weight[keep])

    @cached_property
    def pieces(self) -> Indices:
        """Pieces of each key, shape ``(keys,)``."""
        return np.bincount(self.key, minlength=self.keys)

    @property
    def split(self) -> Indices:
        """The numbers of the keys that are split."""
        return np.flatnonzero(self.pieces > 1)

    @property
    def first_tasks(self) -> Indices:
        """The task of each key's first piece, shape ``(keys,)``."""
        return np.asarray(self.task[np.cumsum(self.pieces) - self.pieces])

    def loads(self, rows: Rows, tasks: int) -> Rows:
        """Rows of each of ``tasks`` tasks, given the rows of each key, shape ``(tasks,)``."""
        return sums(self.task, rows[self.key] * self.weight / WHOLE_WEIGHT, tasks)

    def kept_part(self, other: "Placement") -> Rows:
        """For each key the part of its rows that have the same task here and in ``other``.

        Two independent draws of a share name the same task with the sum of the products of the
        weights; for a key that is pinned to one task in both that is 1.
        """
        tasks = 1 + int(max(self.task.max(initial=0), other.task.max(initial=0)))
        mine, my_weights = self.pairs(tasks)
        theirs, their_weights = other.pairs(tasks)
        both, at, there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        product = my_weights[at] / WHOLE_WEIGHT * (their_weights[there] / WHOLE_WEIGHT)
        return sums(both // tasks, product, self.keys)

    def pairs(self, tasks: int) -> tuple[Indices, Rows]:
        """The distinct pairs of key and task, each as one number, with the weight of its pieces."""
        pairs, where = np.unique(self.key * tasks + self.task, return_inverse=True)
        return pairs, sums(where, self.weight.astype(np.float64), len(pairs))

    @cached_property
    def states(self) -> int:
        """Distinct pairs of key and task: partial states of one stage."""
        return len(distinct(self.key * (1 + int(self.task.max(initial=0))) + self.task))

    def overlap(self, other: "Placement") -> tuple[Indices, Indices, Rows]:
        """Where pieces here and of another placement meet, if a row's draw stays the same.

        Each stretch has the piece here, the piece there, and what part of the piece here it is.
        """
        mine, theirs = np.cumsum(self.weight), np.cumsum(other.weight)
        cuts = distinct(np.concatenate([mine, theirs]))
        width = np.diff(cuts, prepend=0)
        here = np.searchsorted(mine, cuts, side="left")
        there = np.searchsorted(theirs, cuts, side="left")
        return here, there, width / self.weight[here]

    def pairs_beyond(self, other: "Placement") -> int:
        """How many pairs of key and task are here and not in ``other``: each is a partial state more."""
        tasks = 1 + int(max(self.task.max(initial=0), other.task.max(initial=0)))
        mine, theirs = (distinct(one.key * tasks + one.task) for one in (self, other))
        return len(distinct(np.concatenate([mine, theirs]))) - len(theirs)

    def as_head(self, keys: Sequence[str], order: Indices | None = None) -> dict[str, Weights]:
        """The ``head`` of a plan, by key text, in text order; the keys' numbers in that order may be known."""
        whole = [((task, WHOLE_WEIGHT),) for task in range(int(self.task.max(initial=-1)) + 1)]
        weights: list[Weights] = list(map(whole.__getitem__, self.first_tasks.tolist()))
        split, of_split = self.split, self.pieces[self.key] > 1
        pieces = zip(self.task[of_split].tolist(), self.weight[of_split].tolist(), strict=True)
        for number, count in zip(split.tolist(), self.pieces[split].tolist(), strict=True):
            weights[number] = tuple(islice(pieces, count))
        by_text = sorted(range(len(keys)), key=keys.__getitem__) if order is None else order.tolist()
        return dict(zip(map(keys.__getitem__, by_text), map(weights.__getitem__, by_text), strict=True))


def distinct(values: Indices) -> Indices:
    """The distinct values, ascending. By sorting: numpy's own ``unique`` hashes, which is slower here."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))]


def sums(index: Indices, rows: Rows, size: int) -> Rows:
    """The rows that belong to each index below ``size``, added up, shape ``(size,)``."""
    return np.bincount(index, weights=rows, minlength=size).astype(np.float64, copy=False)


def cells_of(pieces: int) -> int:
    """Cells of the table of a key's shares in Spark, a power of two: ``CELLS_PER_PIECE`` for each, if there are."""
    return min(WHOLE_WEIGHT, 1 << (CELLS_PER_PIECE * pieces - 1).bit_length())


def whole_weights(amounts: Rows) -> Indices:
    """Rows of the pieces of keys, a line for each key, as whole weights that add up to ``WHOLE_WEIGHT``, same shape.

    Weights are multiples of ``WHOLE_WEIGHT / 2**n`` with ``2**n >= CELLS_PER_PIECE`` per piece (as
    long as there are that many), so that Spark can look a share up in a small table of cells.
    """
    cells = cells_of(amounts.shape[-1])
    exact = amounts / amounts.sum(axis=-1, keepdims=True) * cells
    whole = np.floor(exact).astype(np.int64)
    spare = cells - whole.sum(axis=-1, keepdims=True)
    largest_remainders = np.argsort(whole - exact, axis=-1, kind="stable")
    np.put_along_axis(more := np.zeros_like(whole), largest_remainders, np.arange(whole.shape[-1]) < spare, axis=-1)
    whole += more
    return np.asarray(whole * (WHOLE_WEIGHT // cells))


class Proposal(NamedTuple):
    """A change, or the reason why one that was due cannot be made."""

    action: str
    sentence: str
    placement: Placement | None = None
    """Of every head key of the forecast, by task index of the proposed plan; null leaves all of them to ring and
    buckets."""
    ring: Ring | None = None
    """The new ring; null keeps the present one."""
    factors: dict[int, int] | None = None
    """The new elasticity factors; null keeps the present ones."""
    redraw: bool = True
    """Whether split keys and rows without a key are drawn anew. Needed where what is left of a split key is no fair
    sample of its shares; not where shares are shifted piece by piece."""
    refusal: str = ""
    """Why it cannot be done; empty where it can."""
