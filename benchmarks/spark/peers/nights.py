"""Nights over a lake to which days and late files come: ours, and what people write by hand.

A peer runs once a night, and keeps what it likes for the next one. What it does before the first night is not timed:
it has the days before that behind it.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.datasets import LakeOfDays
from benchmarks.spark.peers.builtin import HLL_LG_K, KLL_K
from benchmarks.spark.peers.skewless import timed
from benchmarks.spark.setting import settings
from benchmarks.spark.spark_work import jobs_since, next_job, stages_of
from skewless.publication.publish import require_passed
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless.standing.states_store import StatesStore
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states, publish_now

#: The first day.
FIRST = dt.date(2026, 11, 1)
_TRACKED = 10_000
#: By function, as written by hand: the partial aggregate of rows, the merge of partial ones, and the value.
_BY_HAND = {
    "count": ("count(*)", "sum({0})", "{0}"),
    "sum": ("sum({1})", "sum({0})", "{0}"),
    "approx_count_distinct": (f"hll_sketch_agg({{1}}, {HLL_LG_K})", "hll_union_agg({0})", "hll_sketch_estimate({0})"),
    "approx_percentile": (
        f"kll_sketch_agg_bigint({{1}}, {KLL_K})", f"kll_merge_agg_bigint({{0}}, {KLL_K})",
        "kll_sketch_get_quantile_bigint({0}, 0.5D)",
    ),
    "approx_top_k": (
        f"approx_top_k_accumulate({{1}}, {_TRACKED})", f"approx_top_k_combine({{0}}, {_TRACKED})",
        "approx_top_k_estimate({0}, 5)",
    ),
}  # fmt: skip


@dataclass
class MovingLake:
    """The lake of a cell, as it is in a night.

    Attributes:
        comes: what comes in a night: ``night``, a new day and late rows; or ``late``, one late file.
    """

    comes: str = "night"
    _own: Path | None = field(default=None, repr=False)
    _nights: int = -1

    def at(self, night: int, place: Place) -> Path:
        """The folder of the lake, once the files of a night have come; no peer is in a later night."""
        if self._own is None:
            self._own = Path(tempfile.mkdtemp(dir=place.scratch.parents[1]))
        while self._nights < night:
            self._nights += 1
            came = place.input / (f"{self.comes}-{self._nights}" if self._nights else "days")
            for file in sorted(came.glob("*/*.parquet")):
                day = self.folder / "lake" / f"date={FIRST + dt.timedelta(days=int(file.parent.name))}"
                day.mkdir(parents=True, exist_ok=True)
                os.link(file, day / file.name)
        return self.folder / "lake"

    @property
    def folder(self) -> Path:
        """For the lake, and for what peers keep."""
        if self._own is None:
            raise AssertionError("no peer has asked for the lake yet")
        return self._own

    def newest(self, night: int, data: LakeOfDays) -> dt.date:
        """The newest day in a night."""
        return FIRST + dt.timedelta(days=data.days - 1 + (night if self.comes == "night" else 0))


@dataclass
class _OfNights:
    """A peer that has been run in so many nights."""

    lake: MovingLake
    windows: tuple[int, ...]
    _night: int = 0


@dataclass
class NightsOfSkewless(_OfNights):
    """Ours: a job with a window."""

    name: str = "skewless"

    def settle(self, spark: SparkSession, cell: Cell, place: Place) -> None:
        """See ``Settling``: before the first night, a run over the days that there are."""
        if not self._night:
            self._one(spark, cell, place, {})

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        self._night += 1
        figures: dict[str, float] = {}
        run = self._one(spark, cell, place, figures)
        timed(figures, "validate_seconds", lambda: require_passed(run, validate(spark, run)))
        timed(figures, "publish_seconds", lambda: publish_now(run))
        figures["states_made"] = _states_made(run)
        _answer([run.path(file.path) for file in run.committed("result").of_kind("result")], cell, place)
        return figures

    def _one(self, spark: SparkSession, cell: Cell, place: Place, figures: dict[str, float]) -> RunDirectory:
        lake, folder = self.lake.at(self._night, place), self.lake.folder
        run = RunDirectory(str(folder / "runs" / str(self._night)))
        spec, day = self.spec(cell, lake), self.lake.newest(self._night, _days_of(cell))
        timed(figures, "prepare_seconds", lambda: prepare(run, spec, day, str(folder)))
        first = next_job(spark)
        timed(figures, "stages_seconds", lambda: run_stages(spark, run))
        figures["rows_read"], first = _rows_read(spark, first), next_job(spark)
        timed(figures, "merge_seconds", lambda: merge_states(spark, run))
        figures["states_read"] = _rows_read(spark, first)
        figures["wall_seconds"] = sum(figures[f"{step}_seconds"] for step in ("prepare", "stages", "merge"))
        return run

    def spec(self, cell: Cell, lake: Path) -> JobSpec:
        """The spec of a cell, as it would be in the catalog."""
        raw = {
            "name": "nights",
            "input": {"path": f"{lake}/date={{date}}"},
            "window": list(self.windows),
            "key": "key",
            "aggregates": {name: dict(call) for name, call in cell.aggregates.items()},
            "engine": "auto",
            "routing": {"reducers": cell.slots, "first_plan": ["sample"], **cell.routing},
            "output": {"path": str(self.lake.folder / "published")},
        }
        return parse_spec(yaml.safe_dump(raw, sort_keys=False))


@dataclass
class Recompute(_OfNights):
    """Plain Spark over all rows of the window, every night."""

    name: str = "recompute"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        self._night += 1
        lake, figures, output = self.lake.at(self._night, place), dict[str, float](), str(place.scratch / "result")
        newest, first = self.lake.newest(self._night, _days_of(cell)), next_job(spark)

        def act() -> None:
            rows = _in_windows(spark, lake, newest, self.windows)
            _values(_partial(rows.groupBy("window", "key"), cell), cell).write.parquet(output)

        with settings(spark, _settings(cell)):
            timed(figures, "wall_seconds", act)
        figures["rows_read"] = _rows_read(spark, first)
        _answer(sorted(map(str, Path(output).glob("*.parquet"))), cell, place)
        return figures


@dataclass
class DailyPartials(_OfNights):
    """A table of daily partial aggregates by hand: days that may have changed are computed anew, and all are merged."""

    name: str = "daily partials"

    def settle(self, spark: SparkSession, cell: Cell, place: Place) -> None:
        """See ``Settling``: before the first night, the partial aggregates of the days that there are."""
        lake = self.lake.at(self._night, place)
        if not self._night:
            days = [FIRST + dt.timedelta(days=day) for day in range(_days_of(cell).days)]
            with settings(spark, _settings(cell)):
                self._compute(spark, cell, self.lake.folder / "partials", lake, days)

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``; rows come late for the last days only, and so these are computed anew."""
        table, data = self.lake.folder / "partials", _days_of(cell)
        self._night += 1
        lake, figures = self.lake.at(self._night, place), dict[str, float]()
        with settings(spark, _settings(cell)):
            first = next_job(spark)
            newest = self.lake.newest(self._night, data)
            changed = [newest - dt.timedelta(days=back) for back in (0, *data.late_days)]
            output = str(place.scratch / "result")
            timed(figures, "reduce_seconds", lambda: self._compute(spark, cell, table, lake, changed))
            figures["rows_read"], first = _rows_read(spark, first), next_job(spark)
            timed(figures, "merge_seconds", lambda: self._merge(spark, cell, table, newest, output))
            figures["states_read"] = _rows_read(spark, first)
        figures["states_made"] = float(sum(_rows_in(table / f"date={day}") for day in changed))
        figures["wall_seconds"] = figures.pop("reduce_seconds") + figures.pop("merge_seconds")
        _answer(sorted(map(str, Path(output).glob("*.parquet"))), cell, place)
        return figures

    def _compute(self, spark: SparkSession, cell: Cell, table: Path, lake: Path, days: Sequence[dt.date]) -> None:
        rows = spark.read.option("basePath", str(lake)).parquet(*(str(lake / f"date={day}") for day in days))
        _partial(rows.groupBy("date", "key"), cell).write.partitionBy("date").mode("overwrite").parquet(str(table))

    def _merge(self, spark: SparkSession, cell: Cell, table: Path, newest: dt.date, output: str) -> None:
        merges = [
            F.expr(_BY_HAND[call["function"]][1].format(name)).alias(name) for name, call in cell.aggregates.items()
        ]
        states = _in_windows(spark, table, newest, self.windows).groupBy("window", "key").agg(*merges)
        _values(states, cell).write.parquet(output)


def _in_windows(spark: SparkSession, table: Path, newest: dt.date, windows: Sequence[int]) -> DataFrame:
    """The rows of the days of some windows, a row for each window that it is in."""
    days = [str(table / f"date={newest - dt.timedelta(days=back)}") for back in range(max(windows))]
    rows = spark.read.option("basePath", str(table)).parquet(*days)
    age = F.datediff(F.lit(newest), F.col("date"))
    covering = F.filter(F.array(*(F.lit(one) for one in windows)), lambda one: one > age)
    return rows.withColumn("window", F.explode(covering))


def _settings(cell: Cell) -> dict[str, str]:
    return {"spark.sql.shuffle.partitions": str(2 * cell.slots), "spark.sql.sources.partitionOverwriteMode": "dynamic"}


def _partial(grouped: GroupedData, cell: Cell) -> DataFrame:
    return grouped.agg(
        *(
            F.expr(_BY_HAND[call["function"]][0].format(name, call.get("column"))).alias(name)
            for name, call in cell.aggregates.items()
        )
    )


def _values(states: DataFrame, cell: Cell) -> DataFrame:
    values = (F.expr(_BY_HAND[call["function"]][2].format(name)).alias(name) for name, call in cell.aggregates.items())
    return states.select("window", "key", *values)


def _days_of(cell: Cell) -> LakeOfDays:
    if not isinstance(cell.data, LakeOfDays):
        raise TypeError(f"expected a lake of days, but got {cell.data}")
    return cell.data


def _rows_read(spark: SparkSession, first: int) -> float:
    """Rows that Spark has read from files in the jobs from this number on, by its own metrics."""
    return float(sum(stage.total("input_rows") for stage in stages_of(jobs_since(spark, first))))


def _rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def _states_made(run: RunDirectory) -> float:
    """States that a run has added to the kept ones."""
    window, made = run.job().window, 0
    for part in window.parts if window else ():
        newest, _ = StatesStore(window.store).newest(part.name) if window else (None, ())
        if part.changed and newest:
            made += sum(file.rows for file in newest.version.states if file not in part.base_states)
    return float(made)


def _answer(files: Sequence[str], cell: Cell, place: Place) -> None:
    """Write a result to where answers are compared: of the most frequent items, the count of the first."""
    place.output.mkdir()
    for number, file in enumerate(files):
        table = pq.read_table(file)
        for name, call in cell.aggregates.items():
            if call["function"] == "approx_top_k":
                counts = pc.struct_field(pc.list_element(table[name], 0), "count")
                table = table.set_column(table.column_names.index(name), name, counts)
        keys = pc.binary_join_element_wise(table["window"].cast("string"), table["key"], "/")
        table = table.set_column(table.column_names.index("key"), "key", keys)
        pq.write_table(table, place.output / f"{number}.parquet")
