"""The services of docker-compose.yml with Celery and two workers, as on two machines.

Each worker has a disk of its own (``tests.spark_apart``), on which are its ``AIRFLOW_HOME``, its home, its temporary
files and the folder that it works in, and a host name of its own. The workers share the broker, PostgreSQL and the
bucket of the object store, as machines of a network do. Spark runs where the task does, on two cores.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import running
from tests.cluster.composition import IMAGE_CHECKOUT, IMAGE_STATE, Service
from tests.cluster.running import Cluster, Home
from tests.spark_apart import APART

WORKERS = ("worker-1", "worker-2")
BUCKET = "s3://lake"
#: Outside of the folder of temporary files, of which each worker has its own.
_SEEN_BY_ALL = "/var/tmp"
_KEPT = ("postgres", "object-store", "airflow-init", "api-server", "scheduler", "dag-processor")
_PROVIDERS = ("celery", "amazon")
_PING = """
import os, sys
from celery import Celery
sys.exit(not Celery(broker=os.environ["AIRFLOW__CELERY__BROKER_URL"]).control.ping([f"celery@{sys.argv[1]}"], 2))
"""


@contextlib.contextmanager
def _broker() -> Iterator[Path]:
    """The broker: a Redis server without TCP, so that it needs neither port nor password."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.fail("redis-server is missing: make setup-cluster-tests installs it, or apt-get install redis-server")
    # The path of a socket may be 107 bytes long; pytest's folders are longer.
    folder = Path(tempfile.mkdtemp(prefix="broker-", dir=_SEEN_BY_ALL))
    address = folder / "redis.sock"
    arguments = ["--port", "0", "--unixsocket", str(address), "--dir", str(folder), "--save", ""]
    log = folder / "redis.log"
    with log.open("wb") as out:
        process = subprocess.Popen([server, *arguments], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 30
        while not _accepts(address):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.01)
        yield address
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def _accepts(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(address)) == 0


@contextlib.contextmanager
def celery_cluster(home: Home, job: Mapping[str, Any]) -> Iterator[Cluster]:
    """The cluster, with one job in its catalog."""
    for name in _PROVIDERS:
        if importlib.util.find_spec(f"airflow.providers.{name}") is None:
            pytest.fail(f"apache-airflow-providers-{name} is missing: make setup-cluster-tests installs it")
    with (
        tempfile.TemporaryDirectory(prefix="skewless-catalog-", dir=_SEEN_BY_ALL) as catalog,
        _broker() as socket_path,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(catalog, f"{job['name']}.yaml").write_text(yaml.safe_dump(dict(job)))
        for name, value in {"SKEWLESS_CATALOG": catalog, "SKEWLESS_DEMO_CORPUS": "no"}.items():
            patch.setenv(name, value)

        def with_celery(services: dict[str, Service]) -> dict[str, Service]:
            return _with_celery(services, f"redis+socket://{socket_path}", home)

        try:
            yield running.start(home, lambda _: None, with_celery)
        finally:
            running.stop(home)


def _with_celery(services: Mapping[str, Service], broker: str, home: Home) -> dict[str, Service]:
    settings = {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CELERY__BROKER_URL": broker,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "SKEWLESS_ROOT": f"{BUCKET}/data",
        "SKEWLESS_DRIVER_MEMORY": "1g",
        # Each part has a folder of logs; what all of them read is in the bucket.
        "AIRFLOW__LOGGING__REMOTE_LOGGING": "True",
        "AIRFLOW__LOGGING__REMOTE_BASE_LOG_FOLDER": f"{BUCKET}/logs",
        "AIRFLOW__LOGGING__REMOTE_LOG_CONN_ID": "bucket",
        "AIRFLOW_CONN_BUCKET": json.dumps({"conn_type": "aws"}),
        # A worker that is gone is missed soon.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
        # The first call of a task may find the API server busy with another first call.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    changed = {}
    for name in _KEPT:
        one = services[name]
        own = {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": f"{IMAGE_STATE}/logs/{name}"}
        environment = {**one.environment, **({} if name == "postgres" else {**settings, **own})}
        after = {other: how for other, how in one.after.items() if other in _KEPT}
        changed[name] = replace(one, environment=environment, after=after)
    base = changed["dag-processor"]
    return {**changed, **{name: _worker(name, base, home) for name in WORKERS}}


def _worker(name: str, base: Service, home: Home) -> Service:
    """A worker, which sees nothing of the cluster's folder."""
    temporary = tempfile.gettempdir()
    disk = f"{temporary}/{name}"
    # A machine knows its own name; Java asks for its address.
    known = f"printf '127.0.0.1 {name} localhost\\n' >{disk}.hosts\n"
    hosts = f"{known}mount --bind {disk}.hosts /etc/hosts\nrm {disk}.hosts\n"
    script = f"hostname {name}\n{hosts}{APART}".replace('cd "$4"\n', 'mkdir -p "$HOME"\ncd "$4"\n')
    begun = ("unshare", "--mount", "--uts", "sh", "-c", script, "sh", str(home.folder), temporary)
    celery = ("airflow", "celery", "worker", "--concurrency", "1", "--celery-hostname", name, "--skip-serve-logs")
    own = {
        "HOME": f"{disk}/home",
        "AIRFLOW_HOME": f"{disk}/airflow",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": f"{disk}/logs",
        "TMPDIR": temporary,
        "SPARK_LOCAL_DIRS": f"{disk}/spark",
    }
    return replace(
        base,
        name=name,
        command=(*begun, IMAGE_CHECKOUT, f"{disk}/work", *celery),
        environment={**base.environment, **own},
        health=(sys.executable, "-c", _PING, name),
        after={"api-server": "service_healthy", "scheduler": "service_healthy"},
    )
