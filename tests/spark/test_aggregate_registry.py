"""Native aggregates and registered ones under one roof."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest

from skewless.aggregates import ENTRY_POINT_GROUP, PythonAggregate, RegisteredAggregates
from skewless.spec.reading import parse_spec
from skewless_spark.aggregates import REGISTRY, AggregateRegistry, NativeAggregate
from skewless_spark.aggregates.binding import check_types
from skewless_spark.aggregates.native import NATIVE_AGGREGATES

LATEST = "skewless.aggregates.shipped.latest:LATEST"


def test_native_and_registered_aggregates_are_found_by_name() -> None:
    assert isinstance(REGISTRY["count"], NativeAggregate)
    assert isinstance(REGISTRY["streaming_histogram"], PythonAggregate)
    assert {one.name for one in NATIVE_AGGREGATES} < set(REGISTRY)
    assert len(list(REGISTRY)) == len(REGISTRY)


def test_a_native_name_wins_and_who_registered_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = AggregateRegistry(
        NATIVE_AGGREGATES, RegisteredAggregates([EntryPoint("sum", LATEST, ENTRY_POINT_GROUP)])
    )
    with caplog.at_level(logging.WARNING):
        assert all(isinstance(registry["sum"], NativeAggregate) for _ in range(3))
    (record,) = caplog.records
    assert record.getMessage() == (
        "aggregate 'sum': expected a name that no native aggregate has, but got "
        "skewless.aggregates.shipped.latest:LATEST; the native one is used: rename the entry point."
    )


def spec(call: str) -> str:
    return f"{{name: a, input: {{path: x}}, key: k, aggregates: {{one: {call}}}, output: {{path: y}}}}"


def test_what_the_planner_may_do_is_what_the_aggregate_declares() -> None:
    calls = {
        "sessions": "{function: sessions, column: at, gap: 30}",
        "value_counts": "{function: value_counts, column: at}",
        "exact_median": "{function: exact_median, column: at}",
    }
    algebra = {
        name: check_types(parse_spec(spec(call)), {"k": "string", "at": "double"}, "input")["one"]
        for name, call in calls.items()
    }
    assert {name: (one.mergeable, one.ordered) for name, one in algebra.items()} == {
        "sessions": (False, True), "value_counts": (True, False), "exact_median": (False, False),
    }  # fmt: skip
