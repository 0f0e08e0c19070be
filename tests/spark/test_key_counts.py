"""Keys are counted by the driver where a run's states are few, and by Spark where they are many: both count alike."""

import datetime as dt
import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.documents.stage_report import Histogram, TaskLoad
from skewless.run.directory import RunDirectory, stage_step
from skewless_cli.run_view import hottest
from skewless_spark.stage import state_counts
from skewless_spark.stage.measured_stage import key_histogram
from skewless_spark.stage.routes import Stage
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import reduce_job, spec_of, write_input

ROWS = 6_000
NATIVE = {"n": "count"}
PYTHON = {"histogram": {"function": "streaming_histogram", "column": "value", "bins": 4}}
SEVERAL_STAGES = {"reducers": 3, "waves": [1, 2], "stage_overhead": 0, "first_plan": [], "budget": 1.0}


def _not_utf8(values: Sequence[bytes | None]) -> pa.Array:
    """Strings as other programs write them: Arrow itself makes none that are not UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


#: Values of each type that a key may have, the odd ones among them.
VALUES: dict[str, pa.Array] = {
    "string": pa.array(["", "a", "b,c", "\0null", "\u00e9\U0001f600", "x" * 1_025, "k" * 10_000, None]),
    "bytes in a string": _not_utf8([b"a", b"\xff\xfe", b"\xc3\xa9\x80", b"bc\xff", None]),
    "binary": pa.array([b"", b"\x00", b"\xff\xfe", b"k1", None]),
    "int": pa.array([0, -1, 2**31 - 1, -(2**31), 7, None], pa.int32()),
    "boolean": pa.array([True, False, None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "distant dates": pa.array([-(2**31), -1_000_000, 5_000_000, 2**31 - 1, None], pa.date32()),
    "timestamp": pa.array([0, -1, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
    "decimal": pa.array([decimal.Decimal(x) for x in ("0.000001", "-1.5", "123456.000000", "0")], pa.decimal128(12, 6)),
    "tiny decimal": pa.array([decimal.Decimal("0.0000001"), decimal.Decimal(1), None], pa.decimal128(12, 7)),
    "double": pa.array([0.0, -0.0, float("nan"), 1e300, None]),
}


def input_of(columns: dict[str, pa.Array], folder: Path) -> Path:
    """Some thousand rows, with one value of each column ten times heavier than the others."""
    rng = np.random.default_rng(11)
    table: dict[str, Any] = {"value": pa.array(rng.integers(0, 50, ROWS))}
    for name, values in columns.items():
        drawn = rng.integers(0, len(values) + 10, ROWS)
        table[name] = values.take(pa.array(np.where(drawn < len(values), drawn, 1)))
    return write_input(folder, pa.table(table), files=6)


def both_ways(
    spark: SparkSession, run: RunDirectory, stage: int, tasks: Sequence[TaskLoad], patch: pytest.MonkeyPatch
) -> tuple[Histogram, Histogram]:
    columns, files = JobColumns.of(run.job()), run.committed(stage_step(stage)).files
    here = Stage(spark, run, columns, run.plan(stage))
    admitted = run.report(stage).admitted_rows
    found = []
    for most in (state_counts.MOST_STATES, 0):
        patch.setattr(state_counts, "MOST_STATES", most)
        read = CountsRead(run, columns)
        found.append(key_histogram(here, files, read, tasks, admitted))
    return found[0], found[1]


def jobs_of(spark: SparkSession) -> int:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return int(spark.sparkContext._jsc.sc().statusStore().jobsList(None).size())


@pytest.mark.long
@pytest.mark.parametrize(
    ("keys", "aggregates"),
    [
        (["string"], NATIVE),
        (["bytes in a string", "int"], NATIVE),
        (["timestamp", "decimal", "binary", "boolean", "date"], {**NATIVE, **PYTHON}),
        (["distant dates"], PYTHON),
        (["tiny decimal", "double"], NATIVE),
    ],
    ids=["text", "not UTF-8", "both", "dates", "as Spark only writes"],
)
def test_the_driver_and_spark_make_the_same_histogram(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str], aggregates: dict[str, Any]
) -> None:
    path = input_of({f"key_{number}": VALUES[key] for number, key in enumerate(keys)}, tmp_path / "input")
    names = [f"key_{number}" for number in range(len(keys))]
    spec = spec_of(path, names, aggregates, routing={**SEVERAL_STAGES, "head_limit": 5})
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    assert any(report.backlog_rows for report in reports)
    assert len(hottest(run)[1]) > 2
    for report in reports:
        here, by_spark = both_ways(spark, run, report.stage, report.tasks, monkeypatch)
        assert here.model_dump() == by_spark.model_dump() == report.histogram.model_dump()
        assert list(here.head) == list(by_spark.head)
        assert here.keys


def test_the_driver_needs_no_spark_job_and_keeps_no_keys_beyond_its_limits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = input_of({"key": VALUES["string"]}, tmp_path / "input")
    run, reports = reduce_job(spark, spec_of(path, "key", NATIVE, routing=SEVERAL_STAGES), tmp_path / "run")
    columns, stage = JobColumns.of(run.job()), reports[-1].stage
    files, tasks = run.committed(stage_step(stage)).files, reports[-1].tasks
    here = Stage(spark, run, columns, run.plan(stage))
    for name, most, of_spark in [("MOST_STATES", 1 << 20, 0), ("MOST_STATES", 2, 1), ("MOST_KEY_BYTES", 2, 1)]:
        with monkeypatch.context() as patch:
            patch.setattr(state_counts, name, most)
            before, read = jobs_of(spark), CountsRead(run, columns)
            read.sums([file for file in files if file.kind == "native"])
            found = key_histogram(here, files, read, tasks, reports[-1].admitted_rows)
            assert found == reports[-1].histogram
            assert min(1, jobs_of(spark) - before) == of_spark
            assert read.keeps_keys is (not of_spark)
