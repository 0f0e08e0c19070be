"""Steps with their driver on this machine: each by spark-submit, or all of a run by one process, its warm driver.

A task finds it by its folder, or starts it there. The task holds a lock beside the driver's socket as long as its step
runs, so no driver is started twice, and no driver runs two steps at a time. The connection to the driver is the life
line of the step: when it is closed, the driver ends, with its JVM and its workers (``skewless_spark``'s
``warm_driver.py``).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from airflow.sdk.exceptions import AirflowException

from skewless_airflow.run_store import spark_entry
from skewless_airflow.runners.process_session import Session, await_end, begin, born, end, end_with_parent
from skewless_airflow.runners.step import Step

#: ``0``: every step is a process of its own, as with a cluster's master.
SWITCH = "SKEWLESS_WARM_DRIVER"
#: Seconds without a step after which a driver ends.
IDLE, IDLE_SECONDS = "SKEWLESS_DRIVER_IDLE_SECONDS", 120.0
#: The options of spark-submit, for a driver that starts it itself.
SUBMITTED = "SKEWLESS_SUBMITTED"
#: The driver's program, the files in its folder, and the prefix of the variables that differ from step to step.
PROGRAM, SOCKET, LOG, LOCK, STATE = "warm_driver.py", "socket", "log", "lock", "driver.json"
STEP_VARIABLES = "AIRFLOW_CTX_"
_OF_A_TASK = (STEP_VARIABLES, "_AIRFLOW", "__AIRFLOW")
#: On two slow cores; measured about 5 s on two fast ones.
START_SECONDS = 180.0
#: A driver without a step answers within seconds, also if it is still tidying up.
ANSWER_SECONDS = 60.0
#: What a driver takes at most to end by itself when its task is gone.
END_SECONDS = 8.0
#: Settings that name the task: with them a driver could serve no other.
_NAMES_THE_TASK = "spark.openlineage."
#: Time for Spark to tell its master and its executors.
GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.05
_CHUNK = 1 << 20


def warm_step(step: Step) -> "DriverStep | None":
    """A step of the warm driver, if its Spark is on this machine: on Linux, unless ``SKEWLESS_WARM_DRIVER=0``."""
    if sys.platform != "linux" or os.environ.get(SWITCH) == "0" or not step.master.startswith("local"):
        return None
    if step.follow_ups or any(name.startswith(_NAMES_THE_TASK) for name in step.conf):
        return None
    command = step.command()
    submit = command[: len(command) - 1 - len(step.arguments)]
    submit[submit.index("--name") + 1] = step.dag_id  # the driver's, for all of its steps
    # Neither its UI nor its block manager asks for a password.
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, **step.variables}
    settings = DriverSettings(step.run_dir, tuple(submit), environment, step.conn_id)
    return DriverStep(step.arguments, settings, last=step.last)


@dataclass(frozen=True)
class DriverSettings:
    """What a driver is, for as long as it lives; a step that needs anything else has another driver."""

    run_dir: str
    submit: tuple[str, ...]
    environment: Mapping[str, str]
    pool: str = ""
    """What keeps apart drivers that work at the same time, such as the id of the connection."""

    def name(self) -> str:
        """The name of the driver's folder: a hash, because the environment may hold secrets."""
        lasting = {name: value for name, value in self.environment.items() if not name.startswith(_OF_A_TASK)}
        parts = [self.run_dir, self.pool, self.submit, sorted(lasting.items())]
        return hashlib.sha256(json.dumps([*parts, sys.executable, os.getcwd()]).encode()).hexdigest()[:24]  # noqa: PTH109

    def start(self, folder: Path) -> Session:
        """Start the driver: in a session of its own, so that it outlives the first task.

        Where spark-submit, and the Python that it would start, are of this interpreter's installation, the driver
        starts it itself, beside its own imports and the first step.
        """
        idle = self.environment.get(IDLE) or str(IDLE_SECONDS)
        python = self.environment.get("PYSPARK_DRIVER_PYTHON") or self.environment.get("PYSPARK_PYTHON") or "python3"
        programs = (shutil.which(name, path=self.environment.get("PATH")) for name in ("spark-submit", python))
        itself = all(program and Path(program).parent == Path(sys.executable).parent for program in programs)
        program = [
            *((sys.executable,) if itself else self.submit), str(spark_entry(PROGRAM)),
            "--folder", str(folder), "--run-dir", self.run_dir, "--idle-seconds", idle,
        ]  # fmt: skip
        environment = dict(self.environment)
        if itself:
            environment[SUBMITTED] = shlex.join([*self.submit[1:], "pyspark-shell"])
        return begin(program, environment, Path.cwd(), folder / LOG)


class DriverStep:
    """A step that the warm driver of its run executes; after the last one of the run the driver ends."""

    attempt = ""

    def __init__(self, arguments: Sequence[str], settings: DriverSettings, *, last: bool) -> None:
        self._settings = settings
        variables = {name: value for name, value in settings.environment.items() if name.startswith(STEP_VARIABLES)}
        self._request = {"arguments": list(arguments), "environment": variables, "owner": os.getppid(), "last": last}
        self._held = contextlib.ExitStack()
        self._folder: Path | None = None
        self._session: Session | None = None
        self._line: socket.socket | None = None
        self._failure: str | None = None

    def lines(self) -> Iterator[str]:
        """What the driver writes while the step runs, line by line, until it ends."""
        lock, folder = own_folder(self._settings.name())
        self._held.callback(os.close, lock)
        self._folder = folder
        line, begin_at = yield from self._reach(folder)
        answers = self._held.enter_context(line.makefile("rw", encoding="utf-8"))
        answers.write(json.dumps(self._request) + "\n")
        with contextlib.suppress(BrokenPipeError):
            answers.flush()
        with (folder / LOG).open("rb") as log:
            log.seek(begin_at)
            yield from _text(self._follow(log, line, answers))

    def _follow(self, log: BinaryIO, line: socket.socket, answers: TextIO) -> Iterator[bytes]:
        until: int | None = None
        while True:
            chunk = log.read(_CHUNK if until is None else min(_CHUNK, max(0, until - log.tell())))
            if chunk:
                yield chunk
            elif self._failure is not None:
                return
            elif select.select([line], [], [], _POLL_SECONDS)[0]:
                answer = json.loads(_line_of(answers) or "null")
                if answer is None:  # it died; whatever it started says its last words
                    self._end_driver()
                    self._failure = "the run's Spark driver ended before the step"
                else:
                    code, until = answer["exit_code"], answer["log_until"]
                    self._failure = f"the step ended with exit code {code}" if code else ""

    def failure(self) -> str:
        """The exit code of the step, or the end of the driver before it, in words; empty if it ended well."""
        return "the step has not ended" if self._failure is None else self._failure

    def stop(self) -> int:
        """End the driver, unless the step has ended; returns how many processes there were."""
        if self._failure is not None or self._session is None:
            return 0
        processes = len(self._session.processes())
        if self._line is not None:
            with contextlib.suppress(OSError):
                # Upon which it ends by itself: the JVM then gives back what it holds on disk, and in a server.
                self._line.shutdown(socket.SHUT_RDWR)
            await_end([self._session], END_SECONDS)
        self._end_driver()
        return processes

    def close(self) -> None:
        """Let go of the driver; if the step has not ended, the driver ends."""
        self.stop()
        self._held.close()

    def _reach(self, folder: Path) -> Generator[str, None, tuple[socket.socket, int]]:
        """The connection to the driver of a folder, started if it does not answer, and where its log goes on.

        What a driver says that cannot start is yielded.
        """
        self._session = _described(folder)
        if self._session is not None:
            connection = self._connect(folder)
            if connection is not None:
                return connection
            self._end_driver()  # it is about to end, or hangs
        (folder / SOCKET).unlink(missing_ok=True)
        sweep(folder.parent)
        self._session = self._settings.start(folder)
        (folder / STATE).write_text(json.dumps(asdict(self._session)))
        begun = time.monotonic()
        while (connection := self._connect(folder)) is None:
            if not self._session.leads() or time.monotonic() - begun > START_SECONDS:
                yield from _text([(folder / LOG).read_bytes()])
                raise AirflowException(f"The run's Spark driver did not start within {START_SECONDS:.0f} s: see above.")
            time.sleep(_POLL_SECONDS)
        return connection

    def _connect(self, folder: Path) -> tuple[socket.socket, int] | None:
        """A connection, and where in the log its step begins; None if no driver answers."""
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(ANSWER_SECONDS)
        try:
            # The address of a socket has 108 bytes at most; a folder's path may have more.
            line.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            with line.makefile(encoding="utf-8") as lines:
                greeting = _line_of(lines)
        except OSError:
            greeting = ""
        finally:
            os.close(directory)
        if not greeting:
            line.close()
            return None
        self._line = self._held.enter_context(line)
        line.settimeout(None)
        return line, int(json.loads(greeting)["log_from"])

    def _end_driver(self) -> None:
        if self._session is None or self._folder is None:
            return
        end([self._session], END_SECONDS)
        for name in (SOCKET, STATE):
            (self._folder / name).unlink(missing_ok=True)


def own_folder(name: str) -> tuple[int, Path]:
    """A folder for a driver that no other process uses at this moment: it is locked until the descriptor is closed.

    If another attempt, that Airflow has given up, still runs a step in the first one, there is a second.
    """
    home = _private(Path(tempfile.gettempdir()) / f"skewless-drivers-{os.geteuid()}")
    number = 0
    while True:
        folder = _private(home / f"{name}-{number}")
        with contextlib.suppress(FileNotFoundError):  # its driver has just removed it
            lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
                    return lock, folder
            except BlockingIOError:
                number += 1
            os.close(lock)


def sweep(home: Path) -> None:
    """Remove the folders of drivers that were killed: those that no task has locked, and whose processes have ended."""
    for folder in home.iterdir():
        with contextlib.suppress(OSError), (folder / LOCK).open("r+") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            session = _described(folder)
            if session is None or not session.processes():
                shutil.rmtree(folder)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise AirflowException(
            f"Folder {folder}: expected a folder of this user that nobody else can open, but its owner is "
            f"{status.st_uid} and its mode {stat.filemode(status.st_mode)}; remove it, or set TMPDIR."
        )
    return folder


def _described(folder: Path) -> Session | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Session(**json.loads((folder / STATE).read_text()))
    return None


def _line_of(lines: TextIO) -> str:
    with contextlib.suppress(OSError):
        return lines.readline()
    return ""


def _text(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


class SubmittedStep:
    """A step that spark-submit runs."""

    attempt = ""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._process: subprocess.Popen[str] | None = None

    def lines(self) -> Iterator[str]:
        """Submit the step; what spark-submit and the step say, line by line, until they end."""
        with subprocess.Popen(  # noqa: S603  # the command is the connection's
            self._step.command(),
            env={**os.environ, **self._step.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # a call of the kernel, and no lock
        ) as self._process:
            yield from (line.rstrip("\n") for line in self._process.stdout or ())

    def failure(self) -> str:
        """The exit code of spark-submit in words, once it has ended; empty if it is 0."""
        code = self._process.wait() if self._process else 0
        return f"spark-submit ended with exit code {code}" if code else ""

    def stop(self) -> int:
        """End spark-submit and the driver, which tell the cluster; returns how many processes there were."""
        if self._process is None or self._process.poll() is not None:
            return 0
        session = Session(self._process.pid, born(self._process.pid) or 0.0)
        processes = len(session.processes())
        end([session], GRACE_SECONDS)
        return processes

    def close(self) -> None:
        """Let go of the step, which ends if it has not, and run what the task wants to be run after it."""
        self.stop()
        self._step.hook._run_post_submit_commands()  # noqa: SLF001  # there is no other way
