"""The demo's job in a new process of plain PySpark, on sources that Spark's own reader reads: for B8 and B11."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result_files import PROJECT
from examples.demo_corpus import SOURCES, copy_sources

PLAIN = "plain PySpark"
#: An aim.
FRESH = "`skewless run` over plain PySpark, in fresh processes"


def readable_sources(root: Path) -> Path:
    """Copy the sources below a data root, but for those that Spark leaves out: names that begin with an underscore."""
    folder = root / "corpus" / SOURCES
    copy_sources(folder)
    for path in [*folder.rglob("_*/*.py"), *folder.rglob("_*.py")]:
        path.unlink(missing_ok=True)
    return folder


def plain_tokens(sources: Path, output: Path) -> float:
    """Count the tokens in plain PySpark; the seconds of the process."""
    return process([sys.executable, "-m", "benchmarks.plain_tokens", str(sources), str(output)])[0]


def process(command: Sequence[str]) -> tuple[float, str]:
    """Run a command in the project's folder; its seconds and what it says.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = {**os.environ, "SKEWLESS_DRIVER_MEMORY": "2g"}  # as in the plain script
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603  # our own commands
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment
    )
    return round(time.perf_counter() - began, 2), done.stdout


def skewless_run(*words: str) -> tuple[float, str]:
    """``skewless run`` in a new process; its seconds and what it says."""
    return process([str(Path(sys.executable).with_name("skewless")), "run", *words, "--json"])
