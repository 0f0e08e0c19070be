"""A result is compared with one that others made: what differs is found, and nothing else."""

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless_spark import comparison as comparing
from skewless_spark.session import versions
from tests.spark.scenario import Told

DAY = "2026-11-20"
AGGREGATES = {
    "n": "count",
    "total": {"function": "sum", "column": "amount"},
    "mean": {"function": "avg", "column": "ratio"},
    "latest": {"function": "max", "column": "day"},
    "visitors": {"function": "approx_count_distinct", "column": "visitor"},
    "middle": {"function": "approx_percentile", "column": "amount", "percentage": 0.5},
}
Compare = Callable[..., Told]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(17)
    number = 40_000
    return pd.DataFrame(
        {
            "site": rng.choice(np.array(["a", "b", None], object), number, p=[0.6, 0.3, 0.1]),
            "page": np.char.add("/page/", np.minimum(rng.zipf(1.4, number), 400).astype(str)),
            "amount": rng.integers(-1_000, 1_000, number),
            "ratio": rng.random(number) * 1e6,
            "day": [dt.date(2026, 11, 1) + dt.timedelta(days=int(one)) for one in rng.integers(0, 28, number)],
            "visitor": rng.integers(0, 5_000, number),
        }
    )


@pytest.fixture(scope="module")
def theirs(rows: pd.DataFrame) -> pd.DataFrame:
    grouped = rows.groupby(["site", "page"], dropna=False)
    found = grouped.agg(
        n=("amount", "size"), total=("amount", "sum"), mean=("ratio", "mean"), latest=("day", "max"),
        visitors=("visitor", "nunique"), middle=("amount", lambda one: one.quantile(0.5, interpolation="lower")),
    ).reset_index()  # fmt: skip
    found["site"] = found["site"].astype(object).where(found["site"].notna(), None)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, rows: pd.DataFrame) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    (folder / "data" / "in").mkdir(parents=True)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    for number in range(4):
        pq.write_table(table.slice(number * 10_000, 10_000), folder / "data" / "in" / f"{number}.parquet")
    return folder


@pytest.fixture
def compare(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_here: Compare) -> Compare:
    """``skewless compare`` of a spec with some aggregates; a run of these is made once and gone on with."""
    monkeypatch.chdir(home)

    def told(other: str, *words: str, names: tuple[str, ...] = ("n", "total", "mean", "latest"), **fields: Any) -> Told:
        aggregates = {name: AGGREGATES[name] for name in names}
        spec = {"name": "ours", "input": {"path": "in"}, "key": ["site", "page"], "aggregates": aggregates,
                "output": {"path": "out"}, **fields}  # fmt: skip
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
        run = home / ("run " + "-".join([*names, *map(str, fields)]))
        return command_here(
            "compare", str(tmp_path / "spec.yaml"), "--with", other, "--run-dir", str(run), "--date", DAY, *words
        )

    return told


def written(folder: Path, frame: pd.DataFrame) -> str:
    """The result of another job, and what it is called on the command line."""
    (folder / DAY).mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / DAY / "theirs.parquet")
    return str(folder / "{date}" / "theirs.parquet")


def seeded(theirs: Any) -> pd.DataFrame:
    frame = theirs.drop(columns=["visitors", "middle"]).copy()
    frame.loc[3, "total"] += 1
    frame.loc[5, "mean"] *= 1 + 1e-6
    frame.loc[6, "mean"] = float("inf")
    frame.loc[7, "latest"] = dt.date(2020, 1, 1)
    more = frame.iloc[[11]].assign(page="/new")
    return pd.concat([frame.drop(index=9), more, frame.iloc[[13]]], ignore_index=True)


def test_each_seeded_difference_is_found_and_nothing_else(
    tmp_path: Path, theirs: pd.DataFrame, compare: Compare
) -> None:
    other = written(tmp_path, seeded(theirs))
    done = compare(other, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert (report["keys"], report["differ"]) == (len(theirs) + 1, 7)
    assert (report["only_here"], report["only_there"], report["twice_there"]) == (1, 1, 1)
    assert report["columns"] == {"n": 0, "total": 1, "mean": 2, "latest": 1}
    keys = {one["key"]["page"].strip("'"): one for one in report["examples"]}
    pages = theirs["page"]
    assert set(keys) == {pages[3], pages[5], pages[6], pages[7], pages[9], "/new", pages[13]}
    total = int(theirs["total"][3])
    assert keys[pages[3]]["columns"] == {"total": {"here": str(total), "there": str(total + 1)}}
    text = compare(other).stdout
    assert text.startswith(f"{len(theirs) + 1:,} keys, 7 differ\n1 key not in the other result\n")
    assert f"total {total} here, {total + 1} there" in text
    floats = written(tmp_path, seeded(theirs).astype({"total": "float64"}))
    lenient = json.loads(compare(floats, "--json", "--tolerance", "0.999999").stdout)
    assert (lenient["differ"], lenient["columns"]["mean"]) == (6, 1)
    assert lenient["columns"]["total"] == 1, "a whole number is exact, also beside a float"


@pytest.mark.skipif(any(map(versions.lacking_aggregate, versions.AGGREGATES)), reason="this Spark lacks a sketch")
def test_sketches_are_compared_within_both_errors(tmp_path: Path, theirs: Any, compare: Compare) -> None:
    """Exact counts are within them; a count that is off by more is found, and only that one."""
    names, heavy = ("visitors", "middle"), int(theirs["n"].idxmax())
    frame = theirs[["site", "page", *names]].astype({"middle": "int64"})
    right = compare(written(tmp_path, frame), "--json", names=names)
    report = json.loads(right.stdout)
    assert (right.returncode, report["differ"], report["within_error"]) == (0, 0, list(names))
    frame.loc[heavy, "visitors"] = int(frame.loc[heavy, "visitors"] * 1.5)
    frame.loc[heavy, "middle"] = 900
    wrong = json.loads(compare(written(tmp_path, frame), "--json", names=names).stdout)
    assert (wrong["differ"], wrong["columns"]) == (1, {"visitors": 1, "middle": 1})
    assert wrong["examples"][0]["key"]["page"] == repr(theirs["page"][heavy])


@pytest.mark.long
def test_published_sketches_are_compared_by_what_they_hold_and_shown_by_their_estimates(
    home: Path, compare: Compare
) -> None:
    sketches = {
        "visitors": {"function": "approx_count_distinct", "column": "visitor", "publish": "state"},
        "amounts": {"function": "approx_percentile", "column": "amount", "publish": "state"},
        "top": {"function": "approx_top_k", "column": "visitor", "publish": "state"},
    }

    def told(visitor: str, more: str = "") -> Told:
        aggregates = (
            f"hll_sketch_agg({visitor}, 12) AS visitors, kll_sketch_agg_bigint(amount, 200) AS amounts, "
            "approx_top_k_accumulate(visitor, 10000).sketch AS s"
        )
        query = f"SELECT site, page, {aggregates} FROM parquet.`{home}/data/in` GROUP BY site, page {more}"
        query = f"SELECT site, page, visitors, amounts, substring(s, 1, octet_length(s) - 8) AS top FROM ({query})"
        return compare(query, "--json", names=(), aggregates=sketches)

    right = told("visitor")
    report = json.loads(right.stdout)
    assert (right.returncode, report["differ"], report["within_error"]) == (0, 0, [*sketches])
    one_less = json.loads(told("visitor", "HAVING page <> '/page/1' OR site <> 'a'").stdout)
    assert (one_less["only_here"], one_less["examples"][0]["state"]) == (2, "only here")
    wrong = json.loads(told("IF(site = 'a' AND page = '/page/1', visitor % 100, visitor)").stdout)
    assert (wrong["differ"], wrong["columns"]) == (1, {"visitors": 1, "amounts": 0, "top": 0})
    shown = wrong["examples"][0]["columns"]["visitors"]
    assert shown["there"] == "'a sketch of about 100 values'"
    assert re.fullmatch(r"'a sketch of about \d{4} values'", shown["here"])


def test_columns_and_types_that_differ_are_told(tmp_path: Path, theirs: pd.DataFrame, compare: Compare) -> None:
    frame = theirs.drop(columns=["visitors", "middle", "total"])
    frame["n"] = frame["n"].astype("int16")
    frame["latest"] = frame["latest"].astype(str)
    frame["loaded_at"] = "now"
    report = json.loads((done := compare(written(tmp_path, frame), "--json")).stdout)
    assert (done.returncode, report["differ"]) == (1, 0)
    assert (report["lacking"], report["more"]) == (["total"], ["loaded_at"])
    assert report["types"] == {"latest": ["date", "string"]}
    assert report["columns"] == {"n": 0, "mean": 0}
    text = compare(written(tmp_path, frame)).stdout
    assert "latest: string in the other result, date here, which cannot be compared" in text
    assert ", 0 differ, 2 columns lacking or of another type" in text


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ("nowhere.parquet", "expected an existing file, folder or glob, but got no such path"),
        ("SELECT 1 AS n", "--with: expected the key column 'site', but got n; rename it in a query."),
        ("SELECT 1 AS site, 'x' AS page", "--with, key column 'site': expected type string, but got int; cast it in a"),
        ("SELECT nothing", "--with, the query: expected one that Spark can run, but got"),
        ("parquet:../up", "--with, field input.path: expected a path without a step up ('..'), but got '../up'."),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_sentence(compare: Compare, other: str, sentence: str) -> None:
    done = compare(other)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr, done.stderr


def test_nothing_is_written_by_a_query(tmp_path: Path, compare: Compare) -> None:
    done = compare(f"FROM (SELECT 1 AS n) INSERT OVERWRITE DIRECTORY '{tmp_path}/there' USING parquet SELECT n")
    assert done.returncode == 2
    assert "--with, the query: expected one that Spark can run, but got" in done.stderr
    assert not (tmp_path / "there").exists()


def test_nothing_is_published_and_no_run_is_left(
    home: Path, tmp_path: Path, theirs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, command_here: Compare
) -> None:
    monkeypatch.chdir(home)
    spec: Mapping[str, Any] = {"name": "ours", "input": {"path": "in"}, "key": ["site", "page"],
                               "aggregates": {"n": "count"}, "output": {"path": "out"}}  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    other = written(tmp_path, theirs[["site", "page", "n"]])
    done = command_here("compare", str(tmp_path / "spec.yaml"), "--with", other, "--date", DAY)
    assert (done.returncode, done.stdout) == (0, f"{len(theirs):,} keys, 0 differ\nn: 0 keys differ\n")
    assert not (home / "data" / "out").exists()
    assert list((home / "data" / "comparisons").iterdir()) == []


NESTED = {
    "number": "double",
    "listed": "array<struct<x: double, named: string>>",
    "mapped": "map<string, array<float>>",
    "within": "struct<at: date, of: map<int, struct<x: double>>>",
}
SAME = {
    "number": [(1.0, 1.0 + 1e-12), (math.nan, math.nan), (0.0, -0.0), (None, None), (math.inf, math.inf)],
    "listed": [([(1.0, "a"), (None, None)], [(1.0 + 1e-12, "a"), (None, None)]), ([], []), (None, None)],
    "mapped": [({"a": [1.0], "b": None}, {"b": None, "a": [1.0]}), ({}, {}), (None, None)],
    "within": [((None, {1: (1.0,), 2: None}), (None, {2: None, 1: (1.0 + 1e-12,)})), (None, None)],
}
DIFFERENT = {
    "number": [(1.0, 1.1), (math.nan, 1.0), (None, 0.0), (math.inf, -math.inf), (math.inf, 1e308)],
    "listed": [([(1.0, "a")], [(1.0, "b")]), ([], None), ([(1.0, None)], [(1.0, "")]), ([(1.0, "a")], [])],
    "mapped": [({"a": [1.0]}, {"b": [1.0]}), ({}, None), ({"a": [1.0]}, {"a": [1.0, 1.0]}), ({"a": None}, {"a": []})],
    "within": [((None, {1: (1.0,)}), (None, {1: (2.0,)})), ((None, {}), None), ((None, None), (None, {}))],
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("cases", [SAME, DIFFERENT], ids=["same", "different"])
def test_values_are_compared_as_deep_as_they_go(spark: SparkSession, cases: dict[str, list[Any]], name: str) -> None:
    rows = [(number, *pair) for number, pair in enumerate(cases[name])]
    frame = spark.createDataFrame(rows, f"at int, here {NESTED[name]}, there {NESTED[name]}")
    kind = frame.schema["here"].dataType
    alike = comparing._alike(F.col("here"), F.col("there"), kind, kind, 1e-9)
    found = [row["alike"] for row in frame.select("at", alike.alias("alike")).orderBy("at").collect()]
    assert found == [cases is SAME] * len(rows)


def test_a_decimal_beside_a_float_is_within_the_tolerance_and_beside_a_decimal_exact(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 1.25BD AS here, 1.2500000000001D AS near, 1.2500000000001BD AS exact, 1 AS one, 1.0D AS float"
    )
    types = {field.name: field.dataType for field in frame.schema.fields}

    def alike(here: str, there: str, tolerance: float) -> bool:
        column = comparing._alike(F.col(here), F.col(there), types[here], types[there], tolerance)
        return bool(frame.select(column).collect()[0][0])

    assert alike("here", "near", 1e-9)
    assert not alike("here", "near", 1e-15)
    assert not alike("here", "exact", 0.5)
    assert alike("one", "float", 0.0)
