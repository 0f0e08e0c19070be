"""A step by spark-submit, with its driver on this machine."""

import os
import subprocess
from collections.abc import Iterator

from skewless_airflow.runners.process_session import Session, born, end, end_with_parent
from skewless_airflow.runners.step import Step

#: Time for Spark to tell its master and its executors.
GRACE_SECONDS = 10.0


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
