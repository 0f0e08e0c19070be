"""Somebody's own package brings aggregates that a job uses by name: one with a further column, and some that fail.

One that fails ends in one sentence with the key, and its traceback; nothing is committed.
"""

import logging
import os
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from skewless.aggregates import ENTRY_POINT_GROUP, RegisteredAggregates
from skewless_spark.aggregates import AggregateRegistry, NativeAggregate
from skewless_spark.aggregates.native import NATIVE_AGGREGATES
from skewless_spark.session.versions import arrow_schema, local_frame
from tests.packages import install
from tests.spark.scenario import write_input

MODULE = """
import pyarrow as pa
from pydantic import BaseModel
from skewless.aggregates import Accumulator, Argument, PythonAggregate, number_required

class Options(BaseModel, strict=True, extra="forbid", frozen=True):
    weight: str

class Sum(Accumulator):
    def __init__(self):
        self.total = 0
    def update(self, values):
        self.total += sum(value or 0 for value in values.to_pylist())
    def merge(self, state):
        self.total += state
    def state(self):
        return self.total
    def evaluate(self):
        return self.total

class Weighted(Sum):
    def open_key(self, key):
        self.key = key
    def update(self, values):
        self.total += sum((row["column"] or 0) * (row["weight"] or 0) for row in values.to_pylist())

WEIGHTED_SUM = PythonAggregate.per_key(
    name="weighted_sum", mergeable=True, create=lambda options: Weighted(), options=Options,
    accepts=number_required, further={"weight": Argument(number_required, pa.int64())},
    argument_type=pa.int64(), state_type=pa.int64(), result_type=pa.int64(),
)
"""


def run_apart(spec: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    """``skewless run`` in a process that finds the packages; its run directory and its data are beside the spec."""
    command = [str(Path(sys.executable).with_name("skewless")), "run", str(spec), "--root", str(spec.parent)]
    return subprocess.run(
        [*command, "--master", "local[2]", "--date", "2026-11-20", "--run-dir", str(spec.parent / "run")],
        env={**os.environ, "PYTHONPATH": str(packages)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_an_installed_package_s_aggregate_runs_in_a_job(tmp_path: Path) -> None:
    packages = install(tmp_path / "packages", "weighted", MODULE, aggregates="weighted_sum = weighted:WEIGHTED_SUM")
    rng = np.random.default_rng(8)
    table = pa.table(
        {
            "key": [f"k{n}" for n in np.minimum(rng.zipf(1.5, 4000), 50)],
            "amount": pa.array(rng.integers(-9, 9, 4000).astype(np.int32), mask=rng.random(4000) < 1 / 9),
            "times": pa.array(rng.integers(0, 5, 4000).astype(np.int16)),
        }
    )
    path = write_input(tmp_path / "input", table)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"{{name: own, input: {{path: {path}}}, key: key, routing: {{reducers: 2}}, output: {{path: published}}, "
        "aggregates: {total: {function: weighted_sum, column: amount, weight: times}}}"
    )
    done = run_apart(spec, packages)
    assert done.returncode == 0, done.stderr
    expected: defaultdict[str, int] = defaultdict(int)
    for row in table.to_pylist():
        expected[row["key"]] += (row["amount"] or 0) * row["times"]
    result = pq.read_table(tmp_path / "published" / "date=2026-11-20", partitioning=None)
    assert {row["key"]: row["total"] for row in result.to_pylist()} == expected


@pytest.mark.parametrize("name", sorted(RegisteredAggregates()))
def test_states_and_results_of_every_plain_column_have_types_that_spark_has_too(name: str) -> None:
    aggregate = RegisteredAggregates()[name]
    needed = {"sessions": {"gap": 1.0}, "percentile": {"percentage": 0.5}}
    options = aggregate.options.model_validate(needed.get(name, {}))
    plain = ["boolean", "tinyint", "int", "bigint", "float", "double", "decimal(38,18)", "string", "binary", "date"]
    taken = [kind for kind in [*plain, "timestamp", "timestamp_ntz"] if not aggregate.accepts(kind)]
    assert "double" in taken
    for kind in taken:
        for arrow in aggregate.types(options, [kind]):
            kept = StructType([StructField("x", from_arrow_type(arrow))])
            assert from_arrow_type(arrow_schema(kept).field("x").type) == kept["x"].dataType


@pytest.mark.long
def test_the_exact_median_is_that_of_spark(spark: SparkSession) -> None:
    rng = np.random.default_rng(12)
    odd = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e308, -1e308, 5e-324]
    values = [odd[n % 8] if n % 5 == 0 else float(n % 23) / 7 for n in range(3000)]
    keys = np.minimum(rng.zipf(1.3, 3000), 400).astype(np.int64) - 1
    missing = rng.random(3000) < 1 / 9
    column = pa.array(values, pa.float64(), mask=missing, from_pandas=False)
    aggregate = RegisteredAggregates()["exact_median"]
    made = aggregate.accumulator(aggregate.options(), ["double"])
    for start in range(0, 3000, 700):
        made.update(column.slice(start, 700), keys[start : start + 700], 400)
    ours = dict(enumerate(made.evaluate().to_pylist()))
    frame = local_frame(spark, pa.table({"key": keys, "value": column}))
    theirs = frame.groupBy("key").agg(F.median("value").alias("median"), F.expr("percentile(value, 0.5)").alias("p"))
    rows = theirs.collect()
    assert len(rows) > 100
    for row in rows:
        # By their digits, for NaN equals itself then; but negative zero is zero.
        assert repr(ours[row["key"]]) == repr(row["p"]).replace("-0.0", "0.0") or ours[row["key"]] == row["p"]
        assert repr(row["median"]) == repr(row["p"])


FAILING = f"""{MODULE}
class Picky(Sum):
    def update(self, values):
        if 13 in values.to_pylist():
            raise ValueError("thirteen is bad luck")

class Hoarder(Sum):
    def state(self):
        return "x" * (257 << 20 if self.total > 90 else 1)
    def merge(self, state):
        pass

def made(name, kind, state=pa.int64()):
    return PythonAggregate.per_key(
        name=name, mergeable=True, create=lambda options: kind(), argument_type=pa.int64(), state_type=state,
        result_type=pa.int64() if state == pa.int64() else state,
    )

PICKY, HOARDER = made("picky", Picky), made("hoarder", Hoarder, pa.string())

class WrongType(Sum):
    def state(self):
        return "not a number"

LIAR = made("liar", WrongType)
"""
ENTRY_POINTS = "picky = failing:PICKY\nhoarder = failing:HOARDER\nliar = failing:LIAR"

RAISED = "expected update to take it, but got ValueError: thirteen is bad luck; its traceback is above;"
CASES = [
    ("picky", "staged", f"aggregate 'x' (picky), key 'unlucky': {RAISED}", 'raise ValueError("thirteen is bad luck")'),
    ("hoarder", "combine", "aggregate 'x' (hoarder), key 'big': expected a state of at most 268,435,456 bytes", ""),
    ("liar", "combine", "aggregate 'x' (liar): expected state to take it, but got ArrowInvalid: Could not convert", ""),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with aggregates that fail, and an input with keys that make them."""
    folder = tmp_path_factory.mktemp("home")
    install(folder / "packages", "failing", FAILING, aggregates=ENTRY_POINTS)
    keys = ["good"] * 300 + ["unlucky"] * 3 + ["big"] * 2
    values = [1] * 89 + [0] * 211 + [1, 13, 2] + [90, 1]
    write_input(folder / "input", pa.table({"key": keys, "value": values}), files=4)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "engine", "sentence", "trace"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_one_sentence_and_nothing_committed(
    home: Path, tmp_path: Path, function: str, engine: str, sentence: str, trace: str
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"{{name: failing, input: {{path: {home / 'input'}}}, key: key, engine: {engine}, "
        f"routing: {{reducers: 2, waves: [1]}}, output: {{path: published}}, "
        f"aggregates: {{x: {{function: {function}, column: value}}}}}}"
    )
    done = run_apart(spec, home / "packages")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"skewless: {sentence}"), done.stderr[-3000:]
    assert trace in Path(last.rpartition("Its stack trace: ")[2]).read_text()
    assert not list((tmp_path / "run").rglob("stages/**/COMMIT.json"))
    assert not (tmp_path / "published").exists()


LATEST = "skewless.aggregates.shipped.latest:LATEST"


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
