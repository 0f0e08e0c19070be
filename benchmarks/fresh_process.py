"""The demo's job in a new process of plain PySpark, on sources that Spark's own reader reads: for B8 and B11."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.result_files import PROJECT
from examples.demo_corpus import SOURCES, copy_sources
from skewless.run.directory import RunDirectory
from skewless.run.step_times import times_of, waterfall

PLAIN = "plain PySpark"
#: An aim.
FRESH = "`skewless run` over plain PySpark, in fresh processes"
#: Where the example of a mapper is, for the ``PYTHONPATH``.
OWN_MAPPER = str(PROJECT / "examples" / "own_mapper")


def demo_spec() -> dict[str, Any]:
    """The demo's job with its map in Python, by the example of a mapper, as in the plain script."""
    spec = yaml.safe_load((PROJECT / "jobs" / "catalog" / "python_tokens.yaml").read_text(encoding="utf-8"))
    spec["aggregates"]["places"]["column"] = "column"
    return {**spec, "map": {"mapper": "tokens"}}


def readable_sources(root: Path) -> Path:
    """Copy the sources below a data root, but for those that Spark leaves out: names that begin with an underscore."""
    folder = root / "corpus" / SOURCES
    copy_sources(folder)
    for path in [*folder.rglob("_*/*.py"), *folder.rglob("_*.py")]:
        path.unlink(missing_ok=True)
    return folder


def plain_tokens(sources: Path, output: Path) -> float:
    """Count the tokens in plain PySpark; the seconds of the process."""
    return process([sys.executable, "-m", "benchmarks.plain_tokens", str(sources), str(output)]).seconds


class Done(NamedTuple):
    """A process that ended well.

    Attributes:
        started: seconds since the epoch.
        told: what it wrote.
        seconds: until it had ended.
    """

    started: float
    told: str
    seconds: float


def process(command: Sequence[str]) -> Done:
    """Run a command in the project's folder.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": OWN_MAPPER, "SKEWLESS_DRIVER_MEMORY": "2g"}  # as in the plain script
    started, began = time.time(), time.perf_counter()
    done = subprocess.run(  # noqa: S603  # our own commands
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment
    )
    return Done(started, done.stdout, round(time.perf_counter() - began, 2))


def skewless_run(*words: str) -> Done:
    """``skewless run`` in a new process, which tells JSON."""
    return process([str(Path(sys.executable).with_name("skewless")), "run", *words, "--json"])


def parts_of_plain(done: Done) -> dict[str, float]:
    """Where the seconds of a plain script went that tells the time after each part."""
    found, before = {}, done.started
    for line in done.told.splitlines():
        name, _, at = line.rpartition(" ")
        found[name], before = round(float(at) - before, 2), float(at)
    return {**found, "stop Spark, end": round(done.started + done.seconds - before, 2)}


def parts_of_ours(done: Done) -> dict[str, float]:
    """Where the seconds of ``skewless run`` went: its steps as ``skewless show --times`` has them, stages by parts."""
    steps = times_of(RunDirectory(json.loads(done.told)["run_dir"]))
    found = defaultdict[str, float](float, {"before the first step": steps[0].started - done.started})
    above: list[str] = []
    for line in waterfall(steps):
        above = [*above[: line.depth], line.name if line.depth else line.name.rstrip(" 0123456789")]
        if line.depth == 0 or above[0] == "stage":
            found[", ".join(above[-2:])] += line.seconds
            if line.depth:
                found[", ".join(above[-3:-1])] -= line.seconds
    found["after the last step"] = done.started + done.seconds - steps[-1].ended
    return {name: round(seconds, 2) for name, seconds in found.items()}


def means(parts: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """The mean seconds of each part of each way, over its runs; a part that a run does not have took none of it."""
    return {
        way: {
            name: round(sum(run.get(name, 0.0) for run in runs) / len(runs), 2)
            for name in dict.fromkeys(name for run in runs for name in run)
        }
        for way, runs in parts.items()
    }
