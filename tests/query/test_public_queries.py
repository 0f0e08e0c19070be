"""Queries in the shape of those that others have published: which are in the class, and what their results are."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.errors import SkewlessError
from tests.query.oracle import asked, in_spark, plain_spark, spec_of, tables_of
from tests.query.page import shares
from tests.query.rows import DAYS, differences, made_table, write_parts
from tests.tiers import mostly_long

TOLD: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("public.yaml").read_text())
QUERIES = {query["name"]: query for query in TOLD["queries"]}
IN = [name for name, query in QUERIES.items() if "out" not in query]


def _written(name: str, place: Path) -> dict[str, Path]:
    """The tables of a query, the first in parts as well."""
    paths = {}
    for table, told in tables_of(QUERIES[name]["sql"], TOLD["tables"]).items():
        paths[table] = place / f"{table}.parquet"
        pq.write_table(made_table(table, told), paths[table])
    return paths


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("name", mostly_long(IN, "user_acquisition", "flights_sets"))
def test_a_query_is_what_plain_spark_makes_of_it(
    spark: SparkSession, tmp_path: Path, name: str, windowed: bool
) -> None:
    text, paths = QUERIES[name]["sql"], _written(name, tmp_path)
    spec = spec_of(text, paths)
    if windowed:
        if any(call.function == "spark" for call in spec.aggregates.values()):
            pytest.skip("an aggregate that cannot be split has no states of parts")
        (source,) = paths.keys() - spec.lookups.keys()
        write_parts(pq.read_table(paths[source]), tmp_path / source)
        paths[source] = tmp_path / source
        spec = spec_of(text, paths, window=len(DAYS))
    near = {"users": 0.15} if "approx" in text else {}
    with plain_spark(spark, paths):
        assert differences(asked(spark, spec, tmp_path), in_spark(spark, text), near) == []


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - set(IN)))
def test_a_query_out_of_the_class_is_refused_by_the_part(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with pytest.raises(SkewlessError) as refused:
        asked(spark, spec_of(QUERIES[name]["sql"], _written(name, tmp_path)), tmp_path)
    assert QUERIES[name]["out"] in str(refused.value)


def test_the_page_says_how_many_are_in_the_class() -> None:
    assert shares()["public"] == (len(IN), len(QUERIES))
    assert Counter(query["like"] for query in QUERIES.values()).most_common(1)[0][1] <= len(QUERIES) / 5
