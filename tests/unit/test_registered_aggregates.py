"""Aggregates are found by entry points, late, and each fault is one sentence."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pyarrow as pa
import pytest

from skewless.aggregates import ENTRY_POINT_GROUP, Accumulator, NoOptions, PerKey, PythonAggregate, RegisteredAggregates
from skewless.errors import AggregateError

HISTOGRAM = "skewless.aggregates.shipped.streaming_histogram:STREAMING_HISTOGRAM"


def registered(**points: str) -> RegisteredAggregates:
    return RegisteredAggregates([EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in points.items()])


def test_an_aggregate_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from skewless.aggregates import RegisteredAggregates\n"
        "found = RegisteredAggregates()\n"
        "assert 'latest' in found and len(found) >= 6\n"
        "assert 'skewless.aggregates.shipped.latest' not in sys.modules\n"
        "found['latest']\n"
        "assert 'skewless.aggregates.shipped.latest' in sys.modules\n"
        "assert 'skewless.aggregates.shipped.sessions' not in sys.modules\n"
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


def test_another_name_than_its_own_is_refused() -> None:
    with pytest.raises(AggregateError, match="expected an aggregate of the name 'sketch', but got 'streaming_hist"):
        registered(sketch=HISTOGRAM)["sketch"]


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
