"""Nights that build on nights: the result of a window equals a run over all of its rows, whatever was reused."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless_spark.entries.pipeline import run_pipeline, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.spark.scenario import Quiet, as_rows, result_of, spec_of
from tests.tiers import mostly_long

DAY = dt.date(2026, 11, 20)
AGGREGATES: dict[str, Any] = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "mean": {"function": "avg", "column": "value"},
    "least": {"function": "min", "column": "value"},
    "newest": {"function": "max_by", "column": "word", "by": "value"},
    "earliest": {"function": "first", "column": "word"},
    "latest_word": {"function": "last", "column": "word"},
    "words": {"function": "count_distinct", "column": "word"},
    "some": {"function": "approx_count_distinct", "column": "value"},
    "listed": {"function": "collect_list", "column": "value"},
    "counted": {"function": "value_counts", "column": "word"},
}


class Lake:
    """Days of small files, and runs over them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self._seed, self._runs = spark, folder, 0, 0

    def put(self, day: int, name: str, rows: int = 300) -> None:
        """Write a file of a day, or write it anew."""
        self._seed += 1
        drawn = np.random.default_rng(self._seed)
        keys = [None if one == 7 else f"key{one}" for one in np.minimum(drawn.zipf(1.4, rows), 40)]
        table = pa.table(
            {
                "key": keys,
                "value": drawn.integers(0, 1000, rows),
                "word": [f"w{one}" for one in drawn.integers(0, 9, rows)],
            }
        )
        path = self.path(day, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)

    def path(self, day: int, name: str) -> Path:
        """Where a file of a day is."""
        return self.folder / "lake" / f"date={DAY + dt.timedelta(days=day)}" / f"{name}.parquet"

    def spec(self, **fields: Any) -> JobSpec:
        """The job over a window of three days."""
        given = {"window": 3, "engine": "auto", "routing": {"reducers": 3, "waves": [1, 3]}, **fields}
        aggregates = given.pop("aggregates", AGGREGATES)
        return spec_of(self.folder / "lake" / "date={date}", "key", aggregates, **given)

    def night(self, day: int, spec: JobSpec | None = None, *, publish: bool = False) -> RunDirectory:
        """Run the job of a day to its merged result, or to its publication."""
        run = self._new(spec or self.spec(), day)
        if publish:
            run_pipeline(self.spark, run, Quiet())
        else:
            run_stages(self.spark, run, Quiet())
            merge_states(self.spark, run)
        return run

    def _new(self, spec: JobSpec, day: int) -> RunDirectory:
        self._runs += 1
        run = RunDirectory(str(self.folder / "runs" / f"{self._runs:03d}"))
        prepare(run, spec, DAY + dt.timedelta(days=day), str(self.folder))
        return run

    def whole(self, days: range, aggregates: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The result of a run without a window over some days."""
        folder = self.folder / f"whole{self._runs}"
        for day in days:
            source = self.path(day, "x").parent
            if source.exists():
                shutil.copytree(source, folder / "in" / source.name)
        spec = spec_of(folder / "in", "key", aggregates or AGGREGATES, engine="combine")
        run = self._new(spec, days[-1])
        run_stages(self.spark, run, Quiet())
        merge_states(self.spark, run)
        return as_rows(result_of(run))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def reduced(run: RunDirectory) -> int:
    """Rows that a run has read."""
    return sum(report.processed_rows for report in run.reports())


@pytest.mark.parametrize("engine", mostly_long(["combine", "bypass", "staged"], "staged"))
def test_nights_give_what_one_run_over_the_window_gives(lake: Lake, engine: str) -> None:
    spec = lake.spec(engine=engine)
    for day in range(3):
        lake.put(day, "b")
    first = lake.night(2, spec)
    assert as_rows(result_of(first)) == lake.whole(range(3))
    assert reduced(first) == 900

    lake.put(3, "b")  # a new day, and a late file that comes before one that is known
    lake.put(1, "a", rows=50)
    second = lake.night(3, spec)
    assert as_rows(result_of(second)) == lake.whole(range(1, 4))
    assert reduced(second) == 350
    window = second.job().window
    assert window is not None
    assert window.counts() == {"reused": 2, "added": 2, "replaced": 0, "removed": 0}
    assert window.unchanged_rows == 600

    lake.put(2, "b", rows=200)  # rewritten
    lake.path(1, "b").unlink()
    third = lake.night(3, spec, publish=True)
    assert as_rows(result_of(third)) == lake.whole(range(1, 4))
    assert reduced(third) == 250

    again = lake.night(3, spec)
    assert as_rows(result_of(again)) == as_rows(result_of(third))
    assert reduced(again) == 0
