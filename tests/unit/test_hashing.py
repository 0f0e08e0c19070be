"""Known answers, computed once by a plain murmur3_x86_32 that passes the published test vectors."""

from __future__ import annotations

import struct

import mmh3
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skewless.routing.hashing import (
    BUCKET_SALT,
    BUCKET_SEED,
    KEY_SEED,
    bucket_hash,
    encode_columns,
    key_hash,
    key_hashes,
    origin_hash,
    pack_origin,
)

KEYS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("key", "ring", "bucket"),
    [
        ("", 142593372, 1119904853),
        ("a", 2359922212, 2425227952),
        ("ab", 2921487386, 1315614204),
        ("abc", 2672414973, 975525264),
        ("abcd", 3898664396, 932439487),
        ("self", 3781737992, 2424451128),
        ("ä", 478484671, 504382966),
        ("日本", 2281667258, 4218212611),
        ("🙂", 2775960221, 2723110391),
        ("xxxxx", 1185640642, 3631219830),
    ],
)
def test_key_and_bucket_hash_are_known(key: str, ring: int, bucket: int) -> None:
    assert key_hash(key) == ring
    assert bucket_hash(key) == bucket


@pytest.mark.parametrize(
    ("origin", "expected"),
    [(0, 2624043101), (1, 2582647965), (pack_origin(3, 7), 3105661996), (pack_origin(2**23 - 1, 0), 829703387)],
    ids=["first row", "second row", "row 7 of partition 3", "first row of the last partition"],
)
def test_origin_hash_is_known(origin: int, expected: int) -> None:
    assert origin_hash(origin) == expected


def test_the_bucket_seed_is_what_spark_gets_by_hashing_the_salt_first() -> None:
    assert BUCKET_SEED == mmh3.hash(struct.pack("<i", BUCKET_SALT), KEY_SEED, signed=False) == 459418834


@given(KEYS)
def test_hashes_are_those_of_the_zero_padded_utf8(key: str) -> None:
    raw = key.encode()
    padded = raw + bytes(-len(raw) % 4)
    assert key_hash(key) == mmh3.hash(padded, KEY_SEED, signed=False)
    assert bucket_hash(key) == mmh3.hash(padded, BUCKET_SEED, signed=False)


@given(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1))
def test_an_origin_is_a_positive_long_that_tells_partition_and_offset(partition: int, offset: int) -> None:
    origin = pack_origin(partition, offset)
    assert 0 <= origin < 2**63
    assert divmod(origin, 2**40) == (partition, offset)
    assert origin_hash(origin) == mmh3.hash(struct.pack("<q", origin), KEY_SEED, signed=False)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        (["a"], "1:a,"),
        (["a", None, "b,c"], "1:a,~,3:b,c,"),
        (["", None], "0:,~,"),
        (["~"], "1:~,"),
        (["日本"], "6:日本,"),
        (["1:a,", "\0"], "4:1:a,,1:\0,"),
    ],
    ids=["no column", "one", "null and comma", "empty is not null", "tilde is not null", "bytes count", "hostile"],
)
def test_columns_are_encoded_as_netstrings(values: list[str | None], text: str) -> None:
    assert encode_columns(values) == text


ROWS = st.lists(st.none() | st.text(st.sampled_from("~:,01a\0ä"), max_size=4), max_size=4)


@given(ROWS, ROWS)
@example(["a,1:b"], ["a", "b"])
@example([None], ["~"])
@example(["~,"], [None, None])
def test_different_columns_never_encode_alike(left: list[str | None], right: list[str | None]) -> None:
    assert (encode_columns(left) == encode_columns(right)) == (left == right)
    assert encode_columns(left) + encode_columns(right) == encode_columns([*left, *right])


@given(st.lists(KEYS | KEYS.map(lambda text: text * 40)))
def test_many_keys_at_once_have_the_hashes_that_they_have_one_by_one(keys: list[str]) -> None:
    texts = [key.encode() for key in keys]
    ends = np.cumsum([0, *map(len, texts)])
    found = key_hashes(np.frombuffer(b"".join(texts), np.uint8), ends)
    assert found.tolist() == [key_hash(key) for key in keys]
