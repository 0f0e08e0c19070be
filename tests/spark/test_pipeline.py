"""Whole runs in one session: the answer of plain Spark, whatever the policy, the stages and the keys."""

import datetime as dt
import decimal
import random
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.errors import InputError, LedgerError, QualityError, SpecError
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES
from skewless.publication.records import published_path
from skewless.run.directory import RunDirectory
from skewless.spec.input import Input
from skewless_spark.engines import ENGINES
from skewless_spark.engines.stage import run_stage
from skewless_spark.prepare.freezing import freeze
from skewless_spark.result.merge import merge_states
from skewless_spark.session.versions import to_arrow
from skewless_spark.sources.listing import list_input
from skewless_spark.stage.routes import Stage
from skewless_spark.states.job_columns import JobColumns
from tests.listening import LOOPBACK, listening
from tests.spark.scenario import DATE, as_rows, plain, prepared, reduce_job, result_of, run_job, spec_of, write_input
from tests.tiers import mostly_long

#: What no key should be, and some are.
AWKWARD = [
    "", " ", "'", '"', "`", "\\", "a,b", "a\nb", "a\r\n", "\0", "a\0b", "\u00e9\U0001f600", "null", "<img src=x>",
    "k" * 10_000,
]  # fmt: skip
SKETCH = ("approx_count_distinct", "word", True)

AGGREGATES = {
    "n": "count",
    "filled": {"function": "count", "column": "value"},
    "total": {"function": "sum", "column": "value"},
    "least": {"function": "min", "column": "value"},
    "most": {"function": "max", "column": "value"},
    "mean": {"function": "avg", "column": "value"},
}


def skewed(rows: int = 30_000, seed: int = 1) -> pa.Table:
    """Zipf keys with awkward ones and nulls among them, and a nullable value."""
    rng = np.random.default_rng(seed)
    ranks = rng.zipf(1.3, rows) % 2000
    keys: list[Any] = [AWKWARD[rank - 1] if 1 <= rank <= len(AWKWARD) else f"k{rank}" for rank in ranks]
    for at in rng.integers(0, rows, rows // 20):
        keys[at] = None
    values = pa.array([None if number % 11 == 0 else int(number % 1000) for number in range(rows)], pa.int32())
    return pa.table({"key": pa.array(keys, pa.string()), "value": values, "word": [f"w{n % 977}" for n in range(rows)]})


@pytest.fixture(scope="module")
def skewed_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("skewed") / "input", skewed(), files=20)


@pytest.fixture(scope="module")
def counted(spark: SparkSession, skewed_input: Path) -> pa.Table:
    of_value = [of("value") for of in (F.count, F.sum, F.min, F.max, F.avg)]
    return to_arrow(plain(spark, skewed_input, ["key"], F.count("*"), *of_value))


#: Each policy, what few and many tasks do to one, and the engine that combines rows where they are read.
ROUTINGS: dict[str, dict[str, Any]] = {
    **{policy: {"policy": policy, "reducers": 3, "waves": [1, 3]} for policy in POLICIES},
    "one reducer": {"policy": "adaptive", "reducers": 1, "waves": [1, 3]},
    "combined": {},
}


@pytest.mark.parametrize("name", mostly_long(ROUTINGS, *POLICIES))
def test_the_result_is_that_of_plain_spark(
    spark: SparkSession, skewed_input: Path, counted: pa.Table, tmp_path: Path, name: str
) -> None:
    engine = "combine" if name == "combined" else "staged"
    run, _ = reduce_job(
        spark, spec_of(skewed_input, "key", AGGREGATES, engine=engine, routing=ROUTINGS[name]), tmp_path / "run"
    )
    assert as_rows(result_of(run)) == as_rows(counted)
    assert result_of(run).schema.types == counted.schema.types


@pytest.mark.parametrize(
    ("function", "column", "crosses"),
    mostly_long(
        [("sum", "value", False), ("sum", "real", True), ("first", "word", False), SKETCH],
        ("sum", "value", False),
        SKETCH,
    ),
    ids=["a sum of integers", "a sum of floats", "the first value", "a sketch"],
)
def test_states_cross_the_network_in_place_of_rows_where_nothing_asks_for_the_rows(
    spark: SparkSession, tmp_path: Path, function: str, column: str, crosses: bool
) -> None:
    table = skewed(3000)
    table = table.append_column("real", table["value"].cast(pa.float64()))
    path = write_input(tmp_path / "input", table, files=4)
    spec = spec_of(path, "key", {"of_rows": {"function": function, "column": column}}, routing={"reducers": 3})
    run = prepared(tmp_path, spec)
    plan = run.plan(0).model_copy(update={"budget_rows": None})
    outcome = ENGINES[plan.engine].outcome(Stage(spark, run, JobColumns.of(run.job()), plan))
    executed = outcome._jdf.queryExecution().executedPlan().toString()
    by_task, by_key = r"Exchange (shufflepartitionid|hashpartitioning\(task)", r"Exchange hashpartitioning\((?!task)"
    assert [bool(re.search(sign, executed)) for sign in (by_task, by_key)] == [crosses, not crosses]
    assert ("Sort " in executed) == (crosses or function == "first")
    # The place of a row is looked up for the rows that draw their task, and for those of aggregates that read it.
    assert ("isnull(key" in executed) == (not crosses and function != "first")


@pytest.mark.long
def test_the_same_plans_give_the_same_bytes(spark: SparkSession, skewed_input: Path, tmp_path: Path) -> None:
    aggregates = {
        **AGGREGATES,
        "words": {"function": "approx_count_distinct", "column": "word"},
        "histogram": {"function": "streaming_histogram", "column": "value", "bins": 4},
    }
    routing = {"reducers": 4, "waves": [1, 1, 2], "first_plan": [], "stage_overhead": 0}
    spec = spec_of(skewed_input, "key", aggregates, routing=routing)
    first, _ = reduce_job(spark, spec, tmp_path / "first")
    second, _ = reduce_job(spark, spec, tmp_path / "second")
    assert contents(first) == contents(second)
    # Any step, its commit taken away, is run again to the same end.
    for step in ("stages/0000", "stages/0002", "result"):
        (tmp_path / "second" / step / "COMMIT.json").unlink()
        if step != "result":
            (tmp_path / "second" / "result" / "COMMIT.json").unlink()
        again, _ = reduce_job(spark, spec, tmp_path / "second")
        assert contents(again) == contents(first)


def contents(run: RunDirectory) -> list[bytes]:
    return [Path(run.path(file.path)).read_bytes() for file in run.committed("result").files]


KEYS: dict[str, list[Any]] = {
    "bigint": [1, -1, 0, 2**63 - 1, -(2**63), None],
    "double": [0.0, -0.0, float("nan"), float("inf"), 1e-310, 0.1, None],
    "decimal": [decimal.Decimal("1.10"), decimal.Decimal("-99999.99"), None],
    "boolean": [True, False, None],
    "date": [dt.date(1, 1, 1), dt.date(2026, 11, 20), None],
    "timestamp": [dt.datetime(2026, 10, 25, hour, 30, tzinfo=dt.UTC) for hour in range(4)],
    "binary": [b"", b"\x00", b"\xff\xfe", b"abc", None],
    "string": [*AWKWARD, None],
}


@pytest.mark.parametrize("kind", mostly_long(KEYS, "string"))
def test_keys_of_every_type_come_out_unharmed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng, values = random.Random(7), KEYS[kind]
    column = pa.array([rng.choice(values) for _ in range(2000)], pa.decimal128(7, 2) if kind == "decimal" else None)
    path = write_input(tmp_path / "input", pa.table({"key": column}), files=8)
    run, _ = reduce_job(spark, spec_of(path, "key", {"n": "count"}, routing={"reducers": 3}), tmp_path / "run")
    assert as_rows(result_of(run)) == as_rows(to_arrow(plain(spark, path, ["key"], F.count("*"))))


@pytest.mark.parametrize("files", mostly_long([0, 1], 0), ids=["a folder without files", "a file without rows"])
def test_an_empty_input_publishes_an_empty_result(spark: SparkSession, tmp_path: Path, files: int) -> None:
    path = tmp_path / "input"
    path.mkdir()
    if files:
        pq.write_table(skewed(10).slice(0, 0), path / "part.parquet")
    aggregates = {**AGGREGATES, "histogram": {"function": "streaming_histogram", "column": "value"}}
    run, finished, reports = run_job(spark, spec_of(path, "key", aggregates), tmp_path / "run")
    assert [report.admitted_rows for report in reports] == [0]
    assert result_of(run).num_rows == 0
    assert finished.publication.keys == 0
    assert pq.read_table(finished.publication.path).column_names[: 1 + len(aggregates)] == ["key", *aggregates]


def test_a_failed_expectation_leaves_the_published_day_and_its_report(
    spark: SparkSession, skewed_input: Path, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"engine": "combine", "output": {"path": str(tmp_path / "out")}}
    run, _, _ = run_job(spark, spec_of(skewed_input, "key", {"n": "count"}, **fields), tmp_path / "good")
    folder = Path(published_path(run.job()))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    never = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 0}}
    bad = spec_of(skewed_input, "key", {"n": "count"}, **fields, quality={"expectations": [never]})
    with pytest.raises(QualityError, match=r"checks failed: n: values between, max_value=0 \("):
        run_job(spark, bad, tmp_path / "bad")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert RunDirectory(str(tmp_path / "bad")).commit_of("quality") is not None


def test_an_input_that_changes_during_the_run_is_noticed_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_input(tmp_path / "input", skewed(2000), files=10)
    run = prepared(tmp_path, spec_of(path, "key", {"n": "count"}))
    run_stage(spark, run, 0)
    assert run.decide(1, plan_next_stage).next_plan is not None
    for file in path.iterdir():
        pq.write_table(skewed(150, seed=9), file)
    with pytest.raises(InputError, match=r"was rewritten; nothing was committed"):
        run_stage(spark, run, 1)
    # Were the change to escape the clock, the ledger would tell: it has fewer rows than the footers said.
    job = run.job()
    now = [unit.model_copy(update=_as_now(unit.path)) for unit in job.units]
    (tmp_path / "run" / "job.json").write_text(job.model_copy(update={"units": tuple(now)}).sealed())
    with pytest.raises(LedgerError, match=r"stage 1.*admitted.*nothing was committed"):
        run_stage(spark, run, 1)
    assert run.commit_of("stages/0001") is None


def test_a_merge_before_all_stages_have_run_is_refused(spark: SparkSession, skewed_input: Path, tmp_path: Path) -> None:
    run = prepared(tmp_path, spec_of(skewed_input, "key", {"n": "count"}, routing={"policy": "static"}))
    run_stage(spark, run, 0)
    with pytest.raises(LedgerError, match=r"[\d,]+ of 30,000 rows are processed after 1"):
        merge_states(spark, run)


def _as_now(path: str) -> dict[str, Any]:
    now = list_input(Input(path=path), path).units[0]
    return {"size_bytes": now.size_bytes, "version": now.version, "checksum": now.checksum}


def test_columns_that_spark_cannot_read_or_tell_apart_are_told_before_it_starts(tmp_path: Path) -> None:
    moments = pa.array([1, 2], pa.time64("us"))
    table = pa.table({"key": ["a", "b"], "KEY": ["a", "b"], "at": moments, "word": ["x", "y"], "_metadata": ["x", "y"]})
    path = write_input(tmp_path / "input", table, files=1)
    for key, aggregate, said in [
        ("key", "count", r"'key' and 'KEY'"),
        ("at", "count", r"'at' of type unsupported time64\[us\]"),
        ("_metadata", "count", r"a column name that Spark and Skewless do not use"),
        ("word", {"function": "max", "column": "at"}, r"a type that Spark reads.*time64\[us\]"),
    ]:
        with pytest.raises(InputError, match=said):
            freeze(spec_of(path, key, {"n": aggregate}), DATE, str(tmp_path), "spec")


def test_a_result_among_the_input_or_on_an_object_store_is_refused(tmp_path: Path) -> None:
    path = write_input(tmp_path / "input", skewed(100), files=1)
    for output in (path, path / "out", tmp_path, "s3://bucket/out"):
        with pytest.raises(SpecError, match=r"field output\.path: expected"):
            freeze(spec_of(path, "key", {"n": "count"}, output={"path": str(output)}), DATE, str(tmp_path), "spec")


def test_a_local_session_listens_on_the_loopback_only(spark: SparkSession) -> None:
    jvm = cast("Any", spark.sparkContext)._gateway.proc.pid
    addresses = listening([jvm])
    assert len(addresses) > 1, "its driver and its block manager"
    assert not [address for address in addresses if not address.startswith(LOOPBACK)]
