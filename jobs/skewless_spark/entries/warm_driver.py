"""A driver for all steps of a run on one machine: it imports once, starts Spark once, and runs one step at a time.

    warm_driver.py --folder DIR --run-dir RUN --idle-seconds SECONDS

It listens on a Unix socket in a folder that only its user can open. A task connects, reads one line of JSON (where in
the driver's log its own lines begin), sends one line (a step and its arguments), and reads one line when
the step has ended. As long as the step runs, the connection is its life line: when the task closes it or dies, the
driver ends at once with all that it started, so that nothing runs beside the next attempt.
"""

import argparse
import contextlib
import fcntl
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from skewless_spark.quality.expectations import import_soon
from skewless_spark.session.session import build_session, start_java

#: What runs a step; imported once the JVM is on its way.
STEPS = "skewless_spark.entries.pipeline"
#: The step before which no session is needed.
PREPARE = "prepare"
#: Of the environment only variables with this prefix differ from step to step.
STEP_VARIABLES = "AIRFLOW_CTX_"
SOCKET, LOG, LOCK = "socket", "log", "lock"
#: What the JVM and its workers have to end before they are killed.
GRACE_SECONDS = 5


def main() -> None:
    """Serve steps until one fails, the last one has ended, nobody asks for a while, or the worker has ended."""
    parser = argparse.ArgumentParser(description="Run the steps of a run, one after another, as tasks ask for them.")
    parser.add_argument("--folder", required=True, type=Path, help="the driver's own folder, with its socket and log")
    parser.add_argument("--run-dir", required=True, help="the run directory; lists of processes show it")
    parser.add_argument("--idle-seconds", required=True, type=float, help="how long to wait for the next step")
    arguments = parser.parse_args()
    # Under spark-submit, lines would reach the log by way of the JVM, and too late for the end of a step.
    log = os.open(arguments.folder / LOG, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    # The JVM starts beside the imports.
    threading.Thread(target=_begin, args=(start_java,), daemon=True).start()
    importlib.import_module(STEPS)
    driver = Driver(arguments.folder)
    with driver.listener, contextlib.suppress(OSError, ValueError):  # a task that died in its request
        driver.serve(arguments.idle_seconds)
    _remove(arguments.folder)


class Driver:
    """The steps of a run in this process."""

    def __init__(self, folder: Path) -> None:
        self._logged = 0  # bytes of the log that belong to steps that have ended
        self._spark: threading.Thread | None = None
        self.listener = socket.socket(socket.AF_UNIX)
        with short_address(folder) as address:
            self.listener.bind(address)
        self.listener.listen(1)

    def serve(self, idle_seconds: float) -> None:
        """Run the steps that tasks ask for, until there is none to come."""
        java: list[int] = []
        owner: list[int] = []
        while True:
            if not java:
                java = _java()
            ready, _, _ = select.select([self.listener.fileno(), *java, *owner], [], [], idle_seconds)
            if ready != [self.listener.fileno()]:
                return
            with self.listener.accept()[0] as task, task.makefile("rw", encoding="utf-8") as lines:
                lines.write(json.dumps({"log_from": self._logged}) + "\n")
                lines.flush()
                request = json.loads(lines.readline())
                for descriptor in owner:
                    os.close(descriptor)
                owner = [os.pidfd_open(request["owner"])]
                over, ended = os.pipe()
                watcher = threading.Thread(target=_stay_with, args=(task, over), daemon=True)
                watcher.start()
                try:
                    code = self._step(request)
                finally:
                    os.close(ended)
                    watcher.join()
                    os.close(over)
                self._logged = os.fstat(1).st_size
                lines.write(json.dumps({"exit_code": code, "log_until": self._logged}) + "\n")
            if code or request["last"]:
                return
            if request["arguments"][0] != PREPARE:  # which may have no session yet
                from pyspark.sql import SparkSession  # noqa: PLC0415  # our own package looks at PySpark first

                SparkSession.builder.getOrCreate().catalog.clearCache()  # sessions share it

    def _step(self, request: Mapping[str, Any]) -> int:
        for name in [name for name in os.environ if name.startswith(STEP_VARIABLES)]:
            del os.environ[name]
        os.environ.update(request["environment"])
        # Beside a step, what the next ones need starts: Spark beside ``prepare``, Great Expectations beside a stage.
        if request["arguments"][0] != PREPARE:
            if self._spark is not None:
                self._spark.join()
            import_soon()
        elif self._spark is None:
            self._spark = threading.Thread(target=_begin, args=(build_session, "skewless"), daemon=True)
            self._spark.start()
        try:
            importlib.import_module(STEPS).main(request["arguments"])
        except SystemExit as err:
            return err.code if isinstance(err.code, int) else int(err.code is not None)
        except Exception:  # noqa: BLE001  # steps report their errors themselves; this is one of ours
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0


def _java() -> list[int]:
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # it has started this process
        return [os.pidfd_open(os.getppid())]
    return [os.pidfd_open(child.pid) for child in psutil.Process().children() if child.name() == "java"]


def _begin(start: Callable[..., object], *arguments: str) -> None:
    # What keeps it from starting is reported by the first step that needs it.
    with contextlib.suppress(Exception):
        start(*arguments)


def _stay_with(task: socket.socket, over: int) -> None:
    """End this process, the JVM and its workers as soon as the task is gone, unless the step is over before."""
    ready, _, _ = select.select([task.fileno(), over], [], [])
    if over not in ready:
        end_all()
        select.select([over], [], [], GRACE_SECONDS)  # without its JVM the step fails, and gives back its lease
        os._exit(1)


def end_all() -> None:
    """End all that this process has started, by force after some seconds."""
    started = psutil.Process().children(recursive=True)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
        started = psutil.wait_procs(started, GRACE_SECONDS)[1]


@contextlib.contextmanager
def short_address(folder: Path) -> Iterator[str]:
    """The address of a folder's socket, however long the folder's path is: a socket's has 108 bytes at most."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove the driver's folder once its last task has let go of it, unless another task starts a driver in it."""
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            with (folder / LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return


if __name__ == "__main__":
    main()
