"""``python -m deploy.cluster up|down``: the services of docker-compose.yml as processes."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from rich.console import Console

from deploy.cluster import running
from deploy.cluster.errors import ClusterError


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster", description=__doc__)
    parser.add_argument("command", choices=("up", "down"))
    command = {"up": up, "down": down}[parser.parse_args(arguments).command]
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console()
    try:
        return command(console)
    except ClusterError as err:
        _say(console, str(err))
    except KeyboardInterrupt:
        _say(console, "Interrupted.")
        return 130
    return 1


def up(console: Console) -> int:
    """Start the cluster and say how to log in; it stays up."""
    home = running.default_home()
    found = running.running(home)
    if found is None:
        begun = time.monotonic()
        told: set[str] = set()

        def tell(service: str) -> None:
            if service not in told:
                told.add(service)
                _say(console, f"{time.monotonic() - begun:5.0f} s  {service} is up")

        try:
            found = running.start(home, tell)
        except BaseException:
            running.stop(home)
            raise
    _say(console, f"Airflow:        {found.url}")
    _say(console, f"Spark master:   {found.address(8090)}")
    _say(console, f"Spark history:  {found.address(18080)}")
    _say(console, f"Log in as {running.USER}; the password is SKEWLESS_ADMIN_PASSWORD in {home.secrets}")
    if console.is_terminal:  # never into a file or a CI log
        _say(console, f"  user      {running.USER}\n  password  {running.password(home)}")
    _say(console, f"What each service says is in {home.output}")
    _say(console, "Stop it with: make cluster-down")
    return 0


def down(console: Console) -> int:
    """Stop the cluster; its data stay."""
    _say(console, "The cluster is stopped." if running.stop(running.default_home()) else "The cluster was not running.")
    return 0


def _interrupt(_sign: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
