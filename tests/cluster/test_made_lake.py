"""The object store of the cluster and the database of its catalog, without the rest: made once, and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from deploy import PROJECT
from skewless.documents.steps import Failure
from skewless.run.directory import RunDirectory
from skewless_airflow.runners.process_session import begin, end
from skewless_lake.catalogs import open_catalog
from tests.cluster import running
from tests.cluster.running import Home
from tests.listening import LOOPBACK, listening
from tests.object_stores import as_client

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

_SERVICES = ("postgres", "object-store")


class Lake(NamedTuple):
    environment: dict[str, str]
    addresses: set[str]


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    home = Home(Path(tempfile.mkdtemp(prefix="skewless-lake-", dir="/var/tmp")))
    home.folder.chmod(0o755)
    _, topology = running.describe(home, running.variables(home))
    sessions = []
    try:
        for name in _SERVICES:
            program = running.on_this_machine(topology.programs[name])
            (home.folder / "objects").mkdir(exist_ok=True)
            sessions.append(begin(program.command, program.environment, home.folder, home.folder / f"{name}.log"))
            _await_health(program.health, program.environment)
        environment = dict(topology.programs["airflow-init"].environment)
        addresses = {one for session in sessions for one in listening(session.processes())}
        yield Lake(environment, addresses)
    finally:
        end(sessions, 10)
        shutil.rmtree(home.folder, ignore_errors=True)


def _await_health(check: Sequence[str], environment: Mapping[str, str]) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(check, env=environment, capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _make(environment: dict[str, str]) -> None:
    command = [sys.executable, str(PROJECT / "deploy" / "docker" / "make_lake.py")]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "bucket lake and database lake are there\n"


def _address(environment: dict[str, str]) -> str:
    return environment["PYICEBERG_CATALOG__LAKE__URI"].replace("+psycopg", "")


def test_a_bucket_and_a_catalog_are_made_and_what_is_in_them_stays(lake: Lake, tmp_path: Path) -> None:
    _make(lake.environment)
    clients = {name: value for name, value in lake.environment.items() if name.startswith(("AWS_", "PYICEBERG_"))}
    with as_client(clients):
        catalog = open_catalog("lake", str(tmp_path))
        catalog.create_namespace_if_not_exists("marts")
        run = RunDirectory("s3://lake/runs/job/one")
        assert run.write_once("failures/a.json", Failure(exit_code=1, sentence="It failed."))
        _make(lake.environment)
        assert catalog.list_namespaces() == [("marts",)]
        catalog.close()  # and its connections
        assert not run.write_once("failures/a.json", Failure(exit_code=1, sentence="It failed again."))


def test_the_user_of_the_catalog_cannot_read_what_airflow_keeps(lake: Lake) -> None:
    _make(lake.environment)
    asked = "SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user"
    with psycopg.connect(_address(lake.environment)) as connection:
        assert connection.execute(asked).fetchone() == ("lake", False)
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(_address(lake.environment).removesuffix("/lake") + "/airflow")


def test_a_new_password_in_the_environment_counts_from_the_next_start(lake: Lake) -> None:
    _make(lake.environment)
    before = urlsplit(_address(lake.environment)).password or ""
    fresh = {name: value.replace(before, "another-one") for name, value in lake.environment.items()}
    fresh["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = lake.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    _make(fresh)
    psycopg.connect(_address(fresh)).close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(_address(lake.environment))
    _make(lake.environment)


def test_both_listen_on_the_loopback_only(lake: Lake) -> None:
    assert len(lake.addresses) == 2
    assert not [address for address in lake.addresses if not address.startswith(LOOPBACK)]
