"""Airflow, if it is installed and set up here: its database, the plugin, and the connections of Spark steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skewless.spec.clusters import DEFAULT_CONNECTION
from skewless.spec.spec import JobSpec
from skewless_cli.doctor.catalog import specs_of
from skewless_cli.doctor.finding import Finding, Surroundings, installed, pip_install

_ANSWER_SECONDS = 120
#: What SQLite, PostgreSQL and MySQL say of a table that is not there.
_NO_TABLES = ("no such table", "does not exist", "doesn't exist")


def check_airflow(asked: Surroundings) -> Iterator[Finding]:
    """Its database, the plugin, and each connection that some spec of the catalog has its steps by."""
    release = installed("apache-airflow-core") or installed("apache-airflow")
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    if release is None or not home.is_dir():  # to import Airflow would make its home
        told = "not installed" if release is None else f"{release} is installed, but has no home {home}"
        mend = pip_install("skewless[airflow]") if release is None else "export AIRFLOW_HOME=FOLDER; airflow db migrate"
        yield Finding("Airflow", "absent", told, mend)
        return
    specs = [spec for spec in specs_of(asked.catalog).values() if isinstance(spec, JobSpec)]
    names = sorted({name for spec in specs for name in _connections_of(spec)} or {DEFAULT_CONNECTION})
    answers = _asked(names)
    if "error" in answers:
        lacks = any(words in answers["error"] for words in _NO_TABLES)
        mend = "airflow db migrate" if lacks else "airflow db check, which prints why"
        yield Finding("Airflow", "wrong", f"{release} in {home}: {answers['error']}", mend)
        return
    yield Finding("Airflow", "good", f"{release} in {home}, whose database answers")
    loaded = "skewless" in answers["plugins"]
    yield Finding(
        "Airflow's plugin skewless", "good" if loaded else "wrong", "loaded" if loaded else "not loaded",
        "" if loaded else "airflow plugins, which prints why",
    )  # fmt: skip
    for name in names:
        yield _of_connection(name, answers["connections"][name])


def _connections_of(spec: JobSpec) -> set[str]:
    """The connections that the Spark steps of a job are submitted by."""
    return {spec.spark.conn_id or DEFAULT_CONNECTION, *spec.sharing.connections}


def _asked(names: list[str]) -> dict[str, Any]:
    """What Airflow says, or ``error`` with the reason why it says nothing."""
    command = [sys.executable, "-P", "-m", "skewless_cli.doctor.airflow_answers", *names]
    try:
        done = subprocess.run(  # noqa: S603  # this Python
            command, capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
        found: dict[str, Any] = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_ANSWER_SECONDS} seconds"}
    except ValueError:
        return {"error": f"a process that imports it ended with exit code {done.returncode}"}
    return found


def _of_connection(name: str, found: dict[str, str] | None) -> Finding:
    subject, master = (
        f"Airflow's connection {name}",
        "'local[*]'" if name == DEFAULT_CONNECTION else "spark://HOST:7077",
    )
    add = f"airflow connections add {name} --conn-type spark --conn-host {master}"
    if found is None:
        return Finding(subject, "wrong", "there is none", add)
    if found["type"] != "spark":
        told = f"its type is {found['type']!r}, and steps are submitted by one of the type spark"
        return Finding(subject, "wrong", told, f"airflow connections delete {name}; {add}")
    return Finding(subject, "good", f"Spark at {found['host'] or 'yarn'}")
