"""``python -m deploy.cluster up|down``: the services of docker-compose.yml as processes."""

from __future__ import annotations

import sys
import time

from rich.console import Console

from deploy.cluster import running
from deploy.cluster.composition import ClusterError
from deploy.commands import run_command
from skewless_cli import say


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit code."""
    return run_command("python -m deploy.cluster", __doc__, {"up": up, "down": down}, ClusterError, arguments)


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
                say(console, f"{time.monotonic() - begun:5.0f} s  {service} is up")

        try:
            found = running.start(home, tell)
        except BaseException:
            running.stop(home)
            raise
    say(console, f"Airflow:        {found.url}")
    say(console, f"Spark master:   {found.address(8090)}")
    say(console, f"Spark history:  {found.address(18080)}")
    say(console, f"Object store:   {found.address(9000)}, bucket lake")
    say(console, f"Log in as {running.USER}; the password is SKEWLESS_ADMIN_PASSWORD in {home.secrets}")
    if console.is_terminal:  # never into a file or a CI log
        say(console, f"  user      {running.USER}\n  password  {running.password(home)}")
    say(console, f"What each service says is in {home.output}")
    say(console, "Stop it with: make cluster-down")
    return 0


def down(console: Console) -> int:
    """Stop the cluster; its data stay."""
    say(console, "The cluster is stopped." if running.stop(running.default_home()) else "The cluster was not running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
