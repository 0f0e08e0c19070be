"""Where a key hashes to, in Python; ``skewless_spark.stage.routing`` says the same in Spark SQL.

All hashes are murmur3_x86_32 (Appleby 2014), as in the DPA load balancer, section 4.2.
Spark's ``hash`` differs from it when the byte length is no multiple of four
(SPARK-23381), so both sides pad a key with NUL bytes first. A parity test holds the two
to each other, value by value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import mmh3

#: Seed of the ring's hash: the seed of Spark's ``hash`` function.
KEY_SEED = 42
#: First argument of Spark's ``hash`` for buckets, and so the seed that follows from it.
BUCKET_SALT = 0x5BD1
BUCKET_SEED = mmh3.hash(struct.pack("<i", BUCKET_SALT), KEY_SEED, signed=False)


def encode_columns(values: Sequence[str | None]) -> str:
    """Encode the texts of several key columns as one text, unambiguously.

    Each column becomes ``<utf-8 length>:<text>,`` (a netstring), a null becomes ``~,``.
    No two different sequences give the same text, since the length says where each ends.

    >>> encode_columns(["a", None, "b,c"])
    '1:a,~,3:b,c,'
    """
    parts = ["~," if value is None else f"{len(value.encode())}:{value}," for value in values]
    return "".join(parts)


def _padded(key: str) -> bytes:
    raw = key.encode()
    return raw + b"\0" * (-len(raw) % 4)


def key_hash(key: str) -> int:
    """The ring position of a key: an unsigned 32-bit integer."""
    return mmh3.hash(_padded(key), KEY_SEED, signed=False)


def bucket_hash(key: str) -> int:
    """The key-bucket hash, independent of the ring's; unsigned, so a bucket is never negative."""
    return mmh3.hash(_padded(key), BUCKET_SEED, signed=False)


def origin_hash(origin: int) -> int:
    """The hash of a row's origin (see ``pack_origin``): an unsigned 32-bit integer."""
    return mmh3.hash(struct.pack("<q", origin), KEY_SEED, signed=False)


#: Bits of an origin that hold the row's offset within its source partition.
OFFSET_BITS = 40


def pack_origin(partition: int, offset: int) -> int:
    """One signed 64-bit integer from (source partition, offset), ordered like the pair.

    Room for 2**23 source partitions of 2**40 rows each.
    """
    return (partition << OFFSET_BITS) | offset
