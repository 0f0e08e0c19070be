from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.routing.hashing import (
    BUCKET_SEED,
    bucket_hash,
    decode_columns,
    hashes_of,
    key_hash,
    origin_hash,
    pack_origin,
)
from skewless.routing.plan import LARGEST_PLAN, WHOLE_WEIGHT, RoutingPlan, Weights, earlier_tasks
from skewless.routing.ring import Ring
from skewless_spark.aggregates.keys import arrow_key_text


def plan_of(
    head: dict[str, Weights] | None = None, factors: dict[int, int] | None = None, salt: int = 0
) -> RoutingPlan:
    return RoutingPlan(
        epoch=1,
        policy="adaptive",
        waves=(1, 2),
        ring=Ring.even(4, 16),
        head=head or {},
        factors=factors or {},
        share_salt=salt,
    )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_tail_key_goes_to_its_bucket_of_its_reducer_wherever_its_row_is(key: str) -> None:
    plan = plan_of(factors={0: 4, 2: 2})
    task = plan.tasks[plan.task_of(key, 0)]
    assert task.reducer == plan.ring.slot_owners[plan.ring.slot_of(key)]
    assert task.bucket == bucket_hash(key) % task.factor
    assert plan.task_of(key, 12345) == plan.task_of(key, 0)


@pytest.mark.parametrize(
    "shares",
    [((2, WHOLE_WEIGHT),), ((0, WHOLE_WEIGHT // 4), (3, WHOLE_WEIGHT * 3 // 4)), ((0, 256), (1, 32768), (2, 32512))],
    ids=["pinned", "split in two", "split in three"],
)
def test_rows_of_a_head_key_are_drawn_by_its_shares(shares: Weights) -> None:
    plan = plan_of({"hot": shares}, salt=7)
    drawn = Counter(plan.task_of("hot", pack_origin(row % 5, row)) for row in range(20_000))
    assert set(drawn) == {task for task, _ in shares}
    for task, weight in shares:
        assert drawn[task] / 20_000 == pytest.approx(weight / WHOLE_WEIGHT, abs=0.015)


def test_a_plan_of_more_tasks_than_memory_holds_is_refused() -> None:
    assert len(plan_of(factors={0: 1024}).tasks) == 1027
    with pytest.raises(ValidationError, match=f"at most {LARGEST_PLAN:,} tasks"):
        plan_of(factors={0: LARGEST_PLAN})


def test_rows_without_a_key_spread_over_all_tasks() -> None:
    drawn = Counter(plan_of(factors={1: 2}).task_of(None, row) for row in range(4_000))
    assert sorted(drawn) == [0, 1, 2, 3, 4]
    assert max(drawn.values()) < 1.2 * min(drawn.values())


@pytest.mark.parametrize(
    "shares",
    [
        (), ((0, WHOLE_WEIGHT - 1),), ((0, WHOLE_WEIGHT), (1, 0)), ((0, 2 * WHOLE_WEIGHT), (1, -WHOLE_WEIGHT)),
        ((4, WHOLE_WEIGHT),), ((-1, WHOLE_WEIGHT),),
    ],
    ids=["none", "too little", "nothing", "negative", "unknown task", "task below 0"],
)  # fmt: skip
def test_odd_shares_are_refused_by_the_key_s_name(shares: Weights) -> None:
    with pytest.raises(ValidationError, match="positive weights of the 4 tasks that add up to 65536"):
        plan_of({"hot": shares})


@given(
    bits=st.tuples(st.integers(7, 9), st.integers(7, 9)),
    tokens=st.tuples(st.integers(1, 16), st.integers(1, 16)),
    factors=st.tuples(st.sampled_from([{}, {1: 2}, {1: 4, 3: 2}]), st.sampled_from([{}, {1: 2}, {0: 2}])),
    pinned=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_a_key_comes_from_one_of_the_earlier_tasks_of_its_task(
    bits: tuple[int, int],
    tokens: tuple[int, int],
    factors: tuple[dict[int, int], dict[int, int]],
    pinned: tuple[int, int],
) -> None:
    before, plan = (
        RoutingPlan(
            epoch=1, policy="adaptive", waves=(1, 2), ring=Ring.even(4, tokens[at], ring_bits=bits[at]),
            factors=factors[at], head={f"key-{at}": ((pinned[at], WHOLE_WEIGHT),)},
        )
        for at in (0, 1)
    )  # fmt: skip
    found = earlier_tasks(before, plan)
    for key in (f"key-{number}" for number in range(300)):
        assert before.task_of(key, 0) in found[plan.task_of(key, 0)]


# Known answers of hashes, computed once by a plain murmur3_x86_32 that passes the published test vectors.


@pytest.mark.parametrize(
    ("key", "ring", "bucket"),
    [
        ("", 142593372, 1119904853), ("a", 2359922212, 2425227952), ("ab", 2921487386, 1315614204),
        ("abc", 2672414973, 975525264), ("abcd", 3898664396, 932439487), ("self", 3781737992, 2424451128),
        ("ä", 478484671, 504382966), ("日本", 2281667258, 4218212611), ("🙂", 2775960221, 2723110391),
        ("xxxxx", 1185640642, 3631219830),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize("letters", ["ab", "aä"])
def test_many_keys_of_every_length_have_the_hashes_of_each(letters: str) -> None:
    keys = [letters[number % 2] * number for number in (*range(20), *range(124, 132), *range(250, 262))]
    assert hashes_of(keys).tolist() == [key_hash(key) for key in keys]
    assert hashes_of(keys, BUCKET_SEED).tolist() == [bucket_hash(key) for key in keys]


@given(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1))
def test_an_origin_is_a_positive_long_that_tells_partition_and_offset(partition: int, offset: int) -> None:
    origin = pack_origin(partition, offset)
    assert 0 <= origin < 2**63
    assert divmod(origin, 2**40) == (partition, offset)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""), (["a"], "1:a,"), (["a", None, "b,c"], "1:a,~,3:b,c,"), (["", None], "0:,~,"), (["~"], "1:~,"),
        (["日本"], "6:日本,"), (["1:a,", "\0"], "4:1:a,,1:\0,"),
    ],
    ids=["no column", "one", "null and comma", "empty is not null", "tilde is not null", "bytes count", "hostile"],
)  # fmt: skip
def test_columns_are_encoded_as_netstrings(values: list[str | None], text: str) -> None:
    assert decode_columns(text) == values


@given(st.lists(st.none() | st.text(st.sampled_from("~:,01a\0ä"), max_size=4), min_size=2, max_size=4))
def test_columns_are_read_of_their_text(values: list[str | None]) -> None:
    (text,) = arrow_key_text([pa.array([value], pa.string()) for value in values], ["string"] * len(values)).to_pylist()
    assert decode_columns(text.decode()) == values
