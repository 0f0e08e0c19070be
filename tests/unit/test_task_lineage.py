from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import PlanError
from skewless.routing.hashing import bucket_hash, pack_origin
from skewless.routing.lineage import (
    ancestors,
    bucket_of,
    contains,
    descendants,
    merge,
    split,
    start_offsets,
    unread,
)
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import Ring
from skewless.routing.virtual_task import VirtualTask

KEYS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
FACTORS = st.integers(0, 4).map(lambda power: 1 << power)
TASKS = FACTORS.flatmap(lambda factor: st.builds(VirtualTask, st.just(3), st.integers(0, factor - 1), st.just(factor)))
CHECKPOINTS = st.dictionaries(TASKS, st.integers(0, 20), max_size=8)
FINEST = 16


def task(name: str) -> VirtualTask:
    return VirtualTask.parse(name)


def tasks(names: str) -> tuple[VirtualTask, ...]:
    return tuple(task(name) for name in names.split())


def offsets(names: str) -> dict[VirtualTask, int]:
    """``"3-0-2:7 3-1-2:0"``."""
    return {task(pair.partition(":")[0]): int(pair.partition(":")[2]) for pair in names.split()}


def whole(reducer: int, factor: int) -> tuple[VirtualTask, ...]:
    return descendants(VirtualTask(reducer, 0, 1), factor)


def test_the_lineage_of_the_sep_is_known() -> None:
    assert task("0-1-2").children == tasks("0-1-4 0-3-4")
    assert task("0-3-4").parent == task("0-1-2")
    assert task("0-0-1").parent is None
    assert ancestors(task("0-6-8")) == tasks("0-2-4 0-0-2 0-0-1")
    assert ancestors(task("0-0-1")) == ()
    assert descendants(task("0-1-2"), 8) == tasks("0-1-8 0-3-8 0-5-8 0-7-8")
    assert descendants(task("0-1-2"), 2) == tasks("0-1-2")
    assert split(tasks("5-1-2 5-0-2")) == tasks("5-0-4 5-1-4 5-2-4 5-3-4")
    assert merge(tasks("5-1-2 5-0-2")) == tasks("5-0-1")


@given(TASKS, TASKS)
def test_containment_ancestors_and_descendants_say_the_same(one: VirtualTask, other: VirtualTask) -> None:
    assert contains(one, other) == (one in (other, *ancestors(other)))
    assert contains(one, other) == (one.factor <= other.factor and other in descendants(one, other.factor))
    assert all(child.parent == one and child.well_formed for child in one.children)
    assert not contains(one, other._replace(reducer=4))


@given(FACTORS, KEYS, st.integers(0, 1 << 62))
def test_every_row_is_in_exactly_one_task_of_a_factor_and_in_all_its_ancestors(
    factor: int, key: str | None, offset: int
) -> None:
    (owner,) = [one for one in whole(3, factor) if one.bucket == bucket_of(key, offset, factor)]
    for one in ancestors(owner):
        assert one.bucket == bucket_of(key, offset, one.factor)
    assert sum(bucket_of(key, offset, 2 * factor) == child.bucket for child in owner.children) == 1


@given(FACTORS, st.randoms(use_true_random=False))
def test_split_and_merge_are_inverse_in_whatever_order_the_tasks_come(factor: int, shuffler: object) -> None:
    complete = list(whole(3, factor))
    shuffler.shuffle(complete)  # type: ignore[attr-defined]
    assert merge(split(complete)) == whole(3, factor)
    assert split(complete) == whole(3, 2 * factor)
    if factor > 1:
        assert split(merge(complete)) == whole(3, factor)


@given(KEYS.filter(lambda key: key is not None), st.integers(0, 99), FACTORS)
def test_the_bucket_of_a_key_is_that_of_the_routing_plan(key: str, offset: int, factor: int) -> None:
    plan = RoutingPlan(epoch=0, policy="static", waves=(0, 1), ring=Ring.even(1, 1, 4), factors={0: factor})
    assert bucket_of(key, offset, factor) == bucket_hash(key) % factor == plan.tasks[plan.task_of(key, offset)].bucket


def test_a_row_without_key_goes_by_its_offset_in_whichever_source() -> None:
    assert [bucket_of(None, offset, 4) for offset in range(6)] == [0, 1, 2, 3, 0, 1]
    assert bucket_of(None, pack_origin(7, 6), 4) == bucket_of(None, 6, 4) == 2


@pytest.mark.parametrize(
    ("of", "checkpoints", "starts"),
    [
        ("3-1-2", "", "3-1-2:0"),
        ("3-1-2", "3-1-2:7", "3-1-2:7"),
        ("3-1-2", "3-0-1:7", "3-1-2:7"),
        ("3-3-4", "3-0-1:7", "3-3-4:7"),
        ("3-0-1", "3-0-2:7 3-1-2:4", "3-0-2:7 3-1-2:4"),
        ("3-0-1", "3-0-2:7 3-1-2:7", "3-0-1:7"),
        ("3-0-1", "3-0-2:7", "3-0-2:7 3-1-2:0"),
        ("3-0-1", "3-0-4:5 3-1-4:6 3-2-4:5 3-3-4:8", "3-0-2:5 3-1-4:6 3-3-4:8"),
        ("3-0-1", "3-3-4:8", "3-0-2:0 3-1-4:0 3-3-4:8"),
        ("3-0-2", "3-0-1:7 3-0-4:9 3-2-4:3", "3-0-4:9 3-2-4:7"),
        ("3-0-1", "3-0-1:7 3-0-2:9 3-1-2:7", "3-0-2:9 3-1-2:7"),
        ("3-0-1", "3-0-1:9 3-0-2:7 3-1-2:9", "3-0-1:9"),
        ("3-0-1", "3-0-2:9 3-0-4:7 3-2-4:9 3-1-2:9", "3-0-1:9"),
        ("3-0-1", "3-0-2:6 3-0-4:9 3-1-8:9", "3-1-8:9 3-0-4:9 3-2-4:6 3-3-4:0 3-5-8:0"),
        ("3-0-2", "3-1-2:9 4-0-1:9 4-0-2:9", "3-0-2:0"),
    ],
    ids=[
        "nothing read",
        "its own",
        "inherited from the parent",
        "inherited over two levels",
        "merged: each child keeps its own",
        "merged: children that agree",
        "merged: a missing sibling",
        "merged over two levels",
        "merged: all but one missing",
        "split while a grandchild is ahead",
        "merged while a child is ahead",
        "merged and ahead of its children",
        "ahead of one grandchild, level with the other",
        "mixed depths",
        "sibling and other reducers do not matter",
    ],
)
def test_a_task_goes_on_where_its_keys_were_left(of: str, checkpoints: str, starts: str) -> None:
    assert start_offsets(task(of), offsets(checkpoints)) == offsets(starts)


@given(TASKS, CHECKPOINTS)
def test_each_finest_bucket_starts_at_the_highest_offset_of_any_task_that_contains_it(
    of: VirtualTask, checkpoints: dict[VirtualTask, int]
) -> None:
    parts = start_offsets(of, checkpoints)
    assert list(parts) == sorted(parts, key=lambda part: (part.factor, part.bucket))
    for bucket in descendants(of, FINEST):
        (part,) = [one for one in parts if contains(one, bucket)]
        assert parts[part] == max((checkpoints[one] for one in checkpoints if contains(one, bucket)), default=0)
    assert all(contains(of, part) for part in parts)
    for part in parts:  # and no coarser parts would do
        if part != of and part.parent is not None:
            assert len({parts[one] for one in parts if contains(part.parent, one)}) > 1


@given(TASKS, CHECKPOINTS)
def test_the_starts_of_the_whole_reducer_may_take_the_place_of_its_checkpoints(
    of: VirtualTask, checkpoints: dict[VirtualTask, int]
) -> None:
    compact = start_offsets(VirtualTask(3, 0, 1), checkpoints)
    assert start_offsets(of, compact) == start_offsets(of, checkpoints)
    assert start_offsets(of, {one: offset for one, offset in compact.items() if offset}) == start_offsets(of, compact)


def test_a_deep_history_is_not_enumerated() -> None:
    deep = VirtualTask(3, 5, 1 << 40)
    parts = start_offsets(VirtualTask(3, 0, 1), {deep: 9})
    assert parts[deep] == 9
    assert len(parts) == 41


class Row(NamedTuple):
    key: str | None
    offset: int


class Reader:
    """Reads a log of one reducer by virtual tasks that are split, merged and killed at any time.

    What a task reads and its checkpoint become visible together; between two checkpoints all that
    is known of it is lost.
    """

    def __init__(self, log: list[Row]) -> None:
        self.log = log
        self.checkpoints: dict[VirtualTask, int] = {}
        self.seen: Counter[Row] = Counter()
        self.start(1)

    def start(self, factor: int) -> None:
        self.parts = {one: start_offsets(one, self.checkpoints) for one in whole(3, factor)}
        self.at = {one: min(parts.values()) for one, parts in self.parts.items()}

    def advance(self, which: int, rows: int) -> None:
        one = list(self.parts)[which % len(self.parts)]
        until = min(self.at[one] + rows, len(self.log))
        self.seen.update(row for row in self.log[self.at[one] : until] if unread(self.parts[one], *row))
        self.at[one] = self.checkpoints[one] = until

    def forget(self) -> None:
        self.checkpoints = start_offsets(VirtualTask(3, 0, 1), self.checkpoints)


STEPS = st.lists(
    st.tuples(st.just("advance"), st.integers(0, 15), st.integers(0, 12))
    | st.tuples(st.just("start"), FACTORS)
    | st.tuples(st.just("forget")),
    max_size=40,
)


@given(st.lists(KEYS, max_size=40), STEPS)
def test_a_reader_that_is_split_merged_and_restarted_reads_every_row_exactly_once(
    keys: list[str | None], steps: list[tuple[str, int, int] | tuple[str, int] | tuple[str]]
) -> None:
    log = [Row(key, offset) for offset, key in enumerate(keys)]
    reader = Reader(log)
    for name, *arguments in steps:
        getattr(reader, name)(*arguments)
        assert max(reader.seen.values(), default=0) <= 1
    for which in range(len(reader.parts)):
        reader.advance(which, len(log))
    assert reader.seen == Counter(log)


@pytest.mark.parametrize("factor", [1, 4])
def test_the_rows_of_other_tasks_are_not_read(factor: int) -> None:
    log = [Row(f"key-{offset % 7}", offset) for offset in range(50)]
    for row in log:
        takers = [one for one in whole(3, factor) if unread(start_offsets(one, {}), *row)]
        assert [one.bucket for one in takers] == [bucket_of(row.key, row.offset, factor)]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bucket_of("a", -1, 2), "bucket: expected an offset of 0 or more, but got -1."),
        (lambda: bucket_of("a", 0, 3), "bucket: expected a factor that is a power of two, but got 3."),
        (
            lambda: descendants(task("3-0-4"), 2),
            "descendants of 3-0-4: expected a power of two of at least 4, but got 2.",
        ),
        (
            lambda: descendants(task("3-0-4"), 6),
            "descendants of 3-0-4: expected a power of two of at least 4, but got 6.",
        ),
        (
            lambda: ancestors(VirtualTask(3, 4, 4)),
            "virtual task: expected reducer-bucket-factor with bucket < factor = 2**n, but got '3-4-4'.",
        ),
        (lambda: split([]), "virtual tasks: expected all tasks of one reducer, but got none."),
        (lambda: split(tasks("3-0-2")), "virtual tasks: expected all 2 tasks of reducer 3, once each, but got 3-0-2."),
        (
            lambda: merge(tasks("3-0-2 3-0-2")),
            "virtual tasks: expected all 2 tasks of reducer 3, once each, but got 3-0-2, 3-0-2.",
        ),
        (
            lambda: merge(tasks("3-0-2 4-1-2")),
            "virtual tasks: expected all 2 tasks of reducer 3, once each, but got 3-0-2, 4-1-2.",
        ),
        (
            lambda: merge([VirtualTask(3, 0, 1 << 60)]),
            f"virtual tasks: expected all {1 << 60} tasks of reducer 3, once each, but got 3-0-{1 << 60}.",
        ),
        (lambda: merge(tasks("3-0-1")), "merge of reducer 3: expected a factor of 2 or more, but got factor 1."),
        (
            lambda: start_offsets(task("3-0-1"), {task("4-0-1"): -1}),
            "checkpoint of 4-0-1: expected an offset of 0 or more, but got -1.",
        ),
        (
            lambda: start_offsets(task("3-0-1"), {VirtualTask(3, 0, 3): 1}),
            "virtual task: expected reducer-bucket-factor with bucket < factor = 2**n, but got '3-0-3'.",
        ),
        (lambda: unread({task("3-0-1"): 0}, None, -1), "row: expected an offset of 0 or more, but got -1."),
    ],
    ids=[
        "negative offset",
        "factor 3",
        "smaller factor",
        "factor 6",
        "malformed",
        "no tasks",
        "missing sibling",
        "twice",
        "two reducers",
        "a factor too large to list",
        "nothing to merge",
        "negative checkpoint",
        "malformed checkpoint",
        "negative row",
    ],
)
def test_what_is_no_lineage_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(PlanError) as raised:
        call()
    assert str(raised.value) == sentence
