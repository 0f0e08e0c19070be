"""Sketches as results: bytes that others read and merge, whatever the engine, and right after late data."""

import base64
import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part
from skewless.spec.spec import FRESH, JobSpec
from skewless_cli.running import check_job
from skewless_lake.catalogs import open_catalog
from skewless_spark.comparison import OtherSide, committed_result, compare, compared_columns, other_side
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.quality.expectations import check_expectations
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import DATE, reduce_job, result_of, spec_of, write_input
from tests.tiers import mostly_long

#: The arguments of each sketch, and what its values become before they are put into one.
CALLS: dict[str, dict[str, Any]] = {
    "hll_words": {"function": "approx_count_distinct", "column": "word"},
    "hll_raws": {"function": "approx_count_distinct", "column": "raw"},
    "hll_numbers": {"function": "approx_count_distinct", "column": "small", "rsd": 0.1},
    "theta_words": {"function": "theta_sketch_estimate", "column": "word"},
    "theta_shares": {"function": "theta_sketch_estimate", "column": "share", "lg_nom_entries": 9},
    "theta_numbers": {"function": "theta_sketch_estimate", "column": "big"},
    "kll_numbers": {"function": "approx_percentile", "column": "big"},
    "kll_shares": {"function": "percentile_approx", "column": "share"},
    "kll_halves": {"function": "approx_percentile", "column": "half", "accuracy": 20},
    "top_words": {"function": "approx_top_k", "column": "word", "max_items_tracked": 6000},
    "top_numbers": {"function": "approx_top_k", "column": "small"},
}
AGGREGATES = {name: {**call, "publish": "state"} for name, call in CALLS.items()}


def merged(*sketches: Any) -> float:
    union = ds.hll_union(12)
    for sketch in sketches:
        union.update(sketch)
    return float(union.get_estimate())


def require_hll(sketch: bytes, values: Iterable[Any], lg_k: int = 12) -> None:
    """The sketch holds what DataSketches' own C++ library has made of the values."""
    found, own = ds.hll_sketch.deserialize(sketch), ds.hll_sketch(lg_k, ds.tgt_hll_type.HLL_8)
    for value in values:
        own.update(value)
    assert (found.lg_config_k, found.tgt_type) == (lg_k, ds.tgt_hll_type.HLL_8)
    assert merged(found, found) == merged(own, own) == merged(found, own)


def require_theta(sketch: bytes, values: Iterable[Any], lg_k: int = 12) -> None:
    found, own = ds.compact_theta_sketch.deserialize(sketch), ds.update_theta_sketch(lg_k)
    for value in values:
        own.update(value)
    assert [ds.theta_a_not_b().compute(*pair).get_estimate() for pair in ((found, own), (own, found))] == [0, 0]
    assert abs(found.get_estimate() - own.get_estimate()) <= 6 * 2 ** (-lg_k / 2) * own.get_estimate()


def require_kll(found: Any, values: list[Any], accuracy: int) -> None:
    assert found.n == len(values)
    ordered = sorted(values)
    for share in (0.1, 0.5, 0.9) if values else ():
        middle = found.get_quantile(share)
        low, high = bisect_left(ordered, middle) / len(ordered), bisect_right(ordered, middle) / len(ordered)
        assert low - 2 / accuracy <= share <= high + 2 / accuracy


def items_of(sketch: bytes, serde: Any) -> dict[Any, int]:
    found = ds.frequent_items_sketch.deserialize(sketch, serde)
    return {item: estimate for item, estimate, _, _ in found.get_frequent_items(NO_FALSE_NEGATIVES)}


NO_FALSE_NEGATIVES = ds.frequent_items_error_type.NO_FALSE_NEGATIVES


def rows(number: int) -> pa.Table:
    """Two heavy keys with more values than sketches keep, many others, null, a key of nulls; empty texts, and NaN."""
    drawn = np.random.default_rng(4)
    keys: list[Any] = [f"key{one}" for one in np.minimum(drawn.zipf(1.3, number), 24)]
    gone = drawn.random(number) < 0.1
    gone[:50], keys[:50] = True, ["only nulls"] * 50
    keys[50:90] = [None] * 40

    def column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if out else value for value, out in zip(values, gone, strict=True)], kind)

    words = [f"w\u00e9 {one}" if one else "" for one in drawn.integers(0, 9_000, number)]
    shares = [float("nan") if at % 97 == 0 else -0.0 if at % 89 == 0 else float(one) for at, one in
              enumerate(drawn.random(number))]  # fmt: skip
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "word": column(words, pa.string()),
            "raw": column((word.encode()[::-1] for word in words), pa.binary()),
            "small": column((int(one) for one in drawn.integers(-3, 40, number)), pa.int16()),
            "big": column((int(one) for one in drawn.integers(-(2**60), 2**60, number)), pa.int64()),
            "share": column(shares, pa.float64()),
            "half": column((float(one) for one in drawn.random(number, np.float32)), pa.float32()),
        }
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    table = rows(16_000)
    return write_input(tmp_path_factory.mktemp("sketches") / "in", table, files=6), table


def by_key(table: pa.Table) -> dict[Any, dict[str, list[Any]]]:
    found: dict[Any, dict[str, list[Any]]] = {}
    for row in table.to_pylist():
        of_key = found.setdefault(row.pop("key"), {name: [] for name in table.column_names if name != "key"})
        for name, value in row.items():
            if value is not None:
                of_key[name].append(value)
    return found


ENGINES: dict[str, dict[str, Any]] = {
    "combine": {"engine": "combine"},
    "bypass": {"engine": "bypass"},
    "staged": {"engine": "staged", "routing": {"reducers": 3, "waves": [1, 2], "policy": "static"}},
}


@pytest.mark.parametrize("engine", mostly_long(ENGINES, "staged"))
def test_every_engine_publishes_what_the_own_library_makes_of_the_plain_values(
    spark: SparkSession, corpus: tuple[Path, pa.Table], tmp_path: Path, engine: str
) -> None:
    path, table = corpus
    run, _ = reduce_job(spark, spec_of(path, "key", AGGREGATES, **ENGINES[engine]), tmp_path / "run")
    result, truth = result_of(run), by_key(table)
    assert {str(result.schema.field(name).type) for name in AGGREGATES} == {"binary"}
    assert set(result["key"].to_pylist()) == set(truth)
    for row in result.to_pylist():
        of = truth[row["key"]]
        shares = [one for one in of["share"] if not math.isnan(one)]
        require_hll(row["hll_words"], of["word"])
        require_hll(row["hll_numbers"], of["small"], 7)
        require_theta(row["theta_words"], of["word"])
        require_theta(row["theta_shares"], of["share"], 9)
        require_theta(row["theta_numbers"], of["big"])
        require_kll(ds.kll_items_sketch.deserialize(row["kll_numbers"], ds.PyLongsSerDe()), of["big"], 75)
        require_kll(ds.kll_doubles_sketch.deserialize(row["kll_shares"]), shares, 75)
        require_kll(ds.kll_floats_sketch.deserialize(row["kll_halves"]), of["half"], 20)
        require_items(row, of)
    one_of_all = spark.createDataFrame(result.select(["hll_raws"]).to_pandas())
    words = len(set(table["raw"].to_pylist()) - {None, b""})
    (estimate,) = one_of_all.agg(F.hll_sketch_estimate(F.hll_union_agg("hll_raws"))).collect()[0]
    assert abs(estimate - words) <= 3 * 0.02 * words
    require_differences_are_told(spark, run)


def require_items(row: dict[str, Any], of: dict[str, list[Any]]) -> None:
    counts, found = Counter(of["word"]), items_of(row["top_words"], ds.PyStringsSerDe())
    assert all(abs(count - counts[item]) <= 2.7 / 6000 * len(of["word"]) for item, count in found.items())
    assert items_of(row["top_numbers"], ds.PyLongsSerDe()) == Counter(of["small"])
    # Nothing follows the sketch: Spark's own state has a count of nulls after it.
    again = ds.frequent_items_sketch.deserialize(row["top_numbers"], ds.PyLongsSerDe())
    assert len(row["top_numbers"]) == len(again.serialize(ds.PyLongsSerDe()))


def require_differences_are_told(spark: SparkSession, run: RunDirectory) -> None:
    """A result is that of its rows by what its sketches hold, and a sketch of another key is seen and shown."""
    columns, result = JobColumns.of(run.job()), committed_result(spark, run)
    fresh = other_side(spark, FRESH, run.job(), compared_columns(run, spark))
    assert not compare(spark, run, fresh, 1e-9, 1).found
    swapped = ["hll_words", "theta_words", "kll_shares", "top_words"]
    key = F.col(columns.keys[0])
    (other,) = result.where(key == "key1").collect()
    for number in map(columns.result, swapped):
        result = result.withColumn(number, F.when(key == "key2", F.lit(bytes(other[number]))).otherwise(F.col(number)))
    lacking = result.where(~key.eqNullSafe("key3"))  # a key that is on one side only has no sketch there
    lacking = lacking.toDF(*columns.published.values())
    comparison = compare(spark, run, OtherSide(lacking, dict(lacking.dtypes)), 1e-9, 3)
    assert {name for name, keys in comparison.columns.items() if keys} == set(swapped)
    assert (comparison.differ, comparison.only_here) == (2, 1)
    told = str(next(one for one in comparison.examples if not one.state))
    assert re.search(r"hll_words 'a sketch of about \d{4} values' here, 'a sketch of about \d{4} values' there", told)
    assert re.search(r"kll_shares 'a sketch of \d+ values, their median about 0\.[45]\d+'", told)
    assert 'top_words \'a sketch with [{"item":"' in told


OUTPUTS = {
    "json": lambda folder: [
        json.loads(line) for file in folder.rglob("*.json") for line in file.read_text("utf-8").splitlines()
    ],
    "delta": lambda folder: pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist(),
    "iceberg": lambda folder: (
        open_catalog("local", str(folder.parent)).load_table("marts.clicks").scan().to_arrow().to_pylist()
    ),
}


@pytest.mark.parametrize("kind", mostly_long(OUTPUTS, "delta"))
def test_sketches_are_published_in_every_format_but_csv(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = write_input(tmp_path / "in", pa.table({"key": ["a"] * 9, "word": [f"w{n}" for n in range(9)]}), files=2)
    place = "local.marts.clicks" if kind == "iceberg" else str(tmp_path / "out")
    aggregates = {name: AGGREGATES[name] for name in ("hll_words", "theta_words", "top_words")}
    spec = spec_of(path, "key", aggregates, output={"path": place, "format": kind})
    run = RunDirectory(str(tmp_path / "run"))
    prepare(run, spec, DATE, str(tmp_path))
    run_pipeline(spark, run)
    (row,) = OUTPUTS[kind](tmp_path / "out")
    sketches = {name: base64.b64decode(row[name]) if kind == "json" else row[name] for name in aggregates}
    (own,) = result_of(run).select([*aggregates]).to_pylist()
    assert sketches == own
    require_hll(sketches["hll_words"], [f"w{n}" for n in range(9)])


def spec_with(path: Path, **fields: Any) -> JobSpec:
    return spec_of(path, "key", {"sketch": AGGREGATES["hll_words"], "n": "count"}, **fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"output": {"path": "out", "format": "csv"}}, "'sketch' of type binary; publish parquet, orc or json"),
        ({"output": {"path": "out", "sort": ["n", "sketch desc"]}}, "but got 'sketch', a sketch; sort by another"),
    ],
    ids=["csv", "sort"],
)
def test_what_has_no_use_for_bytes_refuses_them(
    spark: SparkSession, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    del spark
    path = write_input(tmp_path / "in", pa.table({"key": ["a"], "word": ["b"]}), files=1)
    with pytest.raises(SpecError, match=re.escape(sentence)):
        check_job(spec_with(path, **fields), "spec", Part(DATE), str(tmp_path))


def test_of_a_sketch_nothing_is_expected_but_that_it_is_there(tmp_path: Path) -> None:
    kwargs: dict[str, dict[str, Any]] = {
        "expect_column_values_to_not_be_null": {},
        "expect_column_values_to_be_of_type": {"type_": "BinaryType"},
        "expect_column_values_to_be_unique": {},
        "expect_column_values_to_be_between": {"min_value": 1},
    }
    for kind, own in kwargs.items():
        asked = {"expectations": [{"type": kind, "kwargs": {"column": "sketch", **own}}]}
        spec = spec_with(tmp_path / "in", quality=asked)
        if kind in {"expect_column_values_to_not_be_null", "expect_column_values_to_be_of_type"}:
            check_expectations(spec, "spec")
            continue
        with pytest.raises(SpecError) as refused:
            check_expectations(spec, "spec")
        assert str(refused.value) == (
            "spec, field quality.expectations.0.kwargs.column: expected a column of values, but got 'sketch', a "
            "sketch; expect this of a second aggregate, without publish: state."
        )
