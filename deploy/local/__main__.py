"""``python -m deploy.local up|down|demo|demo-stages``: Airflow on a laptop, for the commands of the Makefile."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from deploy import PROJECT
from deploy.local import standalone
from skewless.run.directory import RunDirectory
from skewless_cli import run_view, say

#: Jobs whose plans change virtual tasks, tokens and reducers, stage by stage.
DEMO_DAGS = {"demo": ("python_tokens",), "demo-stages": ("stages_by_buckets", "stages_by_reducers")}
#: Programs that write what these jobs read, unless it is there.
INPUTS = ("examples.demo_corpus", "examples.drifting_orders")
#: Lines of Airflow's log that the demo shows: a task begins, or one of ours says something.
_SHOWN = re.compile(r"\[DAG TEST\] starting (task_id=\S+)|^\S+ \[\w+ *\] ((?!::)\S.*?) +\[skewless_airflow")


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit code is 1 after an error, 130 after Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    parser.add_argument("command", choices=("up", "down", *DEMO_DAGS))
    command, console = parser.parse_args(arguments).command, Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a plain kill should clean up like Ctrl-C
    try:
        return {"up": up, "down": down}[command](console) if command in {"up", "down"} else demo(console, command)
    except standalone.LocalAirflowError as err:
        say(console, str(err))
        return 1
    except KeyboardInterrupt:
        say(console, "Interrupted.")
        return 130


def up(console: Console) -> int:
    """Start Airflow and say how to log in; it stays up."""
    home = standalone.default_home()
    server = standalone.running(home)
    if server is None:
        server = standalone.start(home, int(os.environ.get("SKEWLESS_PORT") or 8080))
        say(console, f"Starting Airflow on port {server.port} ...")
        try:
            standalone.wait_until_healthy(home, server)
            standalone.make_pool(home, server)
        except KeyboardInterrupt:
            standalone.stop(home)
            raise
    say(console, f"Airflow is up: {server.url}")
    say(console, f"Log in as {standalone.USER}; the password is in {home.passwords}")
    if console.is_terminal:  # never into a file or a CI log
        say(console, f"  user      {standalone.USER}\n  password  {home.password()}")
    if not standalone.schedules_on():
        say(console, "DAGs run only when they are triggered; with their schedules: SKEWLESS_SCHEDULE=on make up")
    say(console, "Stop it with: make down")
    return 0


def down(console: Console) -> int:
    """Stop Airflow."""
    say(console, "Airflow is stopped." if standalone.stop(standalone.default_home()) else "Airflow was not running.")
    return 0


def demo(console: Console, command: str) -> int:
    """Run DAGs of the catalog by ``airflow dags test``, without a scheduler, and show what came of them."""
    home = standalone.default_home()
    home.logs.mkdir(parents=True, exist_ok=True)
    environment = standalone.environment(home, standalone.free_port())
    pool = (standalone.POOL, str(standalone.POOL_SLOTS), "Spark steps")
    setup = (*((name,) for name in INPUTS), ("airflow", "db", "migrate"), ("airflow", "pools", "set", *pool))
    for words in setup:
        _run(console, home, environment, *words)
    directories = []
    for name in DEMO_DAGS[command]:
        say(console, f"DAG {name} runs in Airflow, with Spark as local[*]; its whole log is in {home.output}")
        _run(console, home, environment, "airflow", "dags", "test", name)
        runs = Path(standalone.DATA_ROOT, "runs", name)
        directories.append(RunDirectory(str(max(runs.iterdir(), key=lambda folder: folder.stat().st_mtime))))
    for directory in directories:
        run_view.show(directory, console)
    say(console, "To see them in the UI: make up")
    return 0


def _run(console: Console, home: standalone.Home, environment: Mapping[str, str], *words: str) -> None:
    """Run a module of Python; what our tasks log is shown."""
    with (
        home.output.open("w") as log,
        subprocess.Popen(  # noqa: S603  # our own words
            [sys.executable, "-m", *words], cwd=PROJECT, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process,
    ):  # fmt: skip
        for line in process.stdout or ():
            log.write(line)
            if found := _SHOWN.search(line):
                say(console, f"  {found[1] or found[2]}")
    if process.returncode:
        raise standalone.LocalAirflowError(f"{' '.join(words)} failed; {standalone.last_words(home)}")


if __name__ == "__main__":
    sys.exit(main())
