"""B17: whether the size that is advised is a good one: ``make bench ONLY=B17``.

Each workload is swept over cores and reducers in a process of its own; every cell is a run with a bill. Beginning with
the defaults, and with every other cell, the advice is then followed for some nights by the bills of the cells that it
leads to. Times are the shortest of the repetitions, as other work on the machine only makes them longer; core-seconds
are what all processes of the benchmark used.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.sql import SparkSession

from benchmarks.fresh_process import process
from benchmarks.result_files import DATA, Verdict, as_documents, page_of, table
from benchmarks.spark.cell import COUNT_AND_SUM, Cell, Place
from benchmarks.spark.datasets import Dataset, written
from benchmarks.spark.peers.skewless import DATE, Skewless
from benchmarks.spark.setting import CORES, described, session
from skewless.run.directory import RunDirectory
from skewless.run.sizing import Measured, advice_of, measured
from skewless_spark.entries.pipeline import Silent, run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.step_times import spark_step

NAME = "b17_right_size"
REDUCERS = (2, 4, 8, 16, 32)
#: How much longer than the best of the sweep the advised size may take, and in how many of the workloads it must not.
NEAR, AIM = 1.1, 0.8
#: A workload is repeated for so long. The first repetition is not counted; there are at least two.
REPETITIONS, PATIENCE_SECONDS, WARM = 3, 240.0, 2
NIGHTS = 4
_SKETCHES: Mapping[str, Mapping[str, Any]] = {
    "median": {"function": "approx_percentile", "column": "value", "percentage": 0.5},
    "values": {"function": "approx_count_distinct", "column": "value"},
}
#: The advice was made without a look at the last one.
WORKLOADS: Mapping[str, tuple[Dataset, Mapping[str, Mapping[str, Any]]]] = {
    "counts, Zipf keys": (Dataset(rows=4_000_000, keys=100_000, exponent=1.2, files=16), COUNT_AND_SUM),
    "sketches in Python": (
        Dataset(rows=500_000, keys=10_000, exponent=1.0, files=16),
        {"points": {"function": "streaming_histogram", "column": "value"}},
    ),
    "a hot key": (Dataset(rows=2_000_000, keys=10_000, exponent=2.0, files=16), _SKETCHES),
    "many small keys": (Dataset(rows=1_500_000, keys=1_000_000, exponent=0.0, files=16), COUNT_AND_SUM),
    "wide states": (
        Dataset(rows=300_000, keys=2_000, exponent=0.8, files=16),
        {"counts": {"function": "value_counts", "column": "value"}},
    ),
    "counts beside medians, unseen": (
        Dataset(rows=500_000, keys=20_000, exponent=1.5, files=16),
        {"n": {"function": "count"}, "middle": {"function": "exact_median", "column": "value"}},
    ),
}


#: What the page has of each sweep, and how it calls it.
_RATIOS = {
    "over_best": "advised / best", "first_over_best": "defaults / best",
    "from_worst_begin": "from the worst begin / best",
}  # fmt: skip


class Size(NamedTuple):
    """A cell of the sweep."""

    cores: int
    reducers: int


#: The size of a spec that says nothing, where all cores are given.
FIRST = Size(CORES, 8)


def measure(root: Path = DATA) -> dict[str, Any]:
    """Sweep over all workloads."""
    told = (process([sys.executable, "-m", "benchmarks.right_size", name, str(root)]).told for name in WORKLOADS)
    return document([json.loads(one.splitlines()[-1]) for one in told])


def document(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of some sweeps."""
    near = [one["over_best"] <= NEAR for one in found[:5]]
    aims = [
        Verdict(f"part of the workloads within {NEAR:g}", "the first five", sum(near) / len(near), AIM, at_least=True),
        *(Verdict("advised over best time", one["workload"], one["over_best"], NEAR) for one in found),
    ]  # fmt: skip
    return {"verdicts": as_documents(aims), "sweeps": list(found)}


def sweep(name: str, root: Path, reducers: Sequence[int] = REDUCERS, scale: float = 1.0) -> dict[str, Any]:
    """All cells of a workload, the best, and those that are advised."""
    data, aggregates = WORKLOADS[name]
    cell = Cell(name, replace(data, rows=round(data.rows * scale)), aggregates, CORES)
    source, found, began = written(cell.data, root.resolve()), dict[Size, list[Night]](), time.monotonic()
    for number in range(1 + REPETITIONS):
        for cores in (CORES, 1) if number < WARM or time.monotonic() - began < PATIENCE_SECONDS else ():
            with session(cores) as spark:
                setting = described(spark)
                # The JVM compiles what each engine runs while the first nights go on, whatever their size is.
                for size in (Size(cores, many) for many in reducers):
                    told = night(spark, cell, source, size, root)
                    if number:
                        found.setdefault(size, []).append(told)
    return {"workload": name, "setting": setting, **judged(found)}


class Night(NamedTuple):
    """A run of a cell."""

    told: Measured
    seconds: float
    core_seconds: float
    engine: str


def night(spark: SparkSession, cell: Cell, source: Path, size: Size, root: Path) -> Night:
    """Run a workload once, from its spec to its published result."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        run, place = RunDirectory(f"{scratch}/run"), Place(source, Path(scratch) / "output", Path(scratch))
        spec = Skewless("auto").spec(cell, place).with_fields({"routing.reducers": size.reducers})
        before, began = _used(), time.perf_counter()
        with spark_step(run, "prepare"):
            prepare(run, spec, DATE, scratch)
        run_pipeline(spark, run, Silent())
        seconds, used = time.perf_counter() - began, _used() - before
        engine = run.plan(run.committed_stages() - 1).engine
        found = Night(measured(run), round(seconds, 3), round(used, 3), engine)
    sys.stderr.write(f"B17 {cell.name}: {size}, {engine}: {seconds:.2f} s, {used:.2f} core-seconds\n")
    return found


def judged(found: Mapping[Size, Sequence[Night]]) -> dict[str, Any]:
    """The cells, and what the advice leads to, beside the best of them."""
    seconds = {size: min(one.seconds for one in nights) for size, nights in found.items()}
    used = {size: min(one.core_seconds for one in nights) for size, nights in found.items()}
    best = min(seconds, key=lambda size: seconds[size])
    ends = {size: followed(found, size) for size in found}
    cells = [
        {
            **size._asdict(), "seconds": [one.seconds for one in nights],
            "core_seconds": [one.core_seconds for one in nights], "engine": nights[0].engine,
            "tasks": sum(bill.tasks for _, bill in nights[0].told.bill.steps),
            "bill": nights[0].told.bill.counted._asdict(), "leads_to": ends[size],
        }
        for size, nights in found.items()
    ]  # fmt: skip
    return {
        "best": best, "advised": ends[FIRST], "over_best": round(seconds[ends[FIRST]] / seconds[best], 3),
        "core_seconds_over_best": round(used[ends[FIRST]] / min(used.values()), 3),
        "first_over_best": round(seconds[FIRST] / seconds[best], 3),
        "worst_over_best": round(max(seconds.values()) / seconds[best], 3),
        "from_worst_begin": round(max(seconds[end] for end in ends.values()) / seconds[best], 3), "cells": cells,
    }  # fmt: skip


def followed(found: Mapping[Size, Sequence[Night]], begin: Size) -> Size:
    """The size after some nights whose advice was followed, as far as there are cells."""
    size, nights, base = begin, list[Measured](), None
    for number in range(NIGHTS):
        last = found[size][number % len(found[size])].told._replace(base_cores=base)
        nights.append(last)
        cores, reducers, *_ = advice_of(nights)
        base = cores.cores
        size = Size(
            min(CORES, int(cores.then or size.cores)),
            min((one.reducers for one in found), key=lambda many: abs(many - int(reducers.then or 0))),
        )
    return size


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    setting = document["sweeps"][0]["setting"]
    rows = []
    for one in document["sweeps"]:
        cells = {Size(cell["cores"], cell["reducers"]): cell for cell in one["cells"]}
        advised, best = (cells[Size(*one[name])] for name in ("advised", "best"))
        rows.append((
            one["workload"], advised["engine"],
            *map(_in_words, (advised, best)),
            *(f"{one[name]:.2f}" for name in _RATIOS),
        ))  # fmt: skip
    head = (
        "workload", "engine", "advised cores, reducers: seconds", "best of the sweep", *_RATIOS.values(),
    )  # fmt: skip
    about = (
        f"Cores 1 and {CORES}, reducers {REDUCERS[0]} to {REDUCERS[-1]}; the advice is followed for {NIGHTS} nights,"
        f" from the defaults and from each cell. The shortest of up to {REPETITIONS} repetitions."
        f" Python {setting['python']}, Spark {setting['spark']}."
    )
    return page_of("B17: right size", about, table(head, rows))


def _in_words(cell: Mapping[str, Any]) -> str:
    """A cell and its time."""
    return f"{cell['cores']}, {cell['reducers']}: {min(cell['seconds']):.1f}"


def _used() -> float:
    """Core-seconds that this process and all below it have used so far."""
    root = psutil.Process()
    return float(sum(sum(one.cpu_times()[:4]) for one in (root, *root.children(recursive=True))))


if __name__ == "__main__":
    print(json.dumps(sweep(sys.argv[1], Path(sys.argv[2]))))
