"""Aggregate functions that Spark computes where all rows of a key are: as plain Spark says, in one task each."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.errors import SpecError
from skewless.query.functions import AGGREGATES
from skewless_spark.prepare.freezing import check_spec, freeze
from skewless_spark.session.versions import here
from tests.spark.scenario import DATE, plain, reduce_job, spec_of, write_input
from tests.spark.test_native_aggregates import close, nasty

CALLS = {
    f"a{number}": text
    for number, text in enumerate((
        "count_min_sketch(word, 0.01D, 0.9D, 1)",
        "listagg(word, ', ') WITHIN GROUP (ORDER BY word DESC)",
        "percentile_disc(0.3) WITHIN GROUP (ORDER BY price DESC)",
        "percentile(near, 0.3, abs(whole) % 3 + 1)",
        "max_by(two.b, place, 3) FILTER (WHERE flag)",
        "bitmap_construct_agg(abs(whole))",
        "stddev(DISTINCT whole)",
    ))
    if here() >= {"listagg": (4, 0), "max_by": (4, 2)}.get(text.partition("(")[0], (3, 5))
}  # fmt: skip
#: Its bins depend on the order in which rows come and are merged; the rows in them do not.
HISTOGRAM = "histogram_numeric(whole, 5)"
#: States that go on from others, row by row in the order of the input.
FORWARD: dict[str, Any] = {
    "middle": {"function": "exact_median", "column": "whole"},
    "visits": {"function": "sessions", "column": "place", "gap": 1 << 40},
}


@pytest.mark.parametrize("beside", [{}, FORWARD], ids=["alone", "beside Python"])
def test_each_key_is_computed_by_spark_itself(spark: SparkSession, tmp_path: Path, beside: dict[str, Any]) -> None:
    source = write_input(tmp_path / "in", nasty(), files=8)
    calls = {name: {"function": "spark", "expression": text} for name, text in {**CALLS, "bins": HISTOGRAM}.items()}
    rest = {"rows": "count", "total": {"function": "sum", "column": "big"}, **beside}
    routing = {"reducers": 3, "waves": [1, 3], "first_plan": ["sample"]}
    runs = []
    for number in range(1 if beside else 2):
        spec = spec_of(source, "key", {**calls, **rest}, routing=routing, engine="auto")
        run, reports = reduce_job(spark, spec, tmp_path / f"run{number}")
        assert len(reports) == 1
        frame = spark.read.parquet(*(run.path(file.path) for file in run.committed("result").files))
        runs.append({row["key"]: row for row in frame.collect()})
    choice, head = run.decision(0).engine, run.plan(0).head
    assert choice is not None
    assert choice.sentence == "bypass, an aggregate of Spark's cannot be split: a hot key stays in one task"
    assert head
    assert all(len(weights) == 1 for weights in head.values()), "heavy keys are placed by name, and each is whole"
    theirs = plain(
        spark, source, ["key"], F.count("*").alias("rows"), F.sum("big").alias("total"),
        *(F.expr(text).alias(name) for name, text in CALLS.items()), F.median("whole").alias("middle"),
        F.expr(HISTOGRAM).alias("bins"),
        F.expr("array(struct(min(place) AS start, max(place) AS end, count(place) AS rows))").alias("visits"),
    )  # fmt: skip
    ours, expected = runs[0], {row["key"]: row for row in theirs.collect()}
    assert ours.keys() == expected.keys()
    holds, types = close(1e-9), dict(theirs.dtypes)
    for name in (*rest, *CALLS):
        wrong = {key: (ours[key][name], row[name]) for key, row in expected.items()
                 if not holds(ours[key][name], row[name])}  # fmt: skip
        assert not wrong, (name, list(wrong.items())[:2])
    assert all(kind == types[name] for name, kind in frame.dtypes)
    for key, row in expected.items():
        assert sum(point["y"] for point in ours[key]["bins"] or ()) == sum(point["y"] for point in row["bins"] or ())
    assert runs[0] == runs[-1], "and in the same order of rows, whatever task was first"


def test_each_aggregate_function_of_spark_is_known(spark: SparkSession) -> None:
    theirs = {one.name for one in spark.catalog.listFunctions() if ".aggregate." in (one.className or "")}
    assert len(theirs) > 50
    assert theirs <= AGGREGATES


REFUSED = {
    "upper(word)": "one call of an aggregate function of Spark's, but got upper(word)",
    "max(whole) + 1": "one call of an aggregate function of Spark's, but got max(whole) + 1",
    "collect_list(word)": "where the order of the rows counts, but got collect_list(word)",
    "listagg(word)": "where the order of the rows counts, but got listagg(word)",
    "max(": "a query of Spark SQL",
    "max(nothing)": "an existing column, but got 'nothing'",
    "max(rand())": "an expression that Spark takes",
    "sum(word, 1)": "an expression that Spark takes",
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("text", REFUSED)
def test_what_spark_cannot_compute_so_is_refused(tmp_path: Path, text: str) -> None:
    source = write_input(tmp_path / "in", nasty(200), files=1)
    spec = spec_of(source, "key", {"a": {"function": "spark", "expression": text}})
    with pytest.raises(Exception, match="expected") as raised:
        freeze(spec, DATE, str(tmp_path), "spec")
    assert REFUSED[text] in str(raised.value)
    assert "aggregate 'a'" in str(raised.value)


def test_it_has_no_window(tmp_path: Path) -> None:
    call = {"function": "spark", "expression": "histogram_numeric(x, 3)"}
    spec = spec_of(tmp_path / "{date}", "k", {"a": call}, window={"length": 3, "states": str(tmp_path / "states")})
    with pytest.raises(SpecError, match="whose states can be merged, with a window, but got 'spark'; take one of"):
        check_spec(spec, "spec")
