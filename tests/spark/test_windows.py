"""Several windows in one result, windows of all parts, late data that is left out, and states without a window."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from skewless.run.directory import RunDirectory
from tests.spark.scenario import as_rows, result_of
from tests.spark.test_window import AGGREGATES, Lake, lake, reduced

__all__ = ["lake"]

#: Native and Python aggregates, of which each has its own way to be merged.
SOME = {name: AGGREGATES[name] for name in ("n", "total", "newest", "listed", "counted")}


def of_window(run: RunDirectory, length: int) -> list[tuple[Any, ...]]:
    """The rows of one window of a result, without its column."""
    result = result_of(run)
    return as_rows(result.filter(pc.equal(result["window"], length)).drop_columns("window"))


def test_each_window_of_several_is_that_of_a_run_over_its_own_days(lake: Lake) -> None:
    expectations = [
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "window", "value_set": [1, 2, 4]}},
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1}},
    ]
    spec = lake.spec(window=None, windows=[1, 2, 4], aggregates=SOME, quality={"expectations": expectations})
    for day in (0, 1, 3):  # there is no day 2
        lake.put(day, "b", rows=100)
    lake.night(1, spec)
    lake.put(0, "a", rows=40)
    run = lake.night(3, spec, publish=True)
    assert reduced(run) == 140
    assert result_of(run).column_names == ["key", "window", *SOME]
    for length in (1, 2, 4):
        assert of_window(run, length) == lake.whole(range(4 - length, 4), SOME)

    window = run.job().window
    assert window is not None
    assert [(one.length, one.first) for one in window.windows] == [(1, 2), (2, 2), (4, 0)]
    assert [(line.name, line.rows, line.of_parts_rows) for line in run.window_lines()] == [
        ("1", 100, 100), ("2", 100, 100), ("4", 340, 340)
    ]  # fmt: skip
    quality = run.quality()
    assert quality is not None
    assert quality.success
    assert quality.keys == result_of(run).num_rows == sum(line.keys for line in run.window_lines())
    assert any(check.column == "key, window" for check in quality.checks)
