"""What a connection of the type ``spark_connect`` says, and what becomes of the Python that runs a step; no Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.local import standalone
from skewless.errors import SpecError
from skewless_airflow.connect import process_session as session
from skewless_airflow.connect.server import ConnectServer, ConnectServerError, in_use, stop
from skewless_airflow.connect.step import ConnectAddress, ConnectedStep, connect_address
from skewless_airflow.connect.worker_code import code_stamp, worker_folders
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from tests import airflow_setting

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

TOKEN = "a-token-that-nobody-may-read;=/"

_STUBBORN_UNTIL_ASKED = """
import os, signal, sys, time
def end(*_):
    os.write(1, b"interrupted\\n")
    os._exit(143)
signal.signal(signal.SIGTERM, end)
print("begun", flush=True)
time.sleep(600)
"""

#: What it says first is the address that a link is made of.
_TALKS = """
import time
print("skewless: spark application app-1 at http://spark.example:4040", flush=True)
time.sleep(600)
"""

_LISTENS = """
import socket, time
with socket.create_server(("localhost", 0)) as here:
    print(here.getsockname()[1])
    time.sleep(60)
"""


def connection(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    given = {"conn_type": "spark_connect", "host": "spark.example", "port": 15002, "password": TOKEN, **more}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(given))


def test_a_connection_for_spark_submit_names_no_server() -> None:
    assert connect_address("spark_default") is None
    assert connect_address("there_is_no_such_connection") is None


def test_a_server_s_address_has_the_token_and_no_text_of_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, login="nightly", extra={"use_ssl": True, "spark_ui": "http://spark.example:4040"})
    address = connect_address("spark_default")
    assert address is not None
    assert address.url.startswith("sc://spark.example:15002/;user_id=nightly;token=a-token-that-nobody-may-read%3B%3D/")
    assert address.url.endswith(";use_ssl=True")
    assert "a-token" not in repr(address) + str(address)
    assert address.environment()["SPARK_REMOTE"] == address.url
    assert address.environment()["SKEWLESS_SPARK_UI"] == "http://spark.example:4040"
    assert (address.ships, address.local, address.sized_conn_id) == (False, False, "")


def test_what_a_connection_says_of_its_server_reaches_the_step_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_CONNECT_MODE", "PYSPARK_GATEWAY_PORT", "OF_THE_USER"):
        monkeypatch.setenv(name, "set")
    monkeypatch.setenv("SPARK_REMOTE", "sc://another")
    connection(monkeypatch, extra={"ship_code": True, "sized_conn_id": "spark_submitted", "local_server": True})
    address = connect_address("spark_default")
    assert address is not None
    assert (address.ships, address.local, address.sized_conn_id, address.ui) == (True, True, "spark_submitted", "")
    found = address.environment()
    assert (found["SPARK_REMOTE"], found["SKEWLESS_SHIP_CODE"], found["OF_THE_USER"]) == (address.url, "1", "set")
    foreign = {name for name in found if name.startswith(("SPARK_CONNECT_", "PYSPARK_GATEWAY"))}
    assert foreign == set()
    connection(monkeypatch)
    alone = connect_address("spark_default")
    assert alone is not None
    assert alone.environment()["SKEWLESS_SHIP_CODE"] == "0"


def test_a_session_is_its_first_process_and_no_other_that_has_its_number(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('begun', flush=True); time.sleep(60)"
    )
    begun = session.begin([sys.executable, "-c", script], dict(os.environ), tmp_path, tmp_path / "said")
    try:
        give_up = time.monotonic() + 30
        while len(begun.processes()) < 2 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert begun.leads()
        assert len(begun.processes()) == 2
        reused = session.Session(begun.pid, begun.born - 1)  # its number was given to another process since
        assert (reused.leads(), reused.processes()) == (False, [])
        os.kill(begun.pid, signal.SIGKILL)
        os.waitpid(begun.pid, 0)
        assert (begun.leads(), len(begun.processes())) == (False, 1)
    finally:
        session.end([begun], 5)
    assert begun.processes() == []


def test_a_step_with_a_size_of_its_own_is_submitted_by_the_connection_for_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection(monkeypatch, extra={"sized_conn_id": "spark_submitted"})
    operator = SkewlessSparkOperator(task_id="sized", entry="run_stage.py")
    assert operator._server({}) is not None
    assert operator._conn_id == "spark_default"
    assert operator._server({"spark.driver.memory": "2g"}) is None
    assert operator._conn_id == "spark_submitted"


def test_without_such_a_connection_the_server_s_size_counts_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connection(monkeypatch)
    operator = SkewlessSparkOperator(task_id="sized", entry="run_stage.py")
    assert operator._server({"spark.driver.memory": "2g"}) is not None
    assert "the size is the Spark Connect server's" in capsys.readouterr().out


def test_a_connection_that_would_start_the_driver_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, conn_type="spark", host="yarn", port=None, password=None, extra={"deploy-mode": "cluster"})
    operator = SkewlessSparkOperator(task_id="far", entry="run_stage.py")
    with pytest.raises(SpecError, match=r"spark_default: expected the deploy mode client, but got 'cluster'; use"):
        operator._server({})
    connection(monkeypatch, extra={"sized_conn_id": "spark_far"})
    far = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_FAR", json.dumps(far))
    with pytest.raises(SpecError, match=r"connection spark_far: expected the deploy mode client"):
        operator._server({"spark.driver.memory": "2g"})


def test_killing_the_task_asks_the_step_s_python_to_end(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(_STUBBORN_UNTIL_ASKED)
    operator = SkewlessSparkOperator(task_id="busy", entry="run_stage.py")
    step = operator._followed = ConnectedStep(script, [], {"PATH": str(Path(sys.executable).parent)})
    lines = step.lines()
    assert next(lines) == "begun"
    before = time.monotonic()
    operator.on_kill()
    assert list(lines) == ["interrupted"]
    assert step.exit_code() == 128 + signal.SIGTERM
    assert time.monotonic() - before < 10


def test_a_step_ends_with_its_task_when_its_log_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The entry names its application and would go on for minutes: the link that cannot be made ends the task.
    (tmp_path / "talks.py").write_text(_TALKS)
    monkeypatch.setattr("skewless_airflow.operators.spark_step.spark_entry", tmp_path.joinpath)
    operator = SkewlessSparkOperator(task_id="talks", entry="talks.py")
    operator.application_args = []
    untellable: Any = {}  # no task instance in it, so that the link to the application cannot be made
    with pytest.raises(KeyError):
        operator._connect(
            untellable, ConnectAddress("sc://spark.example", "", ships=False, sized_conn_id="", local=False)
        )
    assert operator._followed is not None
    assert operator._followed.exit_code() == -signal.SIGTERM


def test_a_server_s_port_is_believed_only_if_the_server_listens_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        idle = session.begin(
            [sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ), tmp_path, tmp_path / "idle"
        )
        try:
            assert idle.processes()
            assert not ConnectServer(port, 0, TOKEN, "1g", idle.pid, idle.born).answers()
        finally:
            session.end([idle], 5)
    listener = session.begin([sys.executable, "-u", "-c", _LISTENS], dict(os.environ), tmp_path, tmp_path / "port")
    try:
        said = tmp_path / "port"
        give_up = time.monotonic() + 30
        while not said.read_text().strip() and time.monotonic() < give_up:
            time.sleep(0.05)
        assert ConnectServer(int(said.read_text()), 0, TOKEN, "1g", listener.pid, listener.born).answers()
    finally:
        session.end([listener], 5)


def test_a_folder_without_a_server_has_nothing_to_stop_and_nothing_to_start(tmp_path: Path) -> None:
    assert stop(tmp_path) is False
    with pytest.raises(
        ConnectServerError, match=r"There is no local Spark Connect server in .*: start Airflow with make up"
    ):
        in_use(tmp_path).__enter__()


def test_a_way_for_steps_that_nobody_knows_is_refused() -> None:
    with pytest.raises(
        standalone.LocalAirflowError, match="SKEWLESS_STEPS is 'conect': it has to be submit or connect"
    ):
        standalone.steps({"SKEWLESS_STEPS": "conect"})


def test_code_that_was_changed_added_or_taken_away_has_another_stamp(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "old.py").write_text("")
    (tmp_path / "module.py").write_text("")
    places, seen = [tmp_path / "package", tmp_path / "module.py"], []
    seen.append(code_stamp(places))
    assert code_stamp(places) == seen[0]
    (tmp_path / "module.py").write_text("answer = 42")
    seen.append(code_stamp(places))
    (tmp_path / "package" / "new.py").write_text("")
    seen.append(code_stamp(places))
    (tmp_path / "package" / "old.py").unlink()
    seen.append(code_stamp(places))
    assert len(set(seen)) == 4


def test_the_code_of_workers_is_ours_and_that_of_whoever_registers_aggregates() -> None:
    assert {"skewless", "skewless_spark"} <= {folder.name for folder in worker_folders()}
