"""``python -m deploy.local up|down|demo|demo-stages``: Airflow on a laptop, for the commands of the Makefile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import httpx
from rich.console import Console

from deploy import PROJECT
from deploy.commands import run_command
from deploy.local import standalone
from deploy.local.follow import HEARTBEAT_SECONDS, RunLostError, follow, progress_for
from deploy.local.rest import AirflowRest
from skewless_cli import run_view, say

DEMO_DAG = "python_tokens"
#: Jobs whose plans change virtual tasks, tokens and reducers, stage by stage.
STAGE_DAGS = ("stages_by_buckets", "stages_by_reducers")
#: Programs that write what these jobs read, unless it is there.
INPUTS = ("examples.demo_corpus", "examples.drifting_orders")
#: The first parse of the DAG folder on two slow cores.
PARSE_SECONDS = 120.0


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit code."""
    return run_command(
        "python -m deploy.local",
        __doc__,
        {"up": up, "down": down, "demo": demo, "demo-stages": demo_stages},
        standalone.LocalAirflowError,
        arguments,
    )


def up(console: Console) -> int:
    """Start Airflow and say how to log in; it stays up."""
    home = standalone.default_home()
    found = standalone.running(home)
    if found is None:
        found = standalone.start(home, int(os.environ.get("SKEWLESS_PORT") or 8080))
        try:
            _await(console, home, found)
            standalone.client(home, found).close()
        except KeyboardInterrupt:
            standalone.stop(home)
            raise
        say(console, f"Airflow is up: {found.url}")
    else:
        say(console, f"Airflow is up already: {found.url}")
    say(console, f"Log in as {standalone.USER}; the password is in {home.passwords}")
    if console.is_terminal:  # never into a file or a CI log
        say(console, f"  user      {standalone.USER}\n  password  {home.password()}")
    if not standalone.schedules_on():
        say(
            console,
            "DAGs run only when they are triggered. To have their schedules, too: "
            "make down, then SKEWLESS_SCHEDULE=on make up",
        )
    say(console, "Stop it with: make down")
    return 0


def down(console: Console) -> int:
    """Stop Airflow."""
    say(console, "Airflow is stopped." if standalone.stop(standalone.default_home()) else "Airflow was not running.")
    return 0


def demo(console: Console) -> int:
    """Run the demo's DAG in Airflow, follow it to its end, and show its result."""
    return _run_all(console, (DEMO_DAG,))


def demo_stages(console: Console) -> int:
    """Run the jobs that take small waves one by one, one after the other, and show what each stage decided."""
    return _run_all(console, STAGE_DAGS)


def _run_all(console: Console, dags: Sequence[str]) -> int:
    home = standalone.default_home()
    with (
        _inputs_written() as written,
        _some_airflow(console, home) as server,
        standalone.client(home, server, patience_seconds=0) as rest,
    ):
        written()
        done = []
        for dag in dags:
            run_id, state = _run_demo(console, rest, dag)
            if state != "success":
                _show_failure(console, rest, dag, run_id)
                return 1
            done.append((dag, run_id))
        for dag, run_id in done:  # while Airflow is up: to stop it takes seconds
            run_view.show(standalone.run_directory(dag, run_id), console)
            say(console, f"task logs:      {_logs(dag, run_id)}")
            say(console, f"in the UI:      make up, then {_page_url(dag, run_id)}")
    return 0


def _run_demo(console: Console, rest: AirflowRest, dag: str) -> tuple[str, str]:
    """Trigger a run and follow it; a paused DAG is paused again afterwards, and Ctrl-C fails the run."""
    was_paused = rest.wait_for_dag(dag, PARSE_SECONDS)
    run_id = rest.trigger(dag)
    say(console, f"Run {run_id} of DAG {dag} is triggered; Spark runs as local[*].")
    try:
        if was_paused:
            rest.set_paused(dag, False)
        with progress_for(console, standalone.run_directory(dag, run_id)) as progress:
            return run_id, follow(rest, dag, run_id, progress)
    except RunLostError as err:
        raise standalone.LocalAirflowError(str(err)) from None
    except KeyboardInterrupt:
        # Left running, it would delay the next run: the DAG allows one at a time.
        with contextlib.suppress(httpx.HTTPError):
            rest.fail_run(dag, run_id)
        raise
    finally:
        if was_paused:
            with contextlib.suppress(httpx.HTTPError):
                rest.set_paused(dag, True)


def _show_failure(console: Console, rest: AirflowRest, dag: str, run_id: str) -> None:
    """The last log lines of the task that failed."""
    failed = [one for one in rest.tasks(dag, run_id) if one.state == "failed"]
    if not failed:
        say(console, f"Run {run_id} failed without a failed task: it was marked as failed by hand.")
    for one in failed[:1]:
        lines = rest.log_lines(dag, run_id, one.task, one.tries)
        say(console, f"Task {one.task} failed in try {one.tries}; its log ends with:")
        for line in [line for line in lines if not line.startswith("::")][-20:]:
            say(console, f"  {line}")
    say(console, f"All logs of the run are in {_logs(dag, run_id)}")


def _logs(dag: str, run_id: str) -> Path:
    return standalone.default_home().logs / f"dag_id={dag}" / f"run_id={run_id}"


@contextlib.contextmanager
def _inputs_written() -> Iterator[Callable[[], None]]:
    """Write what the jobs read while Airflow starts; what is yielded waits for that."""
    with contextlib.ExitStack() as held:
        writing = [
            held.enter_context(subprocess.Popen([sys.executable, "-m", name], cwd=PROJECT))  # noqa: S603  # our own
            for name in INPUTS
        ]

        def wait() -> None:
            for name, one in zip(INPUTS, writing, strict=True):
                if one.wait():
                    raise standalone.LocalAirflowError(f"python -m {name} ended with exit code {one.returncode}.")

        yield wait


@contextlib.contextmanager
def _some_airflow(console: Console, home: standalone.Home) -> Iterator[standalone.Running]:
    """The Airflow that is up, or one for as long as this lasts."""
    found = standalone.running(home)
    if found is not None:
        say(console, f"Using the Airflow that is up: {found.url}")
        yield found
        return
    server = standalone.start(home, standalone.free_port())
    try:
        _await(console, home, server)
        yield server
    finally:
        # A second Ctrl-C must not leave half an Airflow behind.
        with _uninterrupted():
            say(console, "Stopping Airflow ...")
            standalone.stop(home)


def _await(console: Console, home: standalone.Home, server: standalone.Running) -> None:
    """Wait until Airflow is healthy, visibly."""
    begun = spoken = time.monotonic()
    if console.is_terminal:
        with console.status("Starting Airflow ...") as status:
            standalone.wait_until_healthy(
                home, server, lambda passed: status.update(f"Starting Airflow ... {passed:.0f} s")
            )
    else:
        say(console, f"Starting Airflow on port {server.port} ...")

        def tick(passed: float) -> None:
            nonlocal spoken
            if time.monotonic() - spoken >= HEARTBEAT_SECONDS:
                spoken = time.monotonic()
                say(console, f"{passed:5.0f} s  ... Airflow is starting")

        standalone.wait_until_healthy(home, server, tick)
    say(console, f"Airflow is healthy after {time.monotonic() - begun:.0f} s.")


def _page_url(dag: str, run_id: str) -> str:
    port = os.environ.get("SKEWLESS_PORT") or "8080"
    return f"http://localhost:{port}/dags/{dag}/runs/{quote(run_id, safe='')}"


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {
        sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


if __name__ == "__main__":
    sys.exit(main())
