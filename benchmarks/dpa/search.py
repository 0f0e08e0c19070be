"""How the workloads were found: ``python -m benchmarks.dpa.search`` prints those of ``experiments.py`` again.

The paper publishes the skew of its workloads, not their letters. So candidates are built whose items
have the published skew at the start, on the ring with 16 tokens each as well as on the one with
one: the items of each reducer are given by the two rings' margins, a table with these margins is
filled by the north-west corner rule with its rows and columns in some order, and each of its cells is
shared out to letters that both rings send there. The items are then shuffled. Candidate n is built
from a generator seeded with n, so the search is the same every time.

Of the candidates that one is kept on which halving and doubling, with one round per reducer, end
nearest to where the paper says they end; and where further rounds never hurt halving, as in the
paper's Figure 3. What the planner makes of a candidate is never looked at.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from benchmarks.dpa.actors import REDUCERS, play
from benchmarks.dpa.balancers import HALVING_TOKENS, Doubling, Halving, owner_of
from benchmarks.dpa.experiments import ITEMS, MOST_ROUNDS, PUBLISHED, largest_load

CANDIDATES = 4000
LETTERS = string.ascii_letters
#: At most so many letters share the items of a cell.
LETTERS_OF_A_CELL = 3


def search(workload: str) -> str:
    """The letters of a workload, in their order.

    Raises:
        LookupError: no candidate is of the paper's shape.
    """
    halving, doubling = PUBLISHED[workload]["halving"], PUBLISHED[workload]["doubling"]
    best, found = float("inf"), None
    for letters in _candidates(workload):
        away = abs(play(letters, Halving(HALVING_TOKENS), 1).skew - halving.balanced)
        away += abs(play(letters, Doubling(1), 1).skew - doubling.balanced)
        if away < best and _never_hurts(letters, stays=halving.balanced == halving.start == 1):
            best, found = away, letters
    if found is None:
        raise LookupError(f"{workload}: no candidate of {CANDIDATES} has the paper's shape")
    return found


def _never_hurts(letters: str, *, stays: bool) -> bool:
    """Whether halving never gets worse by a round after the first; or never leaves its start."""
    skews = [play(letters, Halving(HALVING_TOKENS), limit).skew for limit in range(MOST_ROUNDS + 1)]
    if stays:
        return len(set(skews)) == 1
    return all(later <= earlier for earlier, later in pairwise(skews[1:]))


def _candidates(workload: str) -> Iterator[str]:
    if workload == "WL3":  # the same letter again and again
        yield from (letter * ITEMS for letter in LETTERS)
        return
    cells: dict[tuple[int, int], list[str]] = {}
    for letter in LETTERS:
        place = owner_of(letter, (HALVING_TOKENS,) * REDUCERS), owner_of(letter, (1,) * REDUCERS)
        cells.setdefault(place, []).append(letter)
    by_row = largest_load(PUBLISHED[workload]["halving"].start)
    by_column = largest_load(PUBLISHED[workload]["doubling"].start)
    for seed in range(CANDIDATES):
        draw = np.random.default_rng(seed)
        table = _table(_margins(by_row, draw), _margins(by_column, draw), draw)
        if all(place in cells for place in table):
            items = [letter for place, rows in table.items() for letter in _shared(rows, cells[place], draw)]
            yield "".join(draw.permutation(items).tolist())


def _margins(heaviest: int, draw: np.random.Generator) -> list[int]:
    """Items of each reducer: one has the most, the others share the rest and have no more than that."""
    rest = ITEMS - heaviest
    if heaviest * REDUCERS == ITEMS:
        return [heaviest] * REDUCERS
    while True:
        cuts = np.sort(draw.integers(0, rest + 1, REDUCERS - 2))
        others = np.diff(cuts, prepend=0, append=rest)
        if others.max() <= heaviest:
            return draw.permutation([heaviest, *others.tolist()]).tolist()


def _table(rows: list[int], columns: list[int], draw: np.random.Generator) -> dict[tuple[int, int], int]:
    """A table with these margins, by the north-west corner rule; only its cells that are not empty."""
    down, right = draw.permutation(REDUCERS).tolist(), draw.permutation(REDUCERS).tolist()
    rows, columns, table = list(rows), list(columns), {}
    while down and right:
        row, column = down[0], right[0]
        items = min(rows[row], columns[column])
        rows[row] -= items
        columns[column] -= items
        if items:
            table[row, column] = items
        (down if rows[row] == 0 else right).pop(0)
    return table


def _shared(rows: int, letters: list[str], draw: np.random.Generator) -> list[str]:
    """The items of a cell, shared out to some of its letters."""
    few = min(rows, len(letters), int(draw.integers(1, LETTERS_OF_A_CELL + 1)))
    chosen = draw.choice(letters, few, replace=False).tolist()
    cuts = np.sort(draw.choice(np.arange(1, rows), few - 1, replace=False)) if few > 1 else np.array([], dtype=int)
    sizes = np.diff(cuts, prepend=0, append=rows).tolist()
    return [letter for letter, size in zip(chosen, sizes, strict=True) for _ in range(size)]


if __name__ == "__main__":
    for name in PUBLISHED:
        print(f"{name}: {search(name)}")
