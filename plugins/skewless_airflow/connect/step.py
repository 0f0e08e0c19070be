"""A step as a client of a Spark Connect server: the address of the server, and the step's Python process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from skewless_airflow.connect import server as connect_server
from skewless_airflow.stopping import stop_tree


@dataclass(frozen=True)
class ConnectAddress:
    """A Spark Connect server as an Airflow connection names it.

    Attributes:
        url: with everything in the connection, the token too: it must not be logged.
        ui: the address of its Spark UI; empty if the connection has none.
        ships: whether the code of this project is sent to its workers.
        sized_conn_id: the connection for steps that ask for a size of their own; empty if there is none.
        local: whether it is the local server of this Airflow.
    """

    url: str = field(repr=False)
    ui: str
    ships: bool
    sized_conn_id: str
    local: bool

    def environment(self) -> dict[str, str]:
        """The environment by which a step finds it."""
        found = {"SPARK_REMOTE": self.url, "SKEWLESS_SPARK_UI": self.ui, "SKEWLESS_SHIP_CODE": str(int(self.ships))}
        # PySpark would take these, which are meant for servers and drivers, for settings of the client.
        return {name: value for name, value in os.environ.items() if name not in _FOREIGN} | found


#: Variables that make PySpark act as a server or a driver.
_FOREIGN = frozenset({"SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_CONNECT_MODE", "PYSPARK_GATEWAY_PORT"})


def connect_address(conn_id: str) -> ConnectAddress | None:
    """The server that a connection names, if it is of the type ``spark_connect``."""
    try:
        connection = Connection.get(conn_id)
    except AirflowNotFoundException:
        return None  # without a connection, spark-submit decides how to reach Spark
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    extra = connection.extra_dejson
    return ConnectAddress(
        url=SparkConnectHook(conn_id).get_connection_url(),
        ui=str(extra.get(connect_server.UI, "")),
        ships=bool(extra.get(connect_server.SHIP, False)),
        sized_conn_id=str(extra.get(connect_server.SIZED, "")),
        local=bool(extra.get(connect_server.LOCAL, False)),
    )


@contextlib.contextmanager
def local_server() -> Iterator[None]:
    """Keep the local server of this Airflow running until this ends.

    Raises:
        AirflowException: it cannot be started.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(connect_server.in_use(Path(os.environ["AIRFLOW_HOME"]) / connect_server.FOLDER))
        except connect_server.ConnectServerError as err:
            raise AirflowException(str(err)) from None
        yield


class ConnectedStep:
    """The Python process of a step.

    Args:
        entry: the file that it runs.
        arguments: of the entry.
        environment: the whole environment.
    """

    def __init__(self, entry: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own entry; what it is given are arguments, no options of Python
            [sys.executable, str(entry), *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )

    def lines(self) -> Iterator[str]:
        """Its output, line by line, until it ends."""
        if self._process.stdout is not None:
            with self._process.stdout as said:
                for line in said:
                    yield line.rstrip("\n")

    def exit_code(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait()

    def stop(self) -> int:
        """Ask it to end, upon which the server stops its jobs; returns how many processes there were."""
        return stop_tree(self._process.pid) if self._process.poll() is None else 0

    def close(self) -> None:
        """Let go of the step, which ends if it has not."""
        self.stop()
