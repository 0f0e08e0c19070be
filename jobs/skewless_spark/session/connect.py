"""Steps on a Spark Connect server: no JVM of their own, and so no ``_jvm``, no ``sparkContext`` and no RDDs."""

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

#: PySpark's own name for ``sc://host:port/;token=...``: the environment, where no list of processes shows it.
ADDRESS = "SPARK_REMOTE"
#: Where the server's own UI answers, if whoever starts a step knows.
UI = "SKEWLESS_SPARK_UI"
#: Whether the code of this project is sent along, because the server's workers have none: ``1``.
SHIP = "SKEWLESS_SHIP_CODE"
#: What makes PySpark a client; a process that is to have a JVM of its own must not see it.
CLIENT_ONLY = frozenset({ADDRESS, "SPARK_CONNECT_MODE_ENABLED"})

_PORT = 15002
_REACH_SECONDS = 10.0
#: After about a minute without an answer the server is gone; PySpark itself would ask for ten.
_RETRIES, _LONGEST_PAUSE_MS = 8, 15_000
_SPLITS = re.compile(r"splits=(\d+)")
#: A tag is part of a list that commas separate.
_NOT_IN_TAG = re.compile(r"[\s,]+")


def connected() -> bool:
    """Whether sessions of this process are those of a Spark Connect server."""
    return ADDRESS in os.environ


def remote_session(step: str) -> SparkSession:
    """A session of the server that ``$SPARK_REMOTE`` names, with all that it runs tagged by a step's name.

    Raises:
        UnreachableError: nobody answers there, or not to us.
    """
    _require_answer()
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415  # grpc takes a second to import

    session = SparkSession.builder.getOrCreate()
    client = cast("Any", session).client
    client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_PAUSE_MS)])
    _require_our_spark(session)
    session.addTag(_NOT_IN_TAG.sub("-", step))
    if os.environ.get(SHIP) == "1":
        from skewless_spark.session.shipped_code import ship  # noqa: PLC0415  # seldom wanted

        ship(session)
    return session


@contextlib.contextmanager
def released(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session back at the end; what it still runs then, because the step was told to end, is interrupted."""
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
    # A client is told by nobody, but a plan tells how many splits a range is cut into; nothing is run.
    found = _SPLITS.search(cast("Any", spark.range(1))._explain_string())  # noqa: SLF001  # else it is printed
    return int(found[1]) if found else 1


def ui_address(spark: SparkSession) -> str:
    """Where the server's UI answers, as far as anybody knows; else empty."""
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
    """Host and port of an address, without what else it says: that may be a token."""
    parts = urlsplit(address)
    return parts.hostname or "localhost", parts.port or _PORT


def _end(_sign: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
