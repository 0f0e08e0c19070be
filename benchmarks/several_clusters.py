"""Two clusters of different speed share a stage: the seconds of both together beside those of each alone.

Each cluster is a driver with a Spark of one slot, in processes of its own, warm before the clock starts. A row of the
aggregate takes as long as its cluster needs (it sleeps), so two cores are enough for both.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from benchmarks.drawing import Bar, draw_bars
from benchmarks.result_files import DATA, PROJECT, Verdict, as_documents, in_words, machine, page_of, table
from benchmarks.spark.datasets import Dataset, files_of, written
from benchmarks.spark.setting import know_plugin, session
from skewless.documents.commit import STAGE_SHARES, StageShares
from skewless.run.directory import RunDirectory, stage_step
from skewless.spec.reading import parse_spec
from skewless_spark.engines.stage import run_stage
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sharing import share_stage
from skewless_spark.states.committed_files import EVALUATED, PYTHON

NAME = "several_clusters"
KEYS, EXPONENT, REDUCERS = 10_000, 0.8, 48
#: Of a row on the fast cluster; on the slow one it takes so many times as long.
ROW_SECONDS, SLOWDOWN = 4e-4, 2.5
#: T*: what the rows alone take both clusters together, if neither is ever idle.
IDEAL_SECONDS = 60.0
ROWS = round(IDEAL_SECONDS / ROW_SECONDS * (1.0 + 1.0 / SLOWDOWN))
#: What both together may take, as a multiple of that.
AIM = 1.15
LEASE_SECONDS = 2.0
FAST, SLOW = "fast", "slow"
#: Who takes part in each measurement, and whether by leases.
WAYS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "fast alone, not shared": ((FAST,), False),
    "fast alone": ((FAST,), True),
    "slow alone": ((SLOW,), True),
    "fast and slow together": ((FAST, SLOW), True),
}
_TOGETHER = "fast and slow together"
_DATE = dt.date(2026, 1, 1)


class WrongSumsError(Exception):
    """The states of a stage do not add up to the input."""


def measure(root: Path = DATA, scale: float = 1.0) -> dict[str, Any]:
    """Run the same stage in each way, one after the other.

    Raises:
        WrongSumsError: a way lost rows or counted some twice.
    """
    know_plugin()
    source = written(Dataset(rows=round(ROWS * scale), keys=KEYS, exponent=EXPONENT, files=8), root)
    small = written(Dataset(rows=2_000, keys=200, exponent=EXPONENT, files=4), root)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        ways = {
            way: _measured(Path(scratch) / str(number), source, small, clusters, shared=shared)
            for number, (way, (clusters, shared)) in enumerate(WAYS.items())
        }
    found = ratios({way: one["seconds"] for way, one in ways.items()}, IDEAL_SECONDS * scale)
    aims = [
        Verdict("wall over the ideal of both", "two clusters", found["together_over_ideal"], AIM),
        Verdict("the fast one alone, over both together", "two clusters", found["fast_over_together"], 1.0, True),
        Verdict("the same without leases", "two clusters", found["not_shared_over_together"], 1.0, True),
    ]
    return {
        "verdicts": as_documents(aims),
        "rows": round(ROWS * scale), "reducers": REDUCERS, "row_seconds": ROW_SECONDS, "slowdown": SLOWDOWN,
        "lease_seconds": LEASE_SECONDS,
        "setting": machine(spark="pyspark"),
        "ideal_seconds": IDEAL_SECONDS * scale, "aim": AIM, "ways": ways,
        "ratios": found,
    }  # fmt: skip


def ratios(seconds: Mapping[str, float], ideal_seconds: float) -> dict[str, float]:
    """How many times as long as both together the others took, and both together beside what no two could beat."""
    fast, slow, together = seconds["fast alone"], seconds["slow alone"], seconds[_TOGETHER]
    return {
        "fast_over_together": round(fast / together, 3),
        "slow_over_together": round(slow / together, 3),
        "together_over_ideal": round(together / ideal_seconds, 3),
        "not_shared_over_together": round(seconds["fast alone, not shared"] / together, 3),
        "shared_over_not": round(fast / seconds["fast alone, not shared"], 3),
    }


def sentence(document: Mapping[str, Any]) -> str:
    """The figures in one sentence."""
    ways, found = document["ways"], document["ratios"]
    tasks = ways[_TOGETHER]["tasks"]
    verdict = "met" if found["together_over_ideal"] <= document["aim"] else "NOT MET"
    return (
        f"both together {ways[_TOGETHER]['seconds']:.1f} s, with {tasks.get(FAST, 0)} tasks on the fast cluster and"
        f" {tasks.get(SLOW, 0)} on the slow one; the fast one alone takes {found['fast_over_together']:.2f} times as"
        f" long, the slow one {found['slow_over_together']:.2f} times. The rows alone take both"
        f" {document['ideal_seconds']:g} s, so this is {found['together_over_ideal']:.2f} of the ideal"
        f" (at most {document['aim']:g}: {verdict}). Without leases the fast one alone takes"
        f" {found['not_shared_over_together']:.2f} of the time of both together; with them"
        f" {found['shared_over_not']:.2f} times as long as without"
    )


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    lines = []
    for way, found in document["ways"].items():
        tasks = ", ".join(f"{cluster} {count}" for cluster, count in found["tasks"].items())
        lines.append((way, f"{found['seconds']:.1f}", tasks, found["routed_by"]))
    about = (
        f"One stage of {document['rows']:,} rows in {document['reducers']} virtual tasks; a row takes"
        f" {document['row_seconds'] * 1000:g} ms on the fast cluster and {document['slowdown']:g} times as long on the"
        f" slow one, and each has one slot. Leases of {document['lease_seconds']:g} s. Timed from warm clusters to"
        f" the commit. Setting: {in_words(document['setting'])}."
    )
    return page_of(
        "One stage on two clusters",
        f"{sentence(document)[:1].upper()}{sentence(document)[1:]}.",
        about,
        f"![Seconds of each way]({NAME}.svg)",
        table(("clusters", "seconds", "virtual tasks", "routed by"), lines),
    )


def plot(document: Mapping[str, Any], path: Path) -> None:
    """A bar for each way."""
    ways = document["ways"]
    bars = [Bar(way, found["seconds"], ours=way == _TOGETHER) for way, found in ways.items()]
    draw_bars(bars, path, NAME, "seconds of the stage", height=1.7, form="{:.1f}")


def _measured(scratch: Path, source: Path, small: Path, clusters: Sequence[str], *, shared: bool) -> dict[str, Any]:
    run = _prepared(scratch / "run", source, ROW_SECONDS)
    with ExitStack() as stack:
        processes = []
        for cluster in clusters:
            warm_up = _prepared(scratch / f"warm-up-{cluster}", small, 0.0)
            processes.append(stack.enter_context(_cluster(run, warm_up, cluster, shared=shared)))
        for process in processes:
            if _line(process) != "ready":
                raise subprocess.CalledProcessError(process.wait(), "a cluster of the benchmark")
        began = time.monotonic()
        for process in processes:
            _tell(process)
        while not run.exists(f"{stage_step(0)}/COMMIT.json"):
            if all(process.poll() is not None for process in processes):
                raise subprocess.CalledProcessError(processes[0].wait(), "a cluster of the benchmark")
            time.sleep(0.01)
        seconds = time.monotonic() - began
    _require_sums(run, source)
    commit = run.committed(stage_step(0))
    if not shared:
        return {"seconds": round(seconds, 2), "tasks": {clusters[0]: REDUCERS}, "routed_by": clusters[0]}
    shares = run.committed_document(commit, STAGE_SHARES, StageShares)
    return {"seconds": round(seconds, 2), "tasks": shares.done, "routed_by": shares.routed_by}


def _prepared(folder: Path, source: Path, row_seconds: float) -> RunDirectory:
    raw = {
        "name": NAME,
        "input": {"path": str(source)},
        "key": "key",
        "aggregates": {"total": {"function": "paced_sum", "column": "value", "seconds_per_row": row_seconds}},
        "engine": "staged",
        "sharing": {"lease_seconds": LEASE_SECONDS},
        "routing": {"policy": "static", "reducers": REDUCERS, "waves": [1], "first_plan": []},
        "output": {"path": str(folder.parent / "published")},
    }
    run = RunDirectory(str(folder))
    prepare(run, parse_spec(yaml.safe_dump(raw)), _DATE, str(folder.parent))
    return run


def _cluster(run: RunDirectory, warm_up: RunDirectory, name: str, *, shared: bool) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.several_clusters", "--run-dir", run.root, "--warm-up", warm_up.root]
    return subprocess.Popen(  # noqa: S603  # our own module
        [*words, "--cluster", name, *([] if shared else ["--unshared"])],
        cwd=PROJECT,
        env={**os.environ, "SKEWLESS_BENCHMARKS_SLOWDOWN": str(SLOWDOWN if name == SLOW else 1.0)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip() if process.stdout else ""


def _tell(process: subprocess.Popen[str]) -> None:
    if process.stdin:
        process.stdin.write("go\n")
        process.stdin.flush()


def _require_sums(run: RunDirectory, source: Path) -> None:
    """Add up the states; the stage of one process alone has evaluated those of whole keys, into the same sum."""
    files = [file for file in run.committed(stage_step(0)).files if file.kind in {PYTHON, EVALUATED}]
    came = 0
    for file in files:
        states = pq.ParquetFile(run.path(file.path))
        for column in {"s0_0", "r0"} & set(states.schema_arrow.names):
            came += pc.sum(states.read([column])[column]).as_py() or 0
    wanted = sum(pc.sum(pq.read_table(path, columns=["value"])["value"]).as_py() for path in files_of(source))
    if came != wanted:
        raise WrongSumsError(f"the states of {run} add up to {came:,}, and the input to {wanted:,}")


def work_as_cluster() -> None:
    """A cluster of its own: says ``ready`` once it is warm, waits for a line, and runs stage 0 of a run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--warm-up", required=True, help="the run directory of a small run of the same job")
    parser.add_argument("--cluster", required=True)
    parser.add_argument(
        "--unshared", action="store_true", help="run the stage on this cluster alone, without sharing it"
    )
    given = parser.parse_args()
    run = RunDirectory(given.run_dir)
    with session(slots=1) as spark:
        for one in (RunDirectory(given.warm_up), run):
            if one is run:
                print("ready", flush=True)
                sys.stdin.readline()
            if given.unshared:
                run_stage(spark, one, 0)
            else:
                share_stage(spark, one, 0, given.cluster)


if __name__ == "__main__":
    work_as_cluster()
