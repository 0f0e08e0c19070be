"""What ``test_dag`` says of where a DAG's steps run, with its steps as clients of a Spark Connect server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.standalone import free_port
from skewless_airflow.connect import server as connect_server
from skewless_airflow.connect.server import ConnectServer
from tests import airflow_setting
from tests.system import test_dag
from tests.system.test_dag import (  # these tests and their fixtures, once more in this module
    Night,
    disturbed,
    first_night,
    root,
    run_dag,
    test_a_killed_driver_is_tried_again_and_the_result_is_the_same,
    test_a_run_ends_well_and_skips_only_what_is_not_needed,
    test_failed_quality_fails_the_task_and_publishes_nothing,
    test_the_ledger_balances,
    test_the_published_counts_are_those_of_a_counter,
)

__all__ = [
    "disturbed",
    "first_night",
    "root",
    "test_a_killed_driver_is_tried_again_and_the_result_is_the_same",
    "test_a_run_ends_well_and_skips_only_what_is_not_needed",
    "test_failed_quality_fails_the_task_and_publishes_nothing",
    "test_the_ledger_balances",
    "test_the_published_counts_are_those_of_a_counter",
]


pytestmark = [pytest.mark.long, *test_dag.pytestmark]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[ConnectServer]:
    """The local server as Airflow's home describes it: not running, for it is the first step that starts it."""
    folder = airflow_setting.HOME / connect_server.FOLDER
    described = connect_server.describe(folder, free_port(), free_port(), "1g")
    connection = {
        "conn_type": "spark_connect", "host": "localhost", "port": described.port, "password": described.token,
        "extra": {connect_server.LOCAL: True, connect_server.UI: described.ui},
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        yield described
    assert connect_server.stop(folder), "the first step has started it"


@pytest.fixture(scope="module")
def driver() -> str:
    """What the driver of a run is: a Python."""
    return "python"


def test_nothing_that_is_said_or_written_has_the_token_of_the_server(
    server: ConnectServer, first_night: Night, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    again = run_dag(first_night.dag, only={"merge"})
    assert again.states["merge"] == "success"
    said = "".join(capfd.readouterr())
    assert "on Spark Connect" in said
    assert server.token not in said
    written = [*airflow_setting.HOME.rglob("*.log"), *root.rglob("*.json")]
    assert written
    assert not [path for path in written if path.is_file() and server.token in path.read_text(errors="replace")]
