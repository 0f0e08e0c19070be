"""Task logs are read from their files, without Airflow's log servers.

Log servers listen on all addresses of a machine, and no setting restricts them. Where every component of Airflow can
read the folder of logs, on a laptop or on a shared volume, none is needed: they are neither started nor asked.
"""

import subprocess
import sys
from importlib import import_module
from typing import Any

from airflow.executors.local_executor import LocalExecutor

#: Keeps a triggerer from starting its log server; for the scheduler, ``serve_logs`` of its executor does.
TRIGGERER_OPTIONS = ("--skip-serve-logs",)
#: What every task imports, Airflow's side of it and ours. With it, a task begins about two seconds of CPU time earlier.
PRELOADED = (
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.dag_processing.dagbag",
    "skewless_airflow.dags",
)


class LogFilesExecutor(LocalExecutor):
    """Airflow's LocalExecutor without its log server, and with workers that have imported what tasks need."""

    serve_logs = False

    def start(self) -> None:
        """Import once what tasks need, before the workers are forked, which fork the tasks."""
        for name in PRELOADED:
            import_module(name)
        super().start()

    def get_task_log(self, ti: Any, try_number: int) -> tuple[list[str], list[str]]:  # noqa: ARG002  # Airflow's signature
        """A note instead of lines: with an answer from here Airflow does not ask a log server."""
        return ["A running task's log is read from its file"], []


def main() -> None:
    """Run Airflow's components like ``airflow standalone``, whose triggerer cannot be told to serve no logs.

    Migrating the database writes ``airflow.cfg`` with the secret that signs tokens before the components start. Without
    it each component would make a secret of its own and refuse the others' tokens.
    """
    airflow = (sys.executable, "-P", "-m", "airflow")
    subprocess.run([*airflow, "db", "migrate"], check=True)  # noqa: S603  # Airflow's own words, as below
    components = (["scheduler"], ["dag-processor"], ["api-server"], ["triggerer", *TRIGGERER_OPTIONS])
    for process in [subprocess.Popen([*airflow, *words]) for words in components]:  # noqa: S603
        process.wait()


if __name__ == "__main__":
    main()
