"""An Airflow of its own for the test session. Import this before anything imports airflow.

Airflow reads its configuration once, when it is first imported, so the environment is set here, at
import, and not in a fixture.
"""

import atexit
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
HOME = Path(tempfile.mkdtemp(prefix="skewless-airflow-"))
DAGS = HOME / "dags"
DAGS.mkdir()
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACKS": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "NO_COLOR": "1",
    }
)

#: For tests in which Airflow runs tasks in this process: the warnings of its own dependencies are not ours.
IN_PROCESS = pytest.mark.filterwarnings(
    "ignore:GitWildMatchPattern:DeprecationWarning", "ignore:Using `httpx` with `starlette.testclient`"
)


@cache
def make_database(shared: Path) -> None:
    """Create Airflow's tables once; the first worker of a session makes them, and the others copy its database."""
    own = HOME / "airflow.db"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shared.exists():
            _copy_database(shared, own)
        else:
            subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
            _copy_database(own, shared)


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as made, closing(sqlite3.connect(target)) as copied:
        made.backup(copied)
