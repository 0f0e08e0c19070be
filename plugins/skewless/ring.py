"""The consistent-hash ring: immutable; a change of tokens is a new ring.

After the DPA load balancer, section 4.2: a reducer owns tokens ``"token-{reducer}-{j}"``;
a key belongs to the first token clockwise of its hash. We look up slots of the hash
space instead of single keys, so that Spark can do the same with one array or one join.
"""

from __future__ import annotations

from functools import cached_property

import mmh3
import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from skewless.document import Frozen, unmet
from skewless.hashing import KEY_SEED, key_hash

#: Numbers of reducers are below this; tokens of all of them together at most so many: a ring is held in memory.
REDUCERS_END = 1 << 20
LARGEST_RING = 1 << 23


class Ring(Frozen):
    """Tokens per reducer on a ring of ``2**ring_bits`` slots.

    Attributes:
        ring_bits: slots are the top ``ring_bits`` bits of a key's hash.
        tokens: for each reducer number, how many tokens it holds (``j`` runs from 0).
    """

    ring_bits: int = Field(default=12, ge=4, le=16)
    tokens: dict[int, int]

    @field_validator("tokens")
    @classmethod
    def _some_tokens(cls, tokens: dict[int, int]) -> dict[int, int]:
        if not tokens or any(count < 1 for count in tokens.values()) or any(r < 0 for r in tokens):
            raise ValueError("should be at least one reducer, numbered from 0, with at least one token each")
        if max(tokens) >= REDUCERS_END or sum(tokens.values()) > LARGEST_RING:
            came = f"{sum(tokens.values()):,} tokens of reducers up to {max(tokens)}"
            raise unmet(f"reducers below {REDUCERS_END:,} with at most {LARGEST_RING:,} tokens together", came[:120])
        return dict(sorted(tokens.items()))

    @classmethod
    def even(cls, reducers: int, tokens_each: int, ring_bits: int = 12) -> Ring:
        """A ring on which every reducer 0..reducers-1 holds the same number of tokens."""
        return cls(ring_bits=ring_bits, tokens=dict.fromkeys(range(reducers), tokens_each))

    @property
    def reducers(self) -> tuple[int, ...]:
        """The reducer numbers, ascending."""
        return tuple(self.tokens)

    @cached_property
    def slot_owners(self) -> npt.NDArray[np.int32]:
        """The reducer of each slot, shape ``(2**ring_bits,)``.

        A slot belongs to the first token at or after the slot's start, walking clockwise and
        wrapping round; tokens of equal hash are ordered by reducer, so that ties are settled.
        """
        total = sum(self.tokens.values())
        names = (b"token-%d-%d" % (reducer, j) for reducer, count in self.tokens.items() for j in range(count))
        hashes = np.fromiter((mmh3.hash(name, KEY_SEED, signed=False) for name in names), np.uint64, count=total)
        owners = np.repeat(np.array(self.reducers, dtype=np.int32), list(self.tokens.values()))
        clockwise = np.argsort(hashes, kind="stable")  # stable: ties stay by reducer
        starts = np.arange(1 << self.ring_bits, dtype=np.uint64) << np.uint64(32 - self.ring_bits)
        first = np.searchsorted(hashes[clockwise], starts, side="left") % total
        found: npt.NDArray[np.int32] = owners[clockwise[first]]
        found.flags.writeable = False
        return found

    def slot_of(self, key: str) -> int:
        """The slot of a key."""
        return key_hash(key) >> (32 - self.ring_bits)

    def owner_of(self, key: str) -> int:
        """The reducer of a key."""
        return int(self.slot_owners[self.slot_of(key)])
