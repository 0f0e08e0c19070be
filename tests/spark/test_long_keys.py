"""Keys of many megabytes: the right result, or one sentence that says what is too long."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.spec.spec import JobSpec
from skewless_spark.aggregates.keys import LONGEST_KEY
from skewless_spark.session.spark_errors import exit_code_of, sentence_for
from tests.spark.scenario import result_of, run_job, spec_of
from tests.tiers import mostly_long

_MIB = 1 << 20
ENGINES = ["combine", "staged"]
AGGREGATES: dict[str, Any] = {"n": "count", "total": {"function": "sum", "column": "value"}}
PYTHON: dict[str, Any] = {"seen": {"function": "value_counts", "column": "colour"}}


def scenario(folder: Path, length: int, engine: str, kind: str = "string", **fields: Any) -> JobSpec:
    """A job over three rows of a long key among short ones."""
    long = "x" * length
    keys: list[Any] = [*("ab" * 20), long, *("ab" * 20), long, long, None]
    values = [key.encode() if key else key for key in keys] if kind == "binary" else keys
    columns = {
        "key": pa.array(values, pa.type_for_alias(kind)),
        "value": range(len(keys)),
        "colour": ["red"] * len(keys),
    }
    table = pa.table(columns)
    path = folder / "input"
    path.mkdir()
    for number in range(2):
        half = len(keys) // 2
        pq.write_table(table.slice(number * half, half), path / f"{number}.parquet", row_group_size=30)
    return spec_of(path, fields.pop("key", "key"), fields.pop("aggregates", AGGREGATES), engine=engine, **fields)


def said(spark: SparkSession, spec: JobSpec, folder: Path) -> str:
    with pytest.raises(Exception, match="key") as raised:
        run_job(spark, spec, folder / "run")
    assert exit_code_of(raised.value) == 2
    assert not (folder / "published").exists()
    return sentence_for(raised.value)


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_of_some_megabytes_is_a_key(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    spec = scenario(tmp_path, 4 * _MIB, engine, routing={"reducers": 2, "waves": [1, 2]})
    run, _, reports = run_job(spark, spec, tmp_path / "run")
    found = {row["key"]: row["n"] for row in result_of(run).to_pylist()}
    assert {len(key or ""): n for key, n in found.items() if key not in {"a", "b"}} == {4 * _MIB: 3, 0: 1}
    assert (found["a"], found["b"]) == (40, 40)
    assert all(len(key) < 2_000 for report in reports for key in report.histogram.head)


#: Of a hundred megabytes and of one byte too many, by each engine, as text and as bytes, among several, in Python.
TOO_LONG: dict[str, tuple[int, str, dict[str, Any]]] = {
    "combine": (100 * _MIB, "combine", {"kind": "binary"}),
    "one byte": (LONGEST_KEY + 1, "combine", {"key": ["colour", "key"]}),
    "python": (100 * _MIB, "staged", {"aggregates": PYTHON}),
}


@pytest.mark.parametrize("name", mostly_long(TOO_LONG, "combine"))
def test_a_key_that_is_too_long_is_refused_in_one_sentence(spark: SparkSession, tmp_path: Path, name: str) -> None:
    length, engine, fields = TOO_LONG[name]
    assert said(spark, scenario(tmp_path, length, engine, **fields), tmp_path) == (
        f"key column 'key': expected values of at most 67,108,864 bytes, but got one of {length:,} bytes; group by a "
        "hash of it, or by a part."
    )
