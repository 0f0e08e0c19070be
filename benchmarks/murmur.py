"""murmur3_x86_32 (Appleby 2014) of whole words, for arrays: what ``skewless.hashing`` says row by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skewless.hashing import KEY_SEED

Words = npt.NDArray[np.uint32]


def draws(origins: npt.NDArray[np.int64], salt: int) -> npt.NDArray[np.int64]:
    """``RoutingPlan.draw`` of many origins, shape as given."""
    blocks = origins >> 2
    low = (blocks & 0xFFFFFFFF).astype(np.uint32)
    high = (blocks >> 32).astype(np.uint32)
    state = np.full(len(origins), KEY_SEED, dtype=np.uint32)
    hashed = _finished(_mixed(_mixed(state, low), high), 8)
    salted = _mixed(hashed, np.full(len(origins), salt, dtype=np.uint32))
    block = _finished(salted, 4).astype(np.int64)
    return (block + ((origins & 3) << 30)) & 0xFFFFFFFF


def _mixed(state: Words, word: Words) -> Words:
    word = word * np.uint32(0xCC9E2D51)
    word = _rotated(word, 15) * np.uint32(0x1B873593)
    return _rotated(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


def _finished(state: Words, length: int) -> Words:
    state = state ^ np.uint32(length)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))
