"""One Spark for many attempts: a JVM that outlives the Python drivers that are killed.

So an attempt costs no start of a JVM; and what a killed driver had asked for goes on in it, beside the attempt that
follows.
"""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from typing import Any

import psutil

from skewless_spark.session.session import DEFAULTS
from tests.faults.attempt import kill_tree

_CONF = {
    **DEFAULTS,
    "spark.master": "local[2]",
    "spark.app.name": "faults",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # Tiny stages: as few tasks as will do.
    "spark.sql.shuffle.partitions": "2",
}


class SharedJvm:
    """A JVM with a Spark context; attempts attach to it."""

    def __init__(self) -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False)
        for name, value in _CONF.items():
            conf.set(name, value)
        self._gateway = launch_gateway(conf)
        parameters = self._gateway.java_parameters
        self._port, self._secret = parameters.port, parameters.auth_token
        self._context = self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        self._context.setLogLevel("ERROR")

    @property
    def pid(self) -> int:
        return int(self._gateway.proc.pid)

    def attach(self) -> None:
        """Make this process, a forked one, a driver of the JVM, in the session of all: another has other workers."""
        from pyspark import SparkContext

        _leave_behind()
        os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(self._port), self._secret
        SparkContext._ensure_initialized()
        gateway: Any = SparkContext._gateway
        running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        SparkContext(gateway=gateway, jsc=gateway.jvm.JavaSparkContext(running))

    def workers(self) -> list[psutil.Process]:
        found = []
        for one in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                if "pyspark" in " ".join(one.cmdline()) and one.ppid() != self.pid:
                    found.append(one)
        return found

    def idle(self) -> None:
        """Take away what killed drivers have left running, and wait until it has ended."""
        deadline = time.monotonic() + 60
        while True:
            self._context.cancelAllJobs()
            if not len(self._context.statusTracker().getActiveJobIds()):
                return
            assert time.monotonic() < deadline, "jobs that cannot be cancelled"
            time.sleep(0.05)

    def close(self) -> None:
        self._gateway.close()
        kill_tree(self.pid)
        self._gateway.proc.stdin.close()
        self._gateway.proc.wait()


#: What a forked process has of its parent's Spark.
_LEFT: list[Any] = []


def _leave_behind() -> None:
    """Forget the Spark that other tests of the parent have: it is the parent's, and so is the line to its JVM.

    Nothing of it may be collected here as garbage, either: the JVM would be told, and drop what the parent still uses.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gc.freeze()
    _LEFT.append((SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm))
    _LEFT.append(SparkSession._instantiatedSession)
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
