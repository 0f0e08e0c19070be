"""How much memory a run takes that has more keys than fit: 20 M rows, 5 M keys, a sketch for each key.

`skewless run` in one process tree of its own (Spark's driver is its executor too), and the resident memory of the
whole tree, asked several times a second.

What the driver needs is to be the same for few and many keys: the same job with an executor of its own (Spark's
``local-cluster``), once for 1 M and once for 5 M keys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.result_files import DATA, Verdict, as_documents, page_of, table
from benchmarks.spark.datasets import Dataset, written
from skewless.run.directory import RESULT_STEP, RunDirectory

NAME = "memory"
ROWS, KEYS = 20_000_000, 5_000_000
#: What all processes together may take at once, and the heap of the JVM among it.
LIMIT_GIB = 6.0
HEAP = "4g"
REDUCERS = 16
#: Keys to draw from where driver and executor are apart; the driver's peak with the last over that with the first.
APART, FLAT = (1_000_000, 5_000_000), 1.1
#: The heaps there. A driver that kept keys would need more with more of them, or fail.
APART_HEAP, EXECUTOR_MIB = "1g", 3072
_GIB = 2**30
_EACH_SECONDS = 0.2


class Peak:
    """The most memory that a process and all below it held at once, in bytes.

    Attributes:
        total: of all of them.
        by_name: what each kind of process had of it at that moment.
        of_driver: the most that those of them held at once that are no executor and no Python worker.
    """

    def __init__(self) -> None:
        self.total = 0
        self.by_name: dict[str, int] = {}
        self.of_driver = 0

    def look(self, root: psutil.Process) -> None:
        """Take note of this moment."""
        held: dict[str, int] = {}
        driver = 0
        for process in (root, *_below(root)):
            try:
                name, memory = "java" if "java" in process.name() else "python", int(process.memory_info().rss)
                driver += 0 if _works(process) else memory
                held[name] = held.get(name, 0) + memory
            except psutil.NoSuchProcess:
                continue
        self.of_driver = max(self.of_driver, driver)
        if sum(held.values()) > self.total:
            self.total, self.by_name = sum(held.values()), held


def measure(root: Path = DATA, scale: float = 1.0) -> dict[str, Any]:
    """Run the job once in one process, and twice with an executor of its own.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    whole = _run(root, round(ROWS * scale), round(KEYS * scale), "local[2]", HEAP)
    cluster = f"local-cluster[1,2,{EXECUTOR_MIB}]"
    apart = [_run(root, round(ROWS * scale), round(keys * scale), cluster, APART_HEAP) for keys in APART]
    grown = apart[-1]["driver_gib"] / apart[0]["driver_gib"]
    aims = [
        Verdict("GiB of all processes together", "20 M rows, 5 M keys", whole["peak_gib"], LIMIT_GIB),
        Verdict("the driver's memory with 5 M keys over that with 1 M", "20 M rows", round(grown, 3), FLAT),
    ]
    del whole["driver_gib"]  # Spark's executor is in the driver there
    return {"verdicts": as_documents(aims), **whole, "limit_gib": LIMIT_GIB, "apart": apart}


def _run(root: Path, rows: int, keys: int, master: str, heap: str) -> dict[str, Any]:
    """The job once, on keys that are equally frequent."""
    data = Dataset(rows=rows, keys=keys, exponent=0.0)
    source = written(data, root)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        spec = _spec(source, Path(scratch))
        began = time.monotonic()
        with _watched(_command(spec, Path(scratch), master), Path(scratch), heap) as (process, peak):
            output, _ = process.communicate()
        seconds = time.monotonic() - began
        if process.returncode:
            sys.stderr.write(output.decode(errors="replace"))
            raise subprocess.CalledProcessError(process.returncode, "skewless run")
        found = json.loads(output)
        count = RunDirectory(str(Path(scratch) / "run")).committed(RESULT_STEP).counts["keys"]
    return {
        "rows": rows, "keys_drawn_from": keys, "keys": count, "stages": len(found["stages"]), "heap": heap,
        "peak_gib": round(peak.total / _GIB, 3), "driver_gib": round(peak.of_driver / _GIB, 3),
        "seconds": round(seconds, 1),
        "peak_of": {name: round(held / _GIB, 3) for name, held in sorted(peak.by_name.items())},
        "balanced": found["ledger"]["balanced"],
    }  # fmt: skip


def sentence(document: Mapping[str, Any]) -> str:
    """The figure in words."""
    parts = ", ".join(f"{held:.2f} of {name}" for name, held in document["peak_of"].items())
    verdict = "met" if document["peak_gib"] <= document["limit_gib"] else "NOT MET"
    return (
        f"{document['rows']:,} rows with {document['keys']:,} keys and approx_count_distinct took at most"
        f" {document['peak_gib']:.2f} GiB of driver and executor together ({parts}), of {document['limit_gib']:g}"
        f" allowed: {verdict}; {document['stages']} stages, {document['seconds']:,.0f} s"
    )


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    lines = [
        (f"{one['keys']:,}", one["heap"], *(f"{one[name]:.2f}" for name in ("driver_gib", "peak_gib")),
         f"{one['seconds']:,.0f}")
        for one in document["apart"]
    ]  # fmt: skip
    found = table(("keys", "heap of the driver", "driver, GiB", "all processes, GiB", "s"), lines)
    about = (
        f"Resident memory of `skewless run` and all below it, asked every {_EACH_SECONDS:g} s; a heap of"
        f" {document['heap']}, engine `staged`, {REDUCERS} reducers."
    )
    apart = f"The same with an executor of its own, of {EXECUTOR_MIB} MiB. The driver is its JVM and `skewless` itself:"
    return page_of("Memory", f"{sentence(document)}.", about, apart, found)


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


def _command(spec: Path, scratch: Path, master: str) -> list[str]:
    run = ["run", str(spec), "--run-dir", str(scratch / "run"), "--master", master, "--json"]
    return [str(Path(sys.executable).with_name("skewless")), *run]


@contextmanager
def _watched(command: Sequence[str], folder: Path, heap: str) -> Iterator[tuple[subprocess.Popen[bytes], Peak]]:
    (folder / "spark-defaults.conf").write_text(f"spark.executor.memory {EXECUTOR_MIB}m\n", encoding="utf-8")
    environment = {**os.environ, "SKEWLESS_DRIVER_MEMORY": heap, "SPARK_CONF_DIR": str(folder)}
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


def _works(process: psutil.Process) -> bool:
    """Whether a process is an executor that is no driver, or a Python worker."""
    return any("CoarseGrainedExecutorBackend" in part or part == "pyspark.daemon" for part in process.cmdline())


def _below(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
