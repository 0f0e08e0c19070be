"""TPC-H, TPC-DS and JCC-H, as DuckDB makes them: which queries are in the class, and what their results are.

Results are held against plain Spark and DuckDB at the scale of ``SKEWLESS_SCALE``, which takes minutes at 0.01.
"""

import os
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.errors import SkewlessError
from tests.query.corpora import counted, generate, texts
from tests.query.oracle import asked, in_duckdb, in_spark, loosely, plain_spark, spec_of
from tests.query.page import decided, shares
from tests.query.rows import DAYS, differences, write_parts

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
SCALE = os.environ.get("SKEWLESS_SCALE", "")
NAMES = {"tpch": "TPC-H", "tpcds": "TPC-DS", "jcch": "TPC-H"}


@pytest.fixture(scope="session", params=["tpch", "jcch", "tpcds"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return request.param, generate(tmp_path_factory.mktemp("corpora"), request.param, SCALE or "0.01")


def test_queries_are_understood_as_the_page_says(corpus: tuple[str, Path]) -> None:
    name, folder = corpus
    paths = {path.stem: path for path in folder.glob("*.parquet")}
    expected, told = decided(NAMES[name]), dict[int, str]()
    for number, text in texts(folder, name).items():
        if counted(text, name):
            try:
                spec_of(text, paths)
                told[number] = ""
            except SkewlessError as err:
                why = expected.get(number) or "no reason"
                told[number] = why if why in str(err) else str(err)
    assert told == expected
    assert shares()[NAMES[name]] == (sum(not why for why in expected.values()), len(expected))


@pytest.mark.skipif(not SCALE, reason="SKEWLESS_SCALE asks for it")
def test_results_are_what_plain_spark_and_duckdb_make_of_them(
    spark: SparkSession, corpus: tuple[str, Path], tmp_path: Path
) -> None:
    name, folder = corpus
    paths, told = {path.stem: path for path in folder.glob("*.parquet")}, list[str]()
    for number, text in texts(folder, name).items():
        if not decided(NAMES[name]).get(number, "not counted"):
            told += [f"{name} {number}: {fault}" for fault in _faults(spark, text, paths, tmp_path / str(number))]
    assert not told, "\n".join(told)


def _faults(spark: SparkSession, text: str, paths: dict[str, Path], place: Path) -> list[str]:
    """What is wrong with the results of a query, without a window and with one."""
    spec = spec_of(text, paths)
    (source,) = spec.tables.keys() - spec.lookups.keys()
    try:
        ours = asked(spark, spec, place)
    except SkewlessError as err:
        return [str(err)]
    with plain_spark(spark, paths):
        told = [f"beside Spark: {one}" for one in differences(ours, in_spark(spark, text), {})]
    # DuckDB divides decimals as floats, and Spark rounds to six digits.
    divided = [at for at, value in enumerate(ours[0].values()) if isinstance(value, Decimal)] if ours else []
    near = dict.fromkeys(map(str, divided), 1e-5)
    told += [f"beside DuckDB: {one}" for one in differences(loosely(ours), in_duckdb(text, paths), near)]
    if any(call.function == "spark" for call in spec.aggregates.values()):
        return told
    if not (parts := paths[source].with_suffix("")).exists():
        write_parts(pq.read_table(paths[source]), parts)
    windowed = spec_of(text, {**paths, source: parts}, window=len(DAYS))
    return told + [f"windowed: {one}" for one in differences(asked(spark, windowed, place / "windowed"), ours, {})]
