"""How much memory a run takes that has more keys than fit: 20 M rows, 5 M keys, a sketch for each key.

`skewless run` in one process tree of its own (Spark's driver is its executor too), and the resident memory of the
whole tree, asked several times a second.
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

ROWS, KEYS = 20_000_000, 5_000_000
#: What all processes together may take at once, and the heap of the JVM among it.
LIMIT_GIB = 6.0
HEAP = "4g"
REDUCERS = 16
_GIB = 2**30
_EACH_SECONDS = 0.2


class Peak:
    """The most memory that a process and all below it held at once, in bytes."""

    def __init__(self) -> None:
        self.total = 0
        self.by_name: dict[str, int] = {}

    def look(self, root: psutil.Process) -> None:
        """Take note of this moment."""
        held: dict[str, int] = {}
        for process in (root, *_below(root)):
            try:
                name = "java" if "java" in process.name() else "python"
                held[name] = held.get(name, 0) + int(process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
        if sum(held.values()) > self.total:
            self.total, self.by_name = sum(held.values()), held


def main(arguments: Sequence[str] = (), folder: Path = RESULTS) -> None:
    """Measure, print, and write ``memory.json`` and ``memory.md``."""
    del arguments
    document = measure(Path(__file__).parents[1] / "data" / "bench")
    write_results(folder, "memory", document, page(document))
    sys.stdout.write(f"memory: {sentence(document)}\n")


def measure(root: Path, scale: float = 1.0) -> dict[str, Any]:
    """Run the job once.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    data = Dataset(rows=round(ROWS * scale), keys=round(KEYS * scale), exponent=0.0)
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
        keys = RunDirectory(str(Path(scratch) / "run")).committed(RESULT_STEP).counts["keys"]
    aim = Verdict("GiB of all processes together", "20 M rows, 5 M keys", round(peak.total / _GIB, 3), LIMIT_GIB)
    return {
        "verdicts": as_documents([aim]),
        "rows": data.rows, "keys_drawn_from": data.keys, "keys": keys, "stages": len(found["stages"]),
        "heap": HEAP, "limit_gib": LIMIT_GIB, "peak_gib": round(peak.total / _GIB, 3), "seconds": round(seconds, 1),
        "peak_of": {name: round(held / _GIB, 3) for name, held in sorted(peak.by_name.items())},
        "balanced": found["ledger"]["balanced"],
    }  # fmt: skip


def sentence(document: dict[str, Any]) -> str:
    """The figure in words."""
    parts = ", ".join(f"{held:.2f} of {name}" for name, held in document["peak_of"].items())
    verdict = "met" if document["peak_gib"] <= document["limit_gib"] else "NOT MET"
    return (
        f"{document['rows']:,} rows with {document['keys']:,} keys and approx_count_distinct took at most"
        f" {document['peak_gib']:.2f} GiB of driver and executor together ({parts}), of {document['limit_gib']:g}"
        f" allowed: {verdict}; {document['stages']} stages, {document['seconds']:,.0f} s"
    )


def page(document: dict[str, Any]) -> str:
    """The page, in Markdown."""
    return (
        f"# Memory\n\n{sentence(document)}.\n\nResident memory of `skewless run` and all below it, asked every"
        f" {_EACH_SECONDS:g} s; a heap of {document['heap']}, engine `staged`, {REDUCERS} reducers.\n"
    )


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
    run = ["run", str(spec), "--run-dir", str(scratch / "run"), "--master", "local[2]", "--json"]
    return [str(Path(sys.executable).with_name("skewless")), *run]


@contextmanager
def _watched(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Peak]]:
    environment = {**os.environ, "SKEWLESS_DRIVER_MEMORY": HEAP}
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


def _below(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
