"""murmur3_x86_32 (Appleby 2014) of many short texts at once: what ``mmh3`` says of them one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]


def hashed(rows: npt.NDArray[np.uint8], seed: int) -> Words:
    """The unsigned hash of each row of bytes, shape ``(rows,)``.

    Args:
        rows: texts of one length, shape ``(rows, bytes)``.
        seed: from 0, below 2**32.
    """
    count, length = rows.shape
    padded = np.zeros((count, -(-length // 4) * 4), dtype=np.uint8)
    padded[:, :length] = rows
    words = padded.view("<u4").astype(np.uint32)
    state = np.full(count, seed, dtype=np.uint32)
    for number in range(length // 4):
        state = mixed(state, words[:, number])
    if length % 4:
        state = state ^ scrambled(words[:, -1])
    return finished(state, length)


def mixed(state: Words, word: Words) -> Words:
    """The states after one more word each."""
    return _rotated(state ^ scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def scrambled(word: Words) -> Words:
    """A word as it is mixed in, whole or what is left of a text after its last whole word."""
    return _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def finished(state: Words, length: int) -> Words:
    """The hashes of texts of so many bytes, all of them mixed in."""
    state = state ^ np.uint32(length)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
