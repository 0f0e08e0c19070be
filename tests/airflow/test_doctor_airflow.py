"""What ``skewless doctor`` says of an Airflow that is here, and the DAG of a first spec in it."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.dag_processing.dagbag import DagBag

from skewless_cli.doctor import Finding, check_airflow
from tests import airflow_setting

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

SPEC = """
name: shared
input: {path: clicks}
key: page
aggregates: {n: count}
sharing: {connections: [spark_north, spark_east, spark_west]}
output: {path: shared}
"""


def found(catalog: Path | str = "") -> dict[str, Finding]:
    return {one.subject: one for one in check_airflow(str(catalog))}


def test_a_database_a_plugin_and_the_connections_of_all_specs_are_good_or_have_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared.yaml").write_text(SPEC)
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_NORTH", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_EAST", json.dumps({"conn_type": "spark_connect", "host": "sc://east"}))
    lines = found(tmp_path)
    assert {subject: one.state for subject, one in lines.items()} == {
        "Airflow": "good", "Airflow's plugin skewless": "good", "Airflow's connection spark_default": "wrong",
        "Airflow's connection spark_north": "good", "Airflow's connection spark_east": "wrong",
        "Airflow's connection spark_west": "wrong",
    }  # fmt: skip
    for name, host in (("west", "spark://HOST:7077"), ("default", "'local[*]'")):
        add = f"airflow connections add spark_{name} --conn-type spark --conn-host {host}"
        assert lines[f"Airflow's connection spark_{name}"].remedy == add
    assert "'spark_connect'" in lines["Airflow's connection spark_east"].fact
    assert lines["Airflow's connection spark_north"].fact == "Spark at local[2]"


def test_a_database_without_tables_is_to_be_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path / 'empty.db'}")
    (line,) = found().values()
    assert (line.subject, line.state, line.remedy) == ("Airflow", "wrong", "airflow db migrate")


def test_the_dag_of_a_first_spec_has_no_import_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"page": ["/"] * 90 + ["/a"] * 10}), tmp_path / "clicks.parquet")
    begin = [sys.executable, "-m", "skewless_cli.main", "init", str(tmp_path / "clicks.parquet"), "--into"]
    subprocess.run([*begin, str(tmp_path / "dags")], check=True, capture_output=True)
    bag = DagBag(tmp_path / "dags")
    assert (list(bag.dags), bag.import_errors) == (["clicks_by_page"], {})
