"""The conformance test finds what breaks a law: one deliberately broken aggregate for each."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from skewless.aggregates import Accumulator, GroupsAccumulator, PythonAggregate, RegisteredAggregates
from skewless.errors import AggregateError
from skewless.testing import check_aggregate
from tests.tiers import mostly_long

VALUES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4]


class Totals(GroupsAccumulator):
    """The sum of each key: an honest one, that the broken ones below differ from in one way."""

    of: type = np.int64

    def __init__(self) -> None:
        self.sums: npt.NDArray[Any] = np.zeros(0, self.of)

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.reach(groups_total)
        np.add.at(self.sums, groups, values.fill_null(0).to_numpy(zero_copy_only=False))

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.update(states, groups, groups_total)

    def state(self) -> pa.Array:
        return pa.array(self.sums)

    evaluate = state

    def reach(self, groups_total: int) -> None:
        self.sums = np.append(self.sums, np.zeros(groups_total - len(self.sums), self.of))


TOTAL = PythonAggregate(
    name="total",
    mergeable=True,
    argument_type=pa.int64(),
    state_type=pa.int64(),
    result_type=pa.int64(),
    create=lambda _: Totals(),
)


class OtherType(Totals):
    def evaluate(self) -> pa.Array:
        return super().evaluate().cast(pa.float64())


class GroupsWithRowsOnly(Totals):
    def state(self) -> pa.Array:
        return pa.array(self.sums[self.sums > 0])


class Moody(Totals):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Moody.made += 1
        self.mood = Moody.made

    def state(self) -> pa.Array:
        return pa.array(self.sums + (self.mood % 2))


class Emptied(Totals):
    def evaluate(self) -> pa.Array:
        result = super().evaluate()
        self.sums = np.zeros_like(self.sums)
        return result


class PerBatch(Totals):
    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        super().update(values, groups, groups_total)
        if len(groups):
            self.sums[np.unique(groups)] += 1


class Gossip(Totals):
    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        super().update(values, groups, groups_total)
        np.add.at(self.sums, groups[groups == 2], int(groups_total > 1))


class OneForNothing(Totals):
    def evaluate(self) -> pa.Array:
        return pa.array(np.where((self.sums == 0) & (len(self.sums) > 1), 1, self.sums))


class Forgetful(Totals):
    def state(self) -> pa.Array:
        return pa.array(self.sums // 10)


class NullIsSeven(Totals):
    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        super().merge(states.fill_null(7), groups, groups_total)


class StoredOnly(Totals):
    """A restored state is the result, and rows after it are lost."""

    restored = False

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        super().merge(states, groups, groups_total)
        self.restored = bool(np.any(self.sums))

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        if self.restored:
            values = pa.array(np.zeros(len(values), np.int64))
        Totals.update(self, values, groups, groups_total)


class OnePart(Totals):
    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.reach(groups_total)
        np.maximum.at(self.sums, groups, states.fill_null(0).to_numpy(zero_copy_only=False))


class Later(Totals):
    """What is merged later counts a bit more: right for one state, and wrong for several."""

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.reach(groups_total)
        for state, group in zip(states.to_pylist(), groups.tolist(), strict=True):
            if state:
                self.sums[group] += state + (state * (self.sums[group] > 0)) // 4


class Rounded(Totals):
    """Rounds when it has merged two: the same both ways, but not in any grouping."""

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.reach(groups_total)
        for state, group in zip(states.to_pylist(), groups.tolist(), strict=True):
            if state:
                both = self.sums[group] and state
                self.sums[group] += state
                self.sums[group] = self.sums[group] // 8 * 8 if both else self.sums[group]


class Raising(Totals):
    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        if values.null_count:
            raise ZeroDivisionError("no nulls, please")
        super().update(values, groups, groups_total)


def test_an_aggregate_that_keeps_all_laws_passes() -> None:
    check_aggregate(TOTAL, VALUES)


BROKEN = {
    "type": (OtherType, "one result of the declared type per group: 1 of int64, but 1 of type double"),
    "group count": (GroupsWithRowsOnly, "one state of the declared type per group: 5 of int64, but 3 of type int64"),
    "same batches": (Moody, "the same batches give the same state"),
    "asking": (Emptied, "asking in between changes nothing"),
    "cuts": (PerBatch, r"batches may be cut anywhere \(here into \["),
    "mixed keys": (Gossip, "a key's result is its own, whatever other keys come between"),
    "empty groups": (OneForNothing, "a group that never had a row is empty: 1 in group 1, and not 0"),
    "null states": (NullIsSeven, "a null state merges as nothing"),
    "storage": (Forgetful, "a state that was stored gives the same result"),
    "going on": (StoredOnly, r"rows go on from a restored state \(here of \d+ rows\)"),
    "commuting": (Later, "merging is commutative"),
    "associating": (Rounded, "merging is associative"),
    "spreading": (OnePart, "rows may be spread over accumulators and their states merged"),
}


@pytest.mark.parametrize(("broken", "law"), BROKEN.values(), ids=BROKEN)
def test_a_broken_law_is_named(broken: type[Totals], law: str) -> None:
    with pytest.raises(AssertionError, match=f"^aggregate 'total' breaks the law that .*{law}"):
        check_aggregate(replace(TOTAL, create=lambda _: broken()), VALUES, seeds=range(8))


class Sums(Totals):
    of = np.float64


FLOATS = replace(
    TOTAL, argument_type=pa.float64(), state_type=pa.float64(), result_type=pa.float64(), create=lambda _: Sums()
)


def test_an_algebra_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(AggregateError, match="expected mergeable=False, but got mergeable=True, which says more"):
        replace(TOTAL, concatenable=True)


def test_order_may_matter_only_where_it_is_declared() -> None:
    ordered = replace(concatenable(Text), concatenable=False)
    check_aggregate(ordered, VALUES, seeds=[0])
    with pytest.raises(AssertionError, match="rows may come in any order, as it is not declared ordered"):
        check_aggregate(replace(ordered, ordered=False), VALUES)


class Text(Accumulator):
    """All digits in their order: states of consecutive rows can be concatenated."""

    text = ""

    def update(self, values: pa.Array) -> None:
        self.text += "".join(map(str, values.to_pylist()))

    def merge(self, state: str) -> None:
        self.text += state

    def state(self) -> str | None:
        return self.text

    evaluate = state


class Backwards(Text):
    def merge(self, state: str) -> None:
        self.text = state + self.text


class WithoutSeam(Text):
    """Leaves out digits that repeat the one before, but not where two states meet."""

    def update(self, values: pa.Array) -> None:
        for value in values.to_pylist():
            self.text += "" if self.text.endswith(str(value)) else str(value)


class NullAsNothing(Text):
    """The last digit; its state does not tell a null from no row."""

    last: int | None = None

    def update(self, values: pa.Array) -> None:
        self.last = values.to_pylist()[-1]

    def merge(self, state: str) -> None:
        self.last = int(state)

    def state(self) -> str | None:
        return None if self.last is None else str(self.last)

    evaluate = state


def concatenable(accumulator: type[Accumulator]) -> PythonAggregate:
    kind = {"argument_type": pa.int64(), "state_type": pa.string(), "result_type": pa.string()}
    return PythonAggregate.per_key(
        name="text", mergeable=False, ordered=True, concatenable=True, create=lambda _: accumulator(), **kind
    )


CONCATENATED = "states of consecutive rows may be merged in their order, as it is declared concatenable"


@pytest.mark.parametrize("broken", [Backwards, WithoutSeam, NullAsNothing])
def test_an_aggregate_that_is_wrongly_declared_concatenable_is_found(broken: type[Text]) -> None:
    check_aggregate(concatenable(Text), VALUES, seeds=[0])
    check_aggregate(replace(concatenable(broken), concatenable=False), VALUES, seeds=[0])
    with pytest.raises(AssertionError, match=f"^aggregate 'text' breaks the law that {CONCATENATED}"):
        check_aggregate(concatenable(broken), VALUES)


class FirstOfBatch(Totals):
    """The last value of a key; of several states in one batch it takes the first."""

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.reach(groups_total)
        self.sums[groups] = values.fill_null(1).to_numpy(zero_copy_only=False)

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        self.reach(groups_total)
        there = np.flatnonzero(states.fill_null(0).to_numpy(zero_copy_only=False))
        self.update(states.take(pa.array(there[::-1])), groups[there[::-1]], groups_total)


def test_states_of_a_group_may_come_in_one_batch() -> None:
    last = replace(TOTAL, mergeable=False, ordered=True, concatenable=True, create=lambda _: FirstOfBatch())
    with pytest.raises(AssertionError, match=rf"{CONCATENATED} \(here of \d+ stretches\), several of a group in one"):
        check_aggregate(last, VALUES)


def test_what_an_aggregate_raises_says_what_was_checked() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        check_aggregate(replace(TOTAL, create=lambda _: Raising()), VALUES)
    law = "a state that was stored twice gives the same result"
    assert raised.value.__notes__ == [f"check_aggregate, seed 0: at or after the law that {law}"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [([1, 2, 3], "expected at least 12, but got 3"), ([0] * 20, "values that change the result, but got 0 for all")],
    ids=["too few", "all nothing"],
)
def test_values_that_would_show_nothing_are_refused(values: list[int], sentence: str) -> None:
    with pytest.raises(AggregateError, match=sentence):
        check_aggregate(TOTAL, values)


def test_floating_point_sums_need_a_tolerance() -> None:
    tenths = [math.pi * value for value in VALUES]
    with pytest.raises(AssertionError):
        check_aggregate(FLOATS, tenths)
    check_aggregate(FLOATS, tenths, tolerance=1e-9, seeds=[0])


EVENTS = [1.0, 2.5, 2.0, 9.0, 9.5, 3.0, 3.0, math.nan, 50.0, 51.0, math.inf, math.inf, -math.inf, -0.0, 0.0, 1.0, 4.0]
SHIPPED: dict[str, tuple[Any, dict[str, Any]]] = {
    "exact_median": (EVENTS, {}),
    "mode": (list("abracadabra alakazam"), {}),
    "percentile": (EVENTS, {"percentages": [0.1, 0.5]}),
    "sessions": (EVENTS, {"gap": 1.5}),
    "sessions of whole numbers": (VALUES, {"gap": 2}),
    "sessions of moments": (pa.array(np.cumsum(VALUES) * 700_000, pa.timestamp("us", "UTC")), {"gap": 2}),
    "streaming_histogram": ([float(value) for value in VALUES], {}),
    "value_counts": (list("abracadabra alakazam"), {}),
    "value_counts of numbers": (EVENTS, {}),
}


@pytest.mark.parametrize("case", mostly_long(SHIPPED, *(case for case in SHIPPED if " " not in case)))
def test_every_shipped_aggregate_keeps_all_laws(case: str) -> None:
    values, options = SHIPPED[case]
    check_aggregate(RegisteredAggregates()[case.split(" ", maxsplit=1)[0]], values, options, seeds=[7])


def test_no_shipped_aggregate_is_forgotten() -> None:
    assert {case.split(" ", maxsplit=1)[0] for case in SHIPPED} == set(RegisteredAggregates())
