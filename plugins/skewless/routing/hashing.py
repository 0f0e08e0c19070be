"""The hashes of keys and rows, in Python; ``skewless_spark.stage.routes`` computes the same ones in Spark SQL.

All hashes are murmur3_x86_32 (Appleby 2014), as in the DPA load balancer, section 4.2. Spark's ``hash`` differs from
it where the length in bytes is not a multiple of four (SPARK-23381), so both sides pad a key with NUL bytes first. A
parity test compares the two, value by value.
"""

import struct
from collections.abc import Sequence

import mmh3
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int64]

#: Seed of the ring's hash: the seed of Spark's ``hash`` function.
KEY_SEED = 42
#: First argument of Spark's ``hash`` for buckets, and so the seed that follows from it.
BUCKET_SALT = 0x5BD1
BUCKET_SEED = mmh3.hash(struct.pack("<i", BUCKET_SALT), KEY_SEED, signed=False)


def decode_columns(text: str) -> list[str | None] | None:
    """The texts of several key columns, each as ``<utf-8 length>:<text>,`` (a netstring), null as ``~,``; None if not.

    >>> decode_columns("1:a,~,3:b,c,")
    ['a', None, 'b,c']
    """
    raw, found = text.encode(errors="surrogatepass"), list[str | None]()
    while raw:
        size, colon, rest = raw.partition(b":")
        if raw.startswith(b"~,"):
            found, raw = [*found, None], raw[2:]
        elif colon and size.isdigit() and rest[int(size) : int(size) + 1] == b",":
            found, raw = [*found, rest[: int(size)].decode(errors="surrogatepass")], rest[int(size) + 1 :]
        else:
            return None
    return found


def _padded(key: str) -> bytes:
    raw = key.encode()
    return raw + b"\0" * (-len(raw) % 4)


def key_hash(key: str) -> int:
    """The place of a key on the ring: an unsigned 32-bit integer."""
    return mmh3.hash(_padded(key), KEY_SEED, signed=False)


def key_slots(keys: Sequence[str], slots: int) -> npt.NDArray[np.int64]:
    """The slot of each key on a ring of so many slots, a power of two."""
    return hashes_of(keys) >> (32 - (slots.bit_length() - 1))


def hashes_of(keys: Sequence[str], seed: int = KEY_SEED) -> npt.NDArray[np.int64]:
    """``key_hash`` of each key, or with the seed ``BUCKET_SEED`` its ``bucket_hash``, shape ``(keys,)``."""
    text = "".join(keys)
    if text.isascii():
        data, lengths = text.encode(), map(len, keys)
    else:
        raw = [key.encode() for key in keys]
        data, lengths = b"".join(raw), map(len, raw)
    ends = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(lengths, dtype=np.int64, count=len(keys)), out=ends[1:])
    return key_hashes(np.frombuffer(data, np.uint8), ends, seed).astype(np.int64)


def bucket_hash(key: str) -> int:
    """The hash that chooses a key's bucket, independent of the ring's; unsigned, so that no bucket is negative."""
    return mmh3.hash(_padded(key), BUCKET_SEED, signed=False)


def origin_hash(origin: int) -> int:
    """The hash of a row's origin (see ``pack_origin``): an unsigned 32-bit integer."""
    return mmh3.hash(struct.pack("<q", origin), KEY_SEED, signed=False)


#: Texts of more bytes are hashed one by one: a step for each of their lengths would be a step for few of them.
_LONG_TEXT_BYTES = 256


def key_hashes(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], seed: int = KEY_SEED) -> Words:
    """``key_hash`` (by another seed, another hash) of many texts at once; unsigned, shape ``(texts,)``.

    ``data`` has the bytes of all texts, one after the other; ``ends`` where each begins, and where the last one ends.
    """
    lengths = np.diff(ends)
    hashes = np.empty(len(lengths), dtype=np.uint32)
    for length in np.flatnonzero(np.bincount(lengths[lengths <= _LONG_TEXT_BYTES])).tolist():
        some = np.flatnonzero(lengths == length)
        texts = np.zeros((len(some), -(-length // 4) * 4), dtype=np.uint8)
        texts[:, :length] = data[ends[some, None] + np.arange(length)]
        state = np.full(len(some), seed, dtype=np.uint32)
        for word in texts.view("<u4").T:
            state = mixed(state, word)
        hashes[some] = finished(state, texts.shape[1])
    for one in np.flatnonzero(lengths > _LONG_TEXT_BYTES).tolist():
        text = data[ends[one] : ends[one + 1]].tobytes()
        hashes[one] = mmh3.hash(text + b"\0" * (-len(text) % 4), seed, signed=False)
    return hashes


#: Bits of an origin that hold the row's offset within its source partition.
OFFSET_BITS = 40


def pack_origin(partition: int, offset: int) -> int:
    """One signed 64-bit integer, ordered like the pair: room for 2**23 source partitions of 2**40 rows each."""
    return (partition << OFFSET_BITS) | offset


def hashed(heads: npt.NDArray[np.uint8], tails: npt.NDArray[np.uint8], of_head: Indices, of_tail: Indices) -> Words:
    """The hashes of many texts, the same as by ``mmh3`` with ``KEY_SEED``; unsigned, shape ``(texts,)``.

    Text n is row ``of_head[n]`` of the heads with row ``of_tail[n]`` of the tails behind it. What a head says alone is
    mixed once for each head.
    """
    before, length = heads.shape[1], heads.shape[1] + tails.shape[1]
    first, last = (np.zeros((len(part), -(-length // 4) * 4), dtype=np.uint8) for part in (heads, tails))
    first[:, :before], last[:, before:length] = heads, tails
    ahead, behind = (part.view("<u4").astype(np.uint32).T.copy() for part in (first, last))
    state = np.full(len(heads), KEY_SEED, dtype=np.uint32)
    for number in range(before // 4):
        state = mixed(state, ahead[number])
    state = state[of_head]
    for number in range(before // 4, length // 4):
        state = mixed(state, ahead[number][of_head] | behind[number][of_tail])
    if length % 4:
        state = state ^ _scrambled(ahead[-1][of_head] | behind[-1][of_tail])
    return finished(state, length)


def mixed(state: Words, word: Words) -> Words:
    """The states after one more word each."""
    return _rotated(state ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _scrambled(word: Words) -> Words:
    return _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def finished(state: Words, length: int) -> Words:
    """The hashes of texts of ``length`` bytes, from the states after their last words."""
    state = state ^ np.uint32(length)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
