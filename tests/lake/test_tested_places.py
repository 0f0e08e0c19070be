"""What ``skewless check`` says of stores and catalogs: the tables of the docs, for one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from skewless.spec.reading import parse_spec
from skewless_cli.main import app
from skewless_lake.catalogs import which_are_tested

LAKE = "PYICEBERG_CATALOG__LAKE__"
CATALOGS: list[tuple[dict[str, str], str]] = [
    ({"URI": "postgresql+psycopg://u@h/lake"}, "Tested by Skewless: catalog 'lake' (postgresql)."),
    ({"TYPE": "sql", "URI": "sqlite:////x.db"}, "Tested by Skewless: catalog 'lake' (sqlite)."),
    ({"TYPE": "sql", "URI": "mysql://h/lake"}, "Not tested by Skewless: catalog 'lake' (mysql)."),
    ({"URI": "https://h/lake"}, "Tested by Skewless: catalog 'lake' (rest, Iceberg's own Java code)."),
    ({"URI": "thrift://h:9083"}, "Tested by Skewless: catalog 'lake' (hive)."),
    ({"TYPE": "glue"}, "Tested by Skewless: catalog 'lake' (glue, moto's, one writer at a time)."),
    ({"TYPE": "dynamodb"}, "Not tested by Skewless: catalog 'lake' (dynamodb)."),
    (
        {"URI": "postgresql://h/lake", "WAREHOUSE": "gs://lake/warehouse"},
        "Tested by Skewless: catalog 'lake' (postgresql). Not tested by Skewless: gs://.",
    ),
]


def told(root: str = "data", **fields: Any) -> str:
    raw = {
        "name": "n", "input": {"path": "in"}, "key": "k", "aggregates": {"n": "count"}, "output": {"path": "out"},
        **fields,
    }  # fmt: skip
    return which_are_tested(parse_spec(yaml.safe_dump(raw)), root)


@pytest.mark.parametrize(
    ("given", "sentence"), CATALOGS, ids=lambda one: " ".join(one) if isinstance(one, dict) else ""
)
def test_a_catalog_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], sentence: str) -> None:
    for name, value in given.items():
        monkeypatch.setenv(LAKE + name, value)
    assert told(output={"format": "iceberg", "path": "lake.marts.clicks"}) == sentence


def test_stores_are_told_by_their_scheme() -> None:
    assert told() == ""
    assert told("file:///data") == ""
    assert (
        told(output={"format": "iceberg", "path": "local.marts.clicks"})
        == "Tested by Skewless: catalog 'local' (sqlite)."
    )
    assert told("s3a://lake/data") == "Tested by Skewless: s3a:// (S3 servers, not Amazon's own)."
    assert (
        told(output={"format": "delta", "path": "abfss://c@a.dfs.core.windows.net/t"})
        == "Not tested by Skewless: abfss://."
    )
    both = told("s3://lake", input={"path": "gs://lake/{date}"}, window={"length": 2, "states": "az://lake/states"})
    assert both == "Tested by Skewless: s3:// (S3 servers, not Amazon's own). Not tested by Skewless: az://, gs://."


def test_a_check_says_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": ["a", "b"]}), tmp_path / "in" / "a.parquet")
    spec = tmp_path / "n.yaml"
    spec.write_text(
        f"name: n\ninput: {{path: {tmp_path}/in}}\nkey: k\naggregates: {{n: count}}\n"
        "output: {format: iceberg, path: local.marts.clicks}\n"
    )
    done = CliRunner().invoke(app, ["check", str(spec), "--date", "2026-11-20", "--root", str(tmp_path)])
    assert done.exit_code == 0, done.output
    said = "So few rows take DuckDB or polars seconds in one process. Tested by Skewless: catalog 'local' (sqlite)."
    assert " ".join(done.output.split()).endswith(f"waves of 2 rows. {said}")
