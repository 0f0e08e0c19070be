"""What the shipped Python aggregates say, beside a reference that is one loop over the rows."""

import datetime as dt
import math
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.aggregates import (
    ENTRY_POINT_GROUP,
    Accumulator,
    GroupsAccumulator,
    NoOptions,
    PerKey,
    PythonAggregate,
    RegisteredAggregates,
)
from skewless.aggregates.shipped import value_counts
from skewless.errors import AggregateError

SHIPPED = RegisteredAggregates()
Rows = list[tuple[int, Any]]


def fed(
    name: str, rows: Rows, kind: pa.DataType, spark_type: str, batch_rows: int = 7, **options: Any
) -> GroupsAccumulator:
    aggregate = SHIPPED[name]
    made = aggregate.accumulator(aggregate.options.model_validate(options), [spark_type])
    total = max((group for group, _ in rows), default=0) + 1
    for start in range(0, len(rows), batch_rows):
        groups, values = zip(*rows[start : start + batch_rows], strict=True)
        made.update(pa.array(values, kind, from_pandas=False), np.array(groups, np.int64), total)
    return made


def by_group(rows: Rows) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for group, value in rows:
        groups.setdefault(group, []).append(value)
    return groups


WORDS = st.lists(st.tuples(st.integers(0, 2), st.none() | st.sampled_from("aaaabbbcdefghijklmnop")), max_size=150)


@pytest.fixture(params=[1, 1 << 18], ids=["counted at once", "counted late"])
def pending(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_counts, "PENDING_ROWS", request.param)


@pytest.mark.usefixtures("pending")
def test_value_counts_are_those_of_a_counter() -> None:
    @given(rows=WORDS)
    def check(rows: Rows) -> None:
        results = fed("value_counts", rows, pa.string(), "string").evaluate().to_pylist()
        groups = by_group(rows)
        for group, result in enumerate(results):
            true = Counter(value for value in groups.get(group, []) if value is not None)
            by_count = sorted(true.items(), key=lambda it: (-it[1], it[0]))
            assert [(pair["value"], pair["count"]) for pair in result] == by_count

    check()


def test_value_counts_know_one_zero_and_one_nan() -> None:
    rows = [(0, 0.0), (0, -0.0), (0, math.nan), (0, -math.nan), (0, 1.0)]
    (result,) = fed("value_counts", rows, pa.float64(), "double").evaluate().to_pylist()
    assert [(str(one["value"]), one["count"]) for one in result] == [("0.0", 2), ("nan", 2), ("1.0", 1)]


@pytest.mark.parametrize(
    ("spark_type", "kind", "values"),
    [
        ("boolean", pa.bool_(), [True, False, True]),
        ("date", pa.date32(), [dt.date(2026, 1, 2), dt.date(1969, 1, 1), dt.date(2026, 1, 2)]),
        ("timestamp", pa.timestamp("us", "UTC"), [dt.datetime(1969, 1, 1, tzinfo=dt.UTC)] * 2),
        ("binary", pa.binary(), [b"\0", b"", b"\0"]),
        ("decimal(20,2)", pa.decimal128(20, 2), ["1.25", "1.25", "-3.00"]),
        ("float", pa.float32(), [0.5, -0.0, 0.0]),
    ],
    ids=str,
)
def test_values_of_every_plain_type_are_counted(spark_type: str, kind: pa.DataType, values: Any) -> None:
    column = pa.array(values).cast(kind)
    aggregate = SHIPPED["value_counts"]
    assert not aggregate.accepts(spark_type)
    made = aggregate.accumulator(aggregate.options(), [spark_type])
    made.update(column, np.zeros(len(values), np.int64), 1)
    assert made.state().type == aggregate.types(aggregate.options(), [spark_type]).state
    (result,) = made.evaluate().to_pylist()
    assert {pair["value"]: pair["count"] for pair in result} == Counter(column.to_pylist())


def test_columns_that_are_not_plain_are_refused() -> None:
    required = "a boolean, a number, a text, binary, a date or a timestamp"
    assert SHIPPED["value_counts"].accepts("array<int>") == required


@pytest.mark.parametrize("name", ["value_counts", "mode", "exact_median"])
def test_states_merge_with_the_counts_that_they_hold(name: str) -> None:
    aggregate = SHIPPED[name]
    made = aggregate.accumulator(aggregate.options(), ["double"])
    for part in ([1.0] * 5, [2.0, 3.0], [2.0, 4.0]):
        state = fed(name, [(0, value) for value in part], pa.float64(), "double").state()
        made.merge(state, np.zeros(1, np.int64), 1)
    counts = [{"value": 1.0, "count": 5}, {"value": 2.0, "count": 2}]
    counts += [{"value": 3.0, "count": 1}, {"value": 4.0, "count": 1}]
    assert made.state().to_pylist() == [counts]
    assert made.evaluate().to_pylist() == [counts if name == "value_counts" else 1.0]


PLACES = st.none() | st.integers(-40, 40).map(lambda n: n / 4) | st.sampled_from([math.nan, math.inf, -math.inf])


def plain_sessions(values: list[float | None], gap: float) -> list[tuple[float, float, int]]:
    sessions: list[tuple[float, float, int]] = []
    for value in values:
        if value is None or math.isnan(value):
            continue
        if not sessions or value < sessions[-1][1] or value - sessions[-1][1] > gap:
            sessions.append((value, value, 1))
        else:
            sessions[-1] = (sessions[-1][0], value, sessions[-1][2] + 1)
    return sessions


def test_sessions_of_decimals_and_of_large_numbers_are_exact() -> None:
    """As floats, 0.1 + 0.2 lies beyond a gap of 0.3, and 2**53 + 1 within one of 2**53."""
    kind, wide = pa.decimal128(18, 2), Decimal("1234567890123456.78")
    values = [Decimal("-0.20"), Decimal("0.10"), Decimal("0.41"), wide, wide + Decimal("0.30"), None, -wide]
    state = fed("sessions", [(1, one) for one in values], kind, "decimal(18,2)", gap=0.3).state()
    made = SHIPPED["sessions"].accumulator(SHIPPED["sessions"].options.model_validate({"gap": 0.3}), ["decimal(18,2)"])
    made.merge(state, np.array([0, 1]), 2)
    made.update(pa.array([-wide + Decimal("0.3"), -wide + Decimal("0.61")], kind).slice(0), np.array([1, 1]), 2)
    nothing, result = made.evaluate().to_pylist()
    assert (nothing, [(one["start"], one["end"], one["rows"]) for one in result]) == (
        [],
        [
            (values[0], values[1], 2), (values[2], values[2], 1), (wide, wide + Decimal("0.30"), 2),
            (-wide, -wide + Decimal("0.30"), 2), (-wide + Decimal("0.61"), -wide + Decimal("0.61"), 1),
        ],
    )  # fmt: skip
    # As a float, 0.29 in hundredths is less than 29.
    near = fed("sessions", [(0, Decimal("0.00")), (0, Decimal("0.29"))], kind, "decimal(18,2)", gap=0.29)
    assert [one["rows"] for (one,) in near.evaluate().to_pylist()] == [2]
    far = 2**53
    (result,) = (
        fed("sessions", [(0, 0), (0, far), (0, 2 * far + 1)], pa.int64(), "bigint", gap=far).evaluate().to_pylist()
    )
    assert [one["rows"] for one in result] == [2, 1]
    assert SHIPPED["sessions"].accepts("decimal(18,2)") == ""
    assert SHIPPED["sessions"].accepts("decimal(19,0)").startswith("a number, of at most 18 digits")
    with pytest.raises(ValidationError, match="a double holds"):
        SHIPPED["sessions"].options.model_validate({"gap": far + 1})


@example(parts=[[(0, 1.0), (0, 2.0)], [(0, 3.0), (0, 4.0)], [], [(0, 5.0), (0, 9.0)]], at_once=True)
@given(parts=st.lists(st.lists(st.tuples(st.integers(0, 2), PLACES), max_size=30), max_size=6), at_once=st.booleans())
def test_sessions_of_parts_in_order_are_those_of_all_rows(parts: list[Rows], at_once: bool) -> None:
    rows = [row for part in parts for row in part]
    total = 1 + max((group for group, _ in rows), default=0)
    states = [fed("sessions", [*part, (total - 1, None)], pa.float64(), "double", gap=1.5).state() for part in parts]
    made = SHIPPED["sessions"].accumulator(SHIPPED["sessions"].options.model_validate({"gap": 1.5}), ["double"])
    if at_once and states:
        made.merge(pa.concat_arrays(states), np.tile(np.arange(total), len(states)), total)
    else:
        for state in states:
            made.merge(state, np.arange(total), total)
    groups = by_group(rows)
    for group, result in enumerate(made.evaluate().to_pylist()):
        told = [(one["start"], one["end"], one["rows"]) for one in result]
        assert told == plain_sessions(groups.get(group, []), 1.5)


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.none() | st.floats(allow_nan=False)), max_size=80),
    shares=st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=3),
)
def test_a_quantile_is_at_its_share_of_the_places(rows: Rows, shares: list[float]) -> None:
    several = fed("percentile", rows, pa.float64(), "double", percentages=shares).evaluate().to_pylist()
    single = fed("percentile", rows, pa.float64(), "double", percentage=shares[0]).evaluate().to_pylist()
    medians = fed("exact_median", rows, pa.float64(), "double").evaluate().to_pylist()
    for group, values in by_group(rows).items():
        filled = sorted(value for value in values if value is not None)
        if not filled:
            assert (several[group], single[group], medians[group]) == (None, None, None)
            continue
        for share, result in [
            *zip(shares, several[group], strict=True),
            (shares[0], single[group]),
            (0.5, medians[group]),
        ]:
            place = (len(filled) - 1) * share
            low, high = filled[math.floor(place)], filled[math.ceil(place)]
            expected = low if low == high else low + (high - low) * (place % 1)  # as Spark has it
            assert result == expected or (math.isnan(result) and math.isnan(expected))


@given(rows=WORDS)
def test_the_mode_is_the_least_of_the_most_frequent(rows: Rows) -> None:
    results = fed("mode", rows, pa.string(), "string").evaluate().to_pylist()
    for group, values in by_group(rows).items():
        true = Counter(value for value in values if value is not None)
        assert results[group] == min(true, key=lambda value: (-true[value], value), default=None)


# Aggregates are found by entry points, late, and each fault is one sentence.

HISTOGRAM = "skewless.aggregates.shipped.streaming_histogram:STREAMING_HISTOGRAM"


def registered(**points: str) -> RegisteredAggregates:
    return RegisteredAggregates([EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in points.items()])


def test_an_aggregate_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from skewless.aggregates import RegisteredAggregates\n"
        "found = RegisteredAggregates()\n"
        "assert 'sessions' in found and len(found) >= 4\n"
        "assert 'skewless.aggregates.shipped.sessions' not in sys.modules\n"
        "found['sessions']\n"
        "assert 'skewless.aggregates.shipped.sessions' in sys.modules\n"
        "assert 'skewless.aggregates.shipped.value_counts' not in sys.modules\n"
        "assert not {'pyspark', 'airflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_packages_with_one_name_are_refused_in_one_sentence() -> None:
    points = [EntryPoint("twice", value, ENTRY_POINT_GROUP) for value in ("one:A", "other:B", "one:A")]
    with pytest.raises(AggregateError) as raised:
        RegisteredAggregates(points)["twice"]
    assert str(raised.value) == (
        "aggregate 'twice': expected one package that registers it, but got one:A and other:B; "
        "uninstall one, or rename its entry point."
    )


def test_an_object_of_another_type_is_refused_in_one_sentence() -> None:
    value = HISTOGRAM.replace("STREAMING_HISTOGRAM", "StreamingHistograms")
    with pytest.raises(AggregateError) as raised:
        registered(streaming_histogram=value)["streaming_histogram"]
    assert str(raised.value) == (
        f"aggregate 'streaming_histogram', registered as {value}: expected a skewless.aggregates.PythonAggregate, "
        "but got a StreamingHistograms; register an instance, MODULE:OBJECT."
    )


def test_what_cannot_be_imported_is_told() -> None:
    with pytest.raises(AggregateError, match=r"it cannot be imported \(ModuleNotFoundError"):
        registered(gone="nowhere_at_all:IT")["gone"]


class Diary(Accumulator):
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def open_key(self, key: str | None) -> None:
        self.notes.append(f"open {key}")

    def update(self, values: pa.Array) -> None:
        self.notes.append(f"rows {values.to_pylist()}")

    def merge(self, state: list[str]) -> None:
        self.notes += [f"merged {note}" for note in state]

    def state(self) -> list[str] | None:
        return self.notes or None

    def evaluate(self) -> list[str]:
        return self.notes

    def close_key(self) -> None:
        self.notes.append("close")


DIARY = PythonAggregate.per_key(
    name="diary",
    mergeable=False,
    ordered=True,
    argument_type=pa.int64(),
    state_type=pa.list_(pa.string()),
    result_type=pa.list_(pa.string()),
    create=lambda _: Diary(),
)


def test_one_key_s_accumulator_gets_its_rows_in_order_and_is_opened_and_closed_once() -> None:
    import numpy as np

    diaries = DIARY.accumulator(NoOptions())
    diaries.open_keys(pa.array(["a", None]), 0)
    diaries.update(pa.array([1, 2, 3, 4]), np.array([1, 0, 1, 0]), 2)
    diaries.open_keys(pa.array(["c"]), 2)
    diaries.merge(pa.array([["x"], None], pa.list_(pa.string())), np.array([2, 0]), 3)
    assert diaries.state().to_pylist() == [
        ["open a", "rows [2, 4]"], ["open None", "rows [1, 3]"], ["open c", "merged x"],
    ]  # fmt: skip
    diaries.close_keys()
    assert [notes[-1] for notes in diaries.evaluate().to_pylist()] == ["close"] * 3


def test_the_group_that_raises_is_known() -> None:
    import numpy as np

    class Fussy(Diary):
        def update(self, values: pa.Array) -> None:
            if 13 in values.to_pylist():
                raise ValueError("not this one")

    fussy = PerKey(Fussy)
    with pytest.raises(ValueError, match="not this one"):
        fussy.update(pa.array([1, 13, 3]), np.array([0, 4, 2]), 5)
    assert fussy.current_group == 4
