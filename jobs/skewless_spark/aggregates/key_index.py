"""Keys as numbers, so that states can live in flat arrays."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class KeyIndex:
    """Numbers the keys of a task 0, 1, 2, ... in order of first appearance; null is a key of its own.

    A batch costs one Python dictionary look-up per distinct key in it, not per row.

    >>> index = KeyIndex()
    >>> index.number(pa.array(["b", "a", "b"]))
    (array([0, 1, 0]), array([0, 1]))
    >>> index.number(pa.array(["a", None]))
    (array([1, 2]), array([1]))
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[str | None, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__  # an unknown key gets the next number

    def __len__(self) -> int:
        """Keys seen so far."""
        return len(self._numbers)

    def number(self, keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number a batch.

        Args:
            keys: strings or nulls, shape ``(rows,)``.

        Returns:
            The number of each row's key, shape ``(rows,)``, and the rows at which new keys first appear,
            ascending and so in the order of their numbers, shape ``(new keys,)``.
        """
        known = len(self._numbers)
        encoded = keys.dictionary_encode(null_encoding="encode")
        distinct = encoded.dictionary.to_numpy(zero_copy_only=False).tolist()
        numbers = np.fromiter(map(self._numbers.__getitem__, distinct), np.int64, count=len(distinct))
        codes = encoded.indices.to_numpy()
        return numbers[codes], _first_rows(codes)[numbers >= known]


def _first_rows(codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The row at which each code first appears. Arrow numbers codes in that order, so there it is a new maximum."""
    highest = np.maximum.accumulate(codes)
    return np.flatnonzero(np.diff(highest, prepend=-1))
