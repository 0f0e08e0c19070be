"""No rows left is a result: ``map.where`` may empty some waves of a run, or all of them."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import finish_run, run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.versions import to_arrow
from tests.spark.scenario import as_rows, finished, prepared, reduce_job, result_of, spec_of, write_input
from tests.tiers import mostly_long

ROUTING = {"reducers": 3, "waves": [1, 1, 1], "stage_overhead": 0, "first_plan": [], "budget": 1.0}
NATIVE = {"n": "count", "total": {"function": "sum", "column": "value"}}
COUNTS = {"seen": {"function": "value_counts", "column": "value"}}
PYTHON = {"seen": {"function": "exact_median", "column": "value"}}
FILES, ROWS = 6, 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many rows in each file, half of them of one key; a row says which file has it."""
    rows = range(ROWS * FILES)
    table = {"key": [f"k{row % 7 if row % 2 else 0}" for row in rows], "value": [row % 5 for row in rows]}
    table["file"] = [row // ROWS for row in rows]
    return write_input(tmp_path_factory.mktemp("rows") / "input", pa.table(table), files=FILES)


#: Which of the three waves have rows left: a condition that the rows are held against, or one that Spark sees through.
KEPT: dict[str, tuple[int, ...] | None] = {
    "the first has none": (1, 2), "only the first has some": (0,), "none is left": (), "none can be": None,
}  # fmt: skip
#: Each engine and kind of state, and each way of leaving nothing.
CASES = [
    ("combine", "python", "none can be"),
    ("staged", "native", "the first has none"),
    ("staged", "python", "only the first has some"),
    ("bypass", "native", "none is left"),
    ("auto", "native", "none can be"),
]


@pytest.mark.parametrize(
    ("engine", "branch", "left"),
    mostly_long(CASES, ("combine", "python", "none can be")),
    ids=[", ".join(case) for case in CASES],
)
def test_waves_that_a_condition_empties_are_admitted_like_others(
    spark: SparkSession, source: Path, tmp_path: Path, engine: str, branch: str, left: str
) -> None:
    waves = prepared(tmp_path, spec_of(source, "key", NATIVE, routing=ROUTING), "unmapped").job().waves
    kept = KEPT[left]
    files = [file for wave in kept or () for file in waves[wave]]
    where = "1 = 0" if kept is None else f"file IN ({', '.join(map(str, [-1, *files]))})"
    spec = spec_of(
        source, "key", NATIVE if branch == "native" else PYTHON, engine=engine, routing=ROUTING,
        map={"select": ["key", "value"], "where": where}, output={"path": str(tmp_path / "published"), "files": 2},
    )  # fmt: skip
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    assert reports[-1].waves[1] == len(waves) == 3
    assert sum(report.processed_rows for report in reports) == run.committed("result").counts["rows"]
    wanted = [F.count("*"), F.sum("value")] if branch == "native" else [F.median("value")]
    rows = spark.read.parquet(str(source)).where(where).groupBy("key").agg(*wanted)
    assert as_rows(result_of(run)) == as_rows(to_arrow(rows))
    if (engine, kept) == ("combine", None):
        finish_run(spark, run)
        published = finished(run).publication
        assert (published.rows, pq.read_table(published.path).column_names) == (0, ["key", *spec.aggregates])


@pytest.mark.long
def test_a_night_without_rows_is_a_part_of_its_window(spark: SparkSession, tmp_path: Path) -> None:
    values = {"2026-11-19": [3, 3], "2026-11-20": [1, 2], "2026-11-21": [0, 0]}
    for day, of_day in values.items():
        write_input(tmp_path / "in" / day, pa.table({"key": ["a", "b"], "value": of_day}), files=2)
    spec = spec_of(
        tmp_path / "in" / "{date}", "key", {**NATIVE, **COUNTS}, engine="auto", routing=ROUTING,
        map={"select": ["key", "value"], "where": "value IN (1, 2)"}, window={"length": 2, "missing": "allow"},
    )  # fmt: skip
    found = dict[str, tuple[int, int, list[dict[str, Any]]]]()
    for day in values:
        run = RunDirectory(str(tmp_path / "runs" / day))
        prepare(run, spec, dt.date.fromisoformat(day), str(tmp_path))
        run_pipeline(spark, run)
        rows = finished(run).publication.rows
        read = sum(report.source_rows or 0 for report in run.reports())
        found[day] = (rows, read, result_of(run).sort_by("key").to_pylist())
    both: list[dict[str, Any]] = [
        {"key": key, "n": 1, "total": value, "seen": [{"value": value, "count": 1}]}
        for key, value in (("a", 1), ("b", 2))
    ]
    assert found == {"2026-11-19": (0, 2, []), "2026-11-20": (2, 2, both), "2026-11-21": (2, 2, both)}
