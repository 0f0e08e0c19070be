"""Steps on a Spark Connect server. They have no JVM of their own, so no ``_jvm``, ``sparkContext`` or RDDs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skewless.errors import UnreachableError

#: PySpark's own variable for ``sc://host:port/;token=...``. A list of processes does not show the environment.
ADDRESS = "SPARK_REMOTE"
#: The address of the server's UI, if whoever starts a step knows it.
UI = "SKEWLESS_SPARK_UI"
#: ``1`` if the code of this project is to be sent to the server, because its workers have not installed it.
SHIP = "SKEWLESS_SHIP_CODE"
#: Variables that make PySpark a client. A process that needs its own JVM must not see them.
CLIENT_ONLY = frozenset({ADDRESS, "SPARK_CONNECT_MODE_ENABLED"})

_PORT = 15002
_REACH_SECONDS = 10.0
#: A server that does not answer for about a minute is given up; PySpark's own default is ten minutes.
_RETRIES, _LONGEST_PAUSE_MS = 8, 15_000
_SPLITS = re.compile(r"splits=(\d+)")
#: Tags are sent as a list separated by commas.
_NOT_IN_TAG = re.compile(r"[\s,]+")


def connected() -> bool:
    """Whether the sessions of this process are sessions of a Spark Connect server."""
    return ADDRESS in os.environ


def remote_session(step: str) -> SparkSession:
    """A session of the server that ``$SPARK_REMOTE`` names. All that it runs is tagged with the step's name.

    Raises:
        UnreachableError: the server does not answer, refuses the token, or is of another release.
    """
    _require_answer()
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415  # grpc takes a second to import

    session = SparkSession.builder.getOrCreate()
    client = cast("Any", session).client
    client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_PAUSE_MS)])
    _require_our_spark(session)
    session.addTag(_NOT_IN_TAG.sub("-", step))
    if os.environ.get(SHIP) == "1":
        from skewless_spark.session.shipped_code import ship  # noqa: PLC0415  # rarely needed

        ship(session)
    return session


@contextlib.contextmanager
def released(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop a session at the end of the block. If the step is asked to end, its running jobs are interrupted first."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield spark
    except BaseException:
        with contextlib.suppress(PySparkException, OSError):
            spark.interruptAll()
        raise
    finally:
        with contextlib.suppress(PySparkException, OSError):
            spark.stop()
        signal.signal(signal.SIGTERM, before)


def slots(spark: SparkSession) -> int:
    """How many tasks Spark runs at once."""
    if not connected():
        return spark.sparkContext.defaultParallelism
    # A client has no other source, but the plan of a range shows its number of splits. Nothing is run.
    found = _SPLITS.search(cast("Any", spark.range(1))._explain_string())  # noqa: SLF001  # else it is printed
    return int(found[1]) if found else 1


def ui_address(spark: SparkSession) -> str:
    """The address of the server's UI; empty if it is not known."""
    del spark
    return os.environ.get(UI, "").rstrip("/")


def _require_answer() -> None:
    host, port = _endpoint(os.environ[ADDRESS])
    try:
        socket.create_connection((host, port), timeout=_REACH_SECONDS).close()
    except OSError as err:
        came = err.strerror or str(err)
        raise UnreachableError(
            "Spark Connect", f"a server at {host}:{port}", came, "start it, or correct the connection"
        ) from None


def _require_our_spark(session: SparkSession) -> None:
    host, port = _endpoint(os.environ[ADDRESS])
    try:
        theirs = session.version
    except PySparkException as err:
        if "UNAUTHENTICATED" not in str(err):
            raise
        raise UnreachableError(
            "Spark Connect", f"a token that the server at {host}:{port} takes", "another or none (UNAUTHENTICATED)",
            "correct the connection's password",
        ) from None  # fmt: skip
    if theirs.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise UnreachableError(
            "Spark Connect", f"Spark {pyspark.__version__}", theirs, "both have to be of one release"
        )


def _endpoint(address: str) -> tuple[str, int]:
    """Host and port of an address, without the rest, which may hold a token."""
    parts = urlsplit(address)
    return parts.hostname or "localhost", parts.port or _PORT


def _end(_sign: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
