"""How much memory a run takes that has more keys than fit: 1 M and 5 M keys, four rows and a sketch for each key.

`skewless run` in one process tree of its own, and the resident memory of its processes, asked several times a second.
Spark's executor is a process beside the driver, so that it is seen which of the two grows with the keys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.result_files import RESULTS, write_results
from benchmarks.spark.datasets import Dataset, written
from benchmarks.verdicts import Verdict, as_documents
from skewless.run.directory import RESULT_STEP, RunDirectory

#: Few and many keys.
KEYS = (1_000_000, 5_000_000)
ROWS_OF_A_KEY = 4
#: What all processes together may take at once; and the driver with many keys, as a multiple of what it takes with few.
LIMIT_GIB, MOST_GROWTH = 6.0, 1.1
#: Heaps of the JVMs among it.
DRIVER_HEAP, EXECUTOR_HEAP_MIB = "1g", 3072
MASTER = f"local-cluster[1,2,{EXECUTOR_HEAP_MIB}]"
REDUCERS = 16
#: Processes by their part: Spark's own name of the program is in the command line of an executor's JVM.
DRIVER, EXECUTOR, _EXECUTOR_PROGRAM = "driver", "executor", "CoarseGrainedExecutorBackend"
_GIB = 2**30
_EACH_SECONDS = 0.2


class Peak:
    """The most memory that a process and all below it held at once, in bytes: in all, and each part of them."""

    def __init__(self) -> None:
        self.total = 0
        self.of_part = dict.fromkeys((DRIVER, EXECUTOR), 0)

    def look(self, root: psutil.Process) -> None:
        """Take note of this moment."""
        held = {DRIVER: _memory(root), EXECUTOR: 0}
        parts = {root.pid: DRIVER}
        for process in _below(root):  # parents come before their children
            try:
                above = parts.get(process.ppid(), DRIVER)
                parts[process.pid] = EXECUTOR if _EXECUTOR_PROGRAM in " ".join(process.cmdline()) else above
            except psutil.NoSuchProcess:
                continue
            held[parts[process.pid]] += _memory(process)
        self.total = max(self.total, sum(held.values()))
        self.of_part = {part: max(most, held[part]) for part, most in self.of_part.items()}


def main(arguments: Sequence[str] = (), folder: Path = RESULTS) -> None:
    """Measure, print, and write ``memory.json`` and ``memory.md``."""
    del arguments
    document = measure(Path(__file__).parents[1] / "data" / "bench")
    write_results(folder, "memory", document, page(document))
    sys.stdout.write(f"memory: {sentence(document)}\n")


def measure(root: Path, scale: float = 1.0) -> dict[str, Any]:
    """Run the job once with few keys and once with many.

    Raises:
        subprocess.CalledProcessError: a run failed.
    """
    few, many = lines = [_measured(root, round(keys * scale)) for keys in KEYS]
    growth = round(many["driver_gib"] / few["driver_gib"], 3)
    aims = [
        Verdict("GiB of all processes together", "5 M keys", many["peak_gib"], LIMIT_GIB),
        Verdict("the driver's GiB with 5 M keys over those with 1 M", "1 M and 5 M keys", growth, MOST_GROWTH),
    ]
    return {
        "row": "B12", "verdicts": as_documents(aims), "rows_of_a_key": ROWS_OF_A_KEY, "driver_heap": DRIVER_HEAP,
        "executor_heap_mib": EXECUTOR_HEAP_MIB, "lines": lines,
    }  # fmt: skip


def sentence(document: dict[str, Any]) -> str:
    """The figures in words."""
    return "; ".join(verdict["words"] for verdict in document["verdicts"])


def page(document: dict[str, Any]) -> str:
    """The page, in Markdown."""
    table = [
        "| keys | rows | driver, GiB | executor, GiB | all at once, GiB | stages | s |",
        "|---|---|---|---|---|---|---|",
    ]
    table += [
        f"| {line['keys']:,} | {line['rows']:,} | {line['driver_gib']:.2f} | {line['executor_gib']:.2f} |"
        f" {line['peak_gib']:.2f} | {line['stages']} | {line['seconds']:,.0f} |"
        for line in document["lines"]
    ]
    about = (
        f"Resident memory of `skewless run` and all below it, asked every {_EACH_SECONDS:g} s, at its peak. The driver"
        f" is the command and its JVM, with a heap of {document['driver_heap']}; the executor has a heap of"
        f" {document['executor_heap_mib']:,} MiB and two slots. Uniform keys, `approx_count_distinct`, engine `staged`,"
        f" {REDUCERS} reducers."
    )
    words = "\n".join(f"- {verdict['words']}" for verdict in document["verdicts"])
    return "\n\n".join(["# Memory", about, words, "\n".join(table)]) + "\n"


def _measured(root: Path, keys: int) -> dict[str, Any]:
    """A run with about so many keys."""
    data = Dataset(rows=keys * ROWS_OF_A_KEY, keys=keys, exponent=0.0)
    source = written(data, root)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        spec = _spec(source, Path(scratch))
        began = time.monotonic()
        with _watched(_command(spec, Path(scratch)), Path(scratch)) as (process, peak):
            output, _ = process.communicate()
        seconds = time.monotonic() - began
        if process.returncode:
            sys.stderr.write(output.decode(errors="replace"))
            raise subprocess.CalledProcessError(process.returncode, "skewless run")
        found = json.loads(output)
        made = RunDirectory(str(Path(scratch) / "run")).committed(RESULT_STEP).counts["keys"]
    return {
        "keys": made, "rows": data.rows, "stages": len(found["stages"]), "balanced": found["ledger"]["balanced"],
        "peak_gib": round(peak.total / _GIB, 3), "seconds": round(seconds, 1),
        **{f"{part}_gib": round(most / _GIB, 3) for part, most in peak.of_part.items()},
    }  # fmt: skip


def _spec(source: Path, scratch: Path) -> Path:
    raw = {
        "name": "memory",
        "input": {"path": str(source)},
        "key": "key",
        "aggregates": {"distinct": {"function": "approx_count_distinct", "column": "value"}},
        "engine": "staged",
        "routing": {"reducers": REDUCERS},
        "output": {"path": str(scratch / "published")},
    }
    spec = scratch / "memory.yaml"
    spec.write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")
    return spec


def _command(spec: Path, scratch: Path) -> list[str]:
    run = ["run", str(spec), "--run-dir", str(scratch / "run"), "--master", MASTER, "--json"]
    return [str(Path(sys.executable).with_name("skewless")), *run]


@contextmanager
def _watched(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Peak]]:
    (folder / "spark-defaults.conf").write_text(f"spark.executor.memory {EXECUTOR_HEAP_MIB}m\n", encoding="utf-8")
    environment = {**os.environ, "SKEWLESS_DRIVER_MEMORY": DRIVER_HEAP, "SPARK_CONF_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log
        )
    peak, ended = Peak(), threading.Event()
    root = psutil.Process(process.pid)

    def watch() -> None:
        while not ended.wait(_EACH_SECONDS):
            try:
                peak.look(root)
            except psutil.NoSuchProcess:
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield process, peak
    finally:
        ended.set()
        thread.join()


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _below(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
