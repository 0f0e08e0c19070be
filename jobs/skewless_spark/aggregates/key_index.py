"""Keys as numbers, so that states can live in flat arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class KeyIndex:
    """Numbers the keys of a task 0, 1, 2, ... in order of first appearance; null is a key of its own.

    Arrow does the work; no key becomes a Python object. A batch is numbered by one hash table of all keys known so far
    and of its own, so a batch should have about as many rows as there are known keys, or more.

    >>> index = KeyIndex()
    >>> index.number(pa.array(["b", "a", "b"]))
    (array([0, 1, 0]), array([0, 1]))
    >>> index.number(pa.array(["a", None]))
    (array([1, 2]), array([1]))
    """

    def __init__(self) -> None:
        self._known: pa.Array | None = None

    def __len__(self) -> int:
        """Keys seen so far."""
        return 0 if self._known is None else len(self._known)

    @property
    def keys(self) -> pa.Array:
        """The keys seen so far, in the order of their numbers; null before the first batch."""
        return pa.nulls(0) if self._known is None else self._known

    def number(self, keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number a batch.

        Args:
            keys: strings or binaries, or nulls, shape ``(rows,)``; of the same type in each batch.

        Returns:
            The number of each row's key, shape ``(rows,)``, and the rows at which new keys first appear,
            ascending and so in the order of their numbers, shape ``(new keys,)``.
        """
        known = len(self)
        if not len(keys):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        before = keys.slice(0, 0) if self._known is None else self._known
        # Arrow numbers values in order of first appearance, so the known keys keep their numbers.
        both = pa.chunked_array([before, keys]).dictionary_encode(null_encoding="encode")
        encoded = both.chunk(both.num_chunks - 1)
        self._known = encoded.dictionary
        codes = encoded.indices.to_numpy()
        # A new key is a new maximum of the numbers where it first appears.
        highest = np.maximum.accumulate(np.maximum(codes, known - 1))
        return codes.astype(np.int64), np.flatnonzero(np.diff(highest, prepend=known - 1))
