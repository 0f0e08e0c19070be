"""Other readers of the tables: Iceberg's Java core, and three libraries that read while days are published."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lake.outputs import KINDS
from tests.lake.readers import read_while_published
from tests.lake.test_outputs import OUTPUTS, iceberg, run, spec


def test_icebergs_java_core_reads_the_same_rows_nested_fields_too(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, spec(tmp_path, OUTPUTS["iceberg"]), "run")
    table = iceberg(tmp_path)
    found = subprocess.run(
        [sys.executable, "-m", "tests.lake.java_reader", table.metadata_location],
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    of_java = {row["page"]: row for row in map(json.loads, found.stdout.splitlines())}
    wanted = {row["page"]: row for row in table.scan().to_arrow().to_pylist()}
    assert of_java.keys() == wanted.keys()
    for page, row in wanted.items():
        seen = of_java[page]
        assert (int(seen["rows"]), seen["cents"], seen["day"]) == (row["rows"], str(row["cents"]), str(row["day"]))
        assert [int(one) for one in seen["all"].strip("[]").split(", ")] == row["all"]
        # A struct in a list: without ids of nested fields, Java would see nulls.
        assert all(item["item"] in seen["top"] and str(item["count"]) in seen["top"] for item in row["top"])
        assert seen["last"].startswith(row["last"].strftime("%Y-%m-%dT%H:%M"))
        assert seen["last"].endswith("Z")
        assert not seen["local"].endswith("Z")


@pytest.mark.parametrize(
    ("kind", "reads"),
    [("iceberg", 30), ("delta", 30), *(pytest.param(kind, 500, marks=pytest.mark.long) for kind in KINDS)],
)
def test_readers_see_one_version_whole_while_a_day_is_published_again_and_again(
    tmp_path: Path, kind: str, reads: int
) -> None:
    """Each of two libraries reads so often; ``python -m tests.lake --reads 2500`` is the long form."""
    found = read_while_published(tmp_path, kind, reads)
    assert found.torn == 0
    assert found.versions > 1, "nothing was published while it was read"
