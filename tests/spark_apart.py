"""A Spark standalone cluster whose two workers have disks of their own: neither sees the other's, nor the driver's.

Each worker is in a mount namespace of its own: over the folders of the tests and of temporary files it has an empty
file system in memory, and all else it can only read: the checkout, too, which may be among temporary files.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.local import free_port
from skewless_airflow.runners.process_session import Session, begin, end
from tests.processes import JVM_OPTIONS

_PATIENCE_SECONDS = 120.0
_STOP_SECONDS = 10.0
#: What a program with a disk of its own does first, in a mount namespace of its own: $1 and $2 are the folders that it
#: gets its own of, $3 is the checkout, $4 the folder to work in, and the rest is the program. A checkout below $2 is
#: carried around the mount that would hide it.
APART = """
set -e
mount -t tmpfs apart /dev/shm
mkdir /dev/shm/checkout
mount --bind "$3" /dev/shm/checkout
mount -t tmpfs apart "$1"
if [ -d "$2" ]; then mount -t tmpfs apart "$2"; fi
mkdir -p "$3" "$4"
mount --move /dev/shm/checkout "$3"
mount -o remount,bind,ro "$3"
mount -o remount,bind,ro /
cd "$4"
shift 4
exec "$@"
"""
_CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Worker:
    """A worker with a disk of its own; ``work`` is the folder of its executors, as the worker sees it."""

    session: Session
    work: Path

    def sees(self, folder: Path) -> Path:
        """What the worker sees as a folder, as this process can look into it while the worker lives."""
        return Path(f"/proc/{self.session.pid}/root{folder}")


@dataclass(frozen=True)
class SparkApart:
    master: str
    workers: tuple[Worker, ...]


@contextlib.contextmanager
def spark_apart(folder: Path, hidden: Path, environment: Mapping[str, str]) -> Iterator[SparkApart]:
    """Have a master and two workers of a core each up for as long as this lasts."""
    port, web, ports = free_port(), free_port(), (free_port(), free_port())
    spark, address = str(Path(sys.executable).parent / "spark-class"), f"spark://127.0.0.1:{port}"
    given = {**os.environ, **environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    # Executors, too, are up sooner so: each step has new ones.
    given |= {"SPARK_DAEMON_MEMORY": "256m", "JAVA_TOOL_OPTIONS": JVM_OPTIONS}
    temporary = Path(tempfile.gettempdir())
    work = temporary / f"spark-apart-{port}"  # no folder of this name is on the disk of anybody else
    master = [spark, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    sessions = [begin([*master, "--webui-port", str(web)], given, folder, folder / "master.log")]
    try:
        workers = []
        for number, ui in enumerate(ports, 1):
            host = f"127.0.0.{number + 1}"  # an executor reads the shuffled files of another one on its host by itself
            program = [
                spark, "org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", str(ui),
                "--cores", "1", "--memory", "1g", "--work-dir", str(work), address,
            ]  # fmt: skip
            apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c", APART, "sh"]
            own = {**given, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(work), "TMPDIR": str(temporary)}
            command = [*apart, str(hidden), str(temporary), str(_CHECKOUT), str(work), *program]
            session = begin(command, own, Path("/"), folder / f"worker-{number}.log")
            sessions.append(session)
            workers.append(Worker(session, work))
        _await_workers(f"http://127.0.0.1:{web}/json/", sessions, folder)
        yield SparkApart(address, tuple(workers))
    finally:
        end(sessions, _STOP_SECONDS)


def _await_workers(status: str, sessions: list[Session], folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with contextlib.suppress(httpx.HTTPError, ValueError):  # its page comes up in steps
            if httpx.get(status, trust_env=False).json()["aliveworkers"] == len(sessions) - 1:
                return
        alive = all(session.leads() for session in sessions) and time.monotonic() < deadline
        assert alive, "\n".join(file.read_text(errors="replace")[-3000:] for file in sorted(folder.glob("*.log")))
        time.sleep(0.2)
