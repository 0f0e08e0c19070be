"""The consistent-hash ring, and the virtual tasks of its reducers. A change of tokens is a new ring.

After the DPA load balancer, section 4.2: a reducer owns tokens ``"token-{reducer}-{j}"``, and a key belongs to the
first token clockwise of its hash. We look up slots of the hash space instead of single keys, so that Spark can do the
same with one array or one join.
"""

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from skewless.document import Frozen, unmet
from skewless.routing.hashing import hashed, key_hash

Ints = npt.NDArray[np.int64]

#: A ring has two to the power of so many slots. A report has two counts for each slot, so a finer one would only
#: weigh more: of a million slots each of 10,000 reducers owns a hundred.
SMALLEST_RING_BITS, LARGEST_RING_BITS = 4, 20
#: Bits of a ring unless many tokens need more: with few reducers, each has some hundred slots.
USUAL_RING_BITS = 12
#: Reducer numbers are below the first of these; the second is the most tokens of a ring, which is held in memory.
REDUCERS_END = 1 << 20
LARGEST_RING = 1 << 23
#: Policies split a reducer into so many key buckets, at most: each is a task, and no key is split by them.
MOST_BUCKETS = 8


class Ring(Frozen):
    """Tokens per reducer on a ring of ``2**ring_bits`` slots."""

    ring_bits: int = Field(default=USUAL_RING_BITS, ge=SMALLEST_RING_BITS, le=LARGEST_RING_BITS)
    """Slots are the top ``ring_bits`` bits of a key's hash."""
    tokens: dict[int, int]
    """For each reducer number, how many tokens it holds (``j`` runs from 0)."""

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
    def even(cls, reducers: int, tokens_each: int, ring_bits: int = USUAL_RING_BITS) -> "Ring":
        """A ring on which every reducer 0..reducers-1 holds the same number of tokens."""
        return cls(ring_bits=ring_bits, tokens=dict.fromkeys(range(reducers), tokens_each))

    @cached_property
    def reducers(self) -> tuple[int, ...]:
        """The reducer numbers, ascending."""
        return tuple(self.tokens)

    @cached_property
    def slot_owners(self) -> npt.NDArray[np.int32]:
        """The reducer of each slot, shape ``(2**ring_bits,)``.

        A slot belongs to the first token at or after the slot's start, walking clockwise and
        wrapping round. Tokens of equal hash are ordered by reducer, which settles ties.
        """
        hashes, owners = self.places
        # Slots from one token to the next, by their starts; those after the last token belong to the first.
        found = np.repeat(owners, np.diff((hashes >> (32 - self.ring_bits)) + 1, prepend=0))
        found = np.concatenate([found, np.full((1 << self.ring_bits) - len(found), owners[0])])
        found.flags.writeable = False
        return found

    @cached_property
    def places(self) -> tuple[Ints, npt.NDArray[np.int32]]:
        """The hashes of all tokens, ascending, and the reducer of each; equal hashes are ordered by reducer."""
        return _parts(np.sort(_tokens_beyond(self.tokens, {})))

    def with_tokens(self, tokens: dict[int, int]) -> "Ring":
        """The ring with other numbers of tokens; only those that come or go are hashed."""
        ring = Ring(ring_bits=self.ring_bits, tokens=tokens)
        places = token_order(*self.places)
        gone = np.sort(_tokens_beyond(self.tokens, tokens))
        # Two tokens of one reducer may have the same hash: as many go as are to go.
        among_equals = np.arange(len(gone)) - np.searchsorted(gone, gone)
        places = np.delete(places, np.searchsorted(places, gone) + among_equals)
        come = np.sort(_tokens_beyond(tokens, self.tokens))
        ring.__dict__["places"] = _parts(np.insert(places, np.searchsorted(places, come), come))
        return ring

    @cached_property
    def empty_reducers(self) -> frozenset[int]:
        """The reducers that own no slot: no key would ever go to them."""
        owned = np.zeros(max(self.tokens) + 1, dtype=bool)
        owned[self.slot_owners] = True
        reducers = np.array(self.reducers)
        return frozenset(reducers[~owned[reducers]].tolist())

    def slot_of(self, key: str) -> int:
        """The slot of a key."""
        return key_hash(key) >> (32 - self.ring_bits)


@lru_cache(maxsize=64)
def ring_bits_for(reducers: int, tokens_each: int) -> int:
    """How many bits a ring needs to have at least as many slots as tokens, and no reducer without a slot.

    ``reducers`` is the most that there may be at once: with fewer, each owns as much or more. It is
    ``LARGEST_RING_BITS`` also where these are not enough for every reducer.
    """
    bits = USUAL_RING_BITS
    while bits < LARGEST_RING_BITS and 1 << bits < reducers * tokens_each:
        bits += 1
    while bits < LARGEST_RING_BITS and Ring.even(reducers, tokens_each, bits).empty_reducers:
        bits += 1
    return bits


#: Bits of a token's place that hold its reducer.
REDUCER_BITS = REDUCERS_END.bit_length() - 1


def token_order(hashes: Ints, reducers: npt.NDArray[np.integer[Any]]) -> Ints:
    """One number for each token, by which they are ordered clockwise: its hash, and below that its reducer."""
    return hashes << REDUCER_BITS | reducers


def _tokens_beyond(many: dict[int, int], few: dict[int, int]) -> Ints:
    """``token_order`` of the tokens that each reducer has in one of two rings and not in the other."""
    some = [(reducer, few.get(reducer, 0), count) for reducer, count in many.items() if count > few.get(reducer, 0)]
    reducers, first, end = np.array(some, dtype=np.int64).reshape(-1, 3).T
    counts = end - first
    numbers = np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)
    owners = np.repeat(reducers, counts)
    return token_order(token_hashes(owners, numbers), owners)


def _parts(places: Ints) -> tuple[Ints, npt.NDArray[np.int32]]:
    return places >> REDUCER_BITS, (places & (REDUCERS_END - 1)).astype(np.int32)


def token_hashes(reducers: Ints, numbers: Ints) -> Ints:
    """The places of tokens on the ring: for each pair the hash of ``"token-{reducer}-{number}"``, shape as given."""
    found = np.empty(len(reducers), dtype=np.int64)
    (who, of_who), (which, of_which) = _distinct(reducers), _distinct(numbers)
    who_digits, which_digits = _digits(who), _digits(which)
    kinds = (who_digits * 10)[of_who] + which_digits[of_which]
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        some, (before, after) = np.flatnonzero(kinds == kind), divmod(kind, 10)
        first, last = (int(np.searchsorted(one, size)) for one, size in ((who_digits, before), (which_digits, after)))
        heads, tails = who[who_digits == before], which[which_digits == after]
        fixed = [np.broadcast_to(np.frombuffer(text, dtype=np.uint8), (len(heads), len(text))) for text in _NAME]
        named = np.concatenate([fixed[0], _texts(heads, before), fixed[1]], axis=1)
        found[some] = hashed(named, _texts(tails, after), of_who[some] - first, of_which[some] - last)
    return found


def _distinct(numbers: Ints) -> tuple[Ints, Ints]:
    least, most = int(numbers.min(initial=REDUCERS_END)), int(numbers.max(initial=0))
    if most - least < len(numbers):
        return np.arange(least, most + 1), numbers - least
    found, places = np.unique(numbers, return_inverse=True)
    return found, places


#: The parts of a token's name before its reducer and before its number.
_NAME = (b"token-", b"-")
_POWERS = 10 ** np.arange(1, 10)


def _digits(numbers: Ints) -> Ints:
    return np.searchsorted(_POWERS, numbers, side="right") + 1


def _texts(numbers: Ints, digits: int) -> npt.NDArray[np.uint8]:
    powers = (10 ** np.arange(digits - 1, -1, -1)).astype(np.uint32)
    return (ord("0") + numbers.astype(np.uint32)[:, None] // powers % np.uint32(10)).astype(np.uint8)


class VirtualTask(NamedTuple):
    """Bucket ``bucket`` of the ``factor`` (a power of two) buckets of a reducer: exactly one Spark partition."""

    reducer: int
    bucket: int
    factor: int

    def __str__(self) -> str:
        return f"{self.reducer}-{self.bucket}-{self.factor}"


def tasks_of(reducer: int, factor: int) -> tuple[VirtualTask, ...]:
    """All tasks of a reducer at one factor, by ascending bucket.

    SEP-32, "Splitting and Merging of v.tasks": at twice the factor f, the keys of bucket b are in buckets b and b + f.
    """
    return tuple(VirtualTask(reducer, bucket, factor) for bucket in range(factor))
