"""Aggregates that see their rows in order, over a window: sessions over midnight equal one thread's over all rows."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.spark.scenario import result_of, spec_of

FIRST = dt.date(2026, 11, 16)
DAY_SECONDS = 24 * 60 * 60
GAP = 1800
ORDERED: dict[str, Any] = {
    "n": "count",
    "visits": {"function": "sessions", "column": "at", "gap": float(GAP)},
    "words": {"function": "value_counts", "column": "word"},
}


#: Waves in which parts end anywhere, and a budget: the state of a key in a part goes from stage to stage.
ROUTING = {"policy": "adaptive", "reducers": 3, "stage_overhead": 0, "budget": 1.0, "waves": [1, 1]}


class Days:
    """Days of events, and runs over windows of them that share their states."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._runs = spark, folder, 0
        self._rows: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def put(self, day: int, name: str, rows: int) -> None:
        """Write a file of events from midnight to midnight; the clock of some is wrong."""
        drawn = np.random.default_rng([day, *name.encode()])
        keys = [None if one == 7 else f"key{one}" for one in np.minimum(drawn.zipf(1.3, rows), 25)]
        moments = np.sort(drawn.integers(0, DAY_SECONDS, rows)) - np.where(drawn.random(rows) < 0.01, 9_999, 0)
        moments[[0, -1]] = [60, DAY_SECONDS - 60]
        keys[0] = keys[-1] = "key1"  # is awake at midnight
        word = pa.array([f"w{one}" for one in drawn.integers(0, 5, rows)], mask=drawn.random(rows) < 0.4)
        at = pa.array((day * DAY_SECONDS + moments) * 1_000_000, pa.timestamp("us", "UTC"))
        table = pa.table({"key": keys, "at": at, "word": word})
        path = self._folder / "lake" / f"date={FIRST + dt.timedelta(days=day)}" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=100)
        self._rows[day, name] = table.to_pylist()

    def night(self, day: int, window: int) -> tuple[list[dict[str, Any]], RunDirectory]:
        self._runs += 1
        run = RunDirectory(str(self._folder / "runs" / str(self._runs)))
        output = {"path": str(self._folder / "published"), "files": 2}
        path = self._folder / "lake" / "date={date}"
        spec = spec_of(path, "key", ORDERED, window={"length": window, "keep": 7}, routing=ROUTING, output=output)
        prepare(run, spec, FIRST + dt.timedelta(days=day), str(self._folder))
        run_stages(self._spark, run)
        merge_states(self._spark, run)
        return result_of(run).to_pylist(), run

    def of_one_thread(self, days: Iterable[int]) -> dict[str | None, dict[str, Any]]:
        """What one thread says that reads all files of some days in their order, each from first row to last."""
        seen: dict[str | None, dict[str, Any]] = {}
        for day, name in sorted(self._rows):
            for row in self._rows[day, name] if day in days else []:
                one = seen.setdefault(row["key"], {"n": 0, "visits": [], "words": {}})
                one["n"] += 1
                if row["word"] is not None:
                    one["words"][row["word"]] = one["words"].get(row["word"], 0) + 1
                last = one["visits"][-1] if one["visits"] else None
                if last and last["end"] <= row["at"] <= last["end"] + dt.timedelta(seconds=GAP):
                    last["end"], last["rows"] = row["at"], last["rows"] + 1
                else:
                    one["visits"].append({"start": row["at"], "end": row["at"], "rows": 1})
        return seen


def rows_read(run: RunDirectory) -> int:
    return sum(report.processed_rows for report in run.reports())


def require_one_thread_s(result: list[dict[str, Any]], expected: dict[str | None, dict[str, Any]]) -> None:
    for row in result:
        row["words"] = {one["value"]: one["count"] for one in row["words"]}
    assert {row.pop("key"): row for row in result} == expected


@pytest.mark.long
def test_sessions_over_five_midnights_with_a_late_file_are_those_of_one_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    days = Days(spark, tmp_path)
    for day in range(4):
        days.put(day, "b", 400)
        days.put(day, "c", 300)
    result, run = days.night(3, window=6)
    require_one_thread_s(result, days.of_one_thread(range(4)))
    assert sum(report.found_states or 0 for report in run.reports()) > 0  # a stage goes on with a key in a part

    for day in (4, 5):
        days.put(day, "b", 500)
    days.put(1, "a", 90)  # late, and before the files that are known
    result, run = days.night(5, window=3)
    require_one_thread_s(result, days.of_one_thread(range(3, 6)))
    assert rows_read(run) == 1000

    result, run = days.night(5, window=6)
    over_midnight = [visit for row in result for visit in row["visits"] if visit["start"].date() < visit["end"].date()]
    assert len({visit["start"].date() for visit in over_midnight}) == 5
    require_one_thread_s(result, days.of_one_thread(range(6)))
    assert rows_read(run) == 400 + 300 + 90
    (changed,) = [part for part in run.job().window.parts if part.changed]  # type: ignore[union-attr]
    assert changed.reasons[0].endswith("a.parquet was added, and rows must be seen in order")
