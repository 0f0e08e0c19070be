"""B11: what a stage and a whole run cost beside plain Spark: ``make bench ONLY=B11``.

A warm stage is measured beside ``groupBy().agg`` of the same rows in the same session, in turn. Whole runs are
processes of their own, in turn with a process of plain PySpark that does the demo's job; their answers are compared.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.dataset as ds
import yaml
from pyspark.sql import SparkSession

from benchmarks.fresh_process import FRESH, PLAIN, demo_spec, plain_tokens, readable_sources, skewless_run
from benchmarks.result_files import DATA, Verdict, as_documents, page_of, table
from benchmarks.spark.cell import COUNT_AND_SUM, Cell, Place
from benchmarks.spark.datasets import Dataset, written
from benchmarks.spark.measurement import WrongAnswerError
from benchmarks.spark.peers.builtin import Builtin
from benchmarks.spark.peers.skewless import DATE, Skewless
from benchmarks.spark.setting import CORES, described, session
from skewless.documents.stage_report import SparkWork
from skewless.run.directory import RunDirectory
from skewless_spark.engines.stage import run_stage
from skewless_spark.prepare.prepare import prepare

NAME = "b11_price"
SIZES = (10_000, 100_000, 1_000_000)
REPETITIONS = 3
FIRST, LATER, STAGES = "first night", "later night", "four stages"
#: Options of ``skewless run``. Before the first night nothing is known of the keys; later ones start from its counts.
WAYS: Mapping[str, Sequence[str]] = {FIRST: (), LATER: (), STAGES: ("--set", "routing.stage_overhead=0")}

MOST_EXECUTIONS, MOST_JOBS, READ_ONE_KIND, READ_BOTH_KINDS = 2, 3, 1.1, 2.1
STAGE_SECONDS = 1.0
RATIOS: Mapping[str, float] = {LATER: 1.5, STAGES: 2.0}


def measure(root: Path = DATA, sizes: Sequence[int] = SIZES, repetitions: int = REPETITIONS) -> dict[str, Any]:
    """All of it; inputs are kept below ``root``, and scratch is."""
    root = root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        with session(CORES) as spark:
            setting = described(spark)
            warm = [warm_stage(spark, rows, repetitions, root, Path(scratch)) for rows in sizes]
        fresh = fresh_processes(repetitions, Path(scratch))
    found = {"repetitions": repetitions, "setting": setting, "warm": warm, "fresh": fresh}
    return {**found, "verdicts": as_documents(verdicts(found))}


def warm_stage(spark: SparkSession, rows: int, repetitions: int, root: Path, scratch: Path) -> dict[str, Any]:
    """A stage that takes an input at once, and plain Spark, in turn; each is run once before it counts."""
    data = Dataset(rows=rows, keys=rows // 10, exponent=1.2, files=8)
    cell = Cell("stage", data, COUNT_AND_SUM, CORES, routing={"waves": [1], "first_plan": [], "policy": "adaptive"})
    folder, ours, plain, work = written(data, root), [], [], None
    for number in range(repetitions + 1):
        own = Path(tempfile.mkdtemp(dir=scratch))
        place = Place(folder, own / "output", own / "scratch")
        place.scratch.mkdir()
        began = time.perf_counter()
        Builtin().run(spark, cell, place)
        plain_seconds = time.perf_counter() - began
        run = RunDirectory(str(place.scratch / "run"))
        prepare(run, Skewless("staged").spec(cell, place), DATE, str(place.scratch))
        began = time.perf_counter()
        work = run_stage(spark, run, 0).work
        seconds = time.perf_counter() - began
        shutil.rmtree(own)
        if number:
            ours.append(round(seconds, 3))
            plain.append(round(plain_seconds, 3))
        _told(f"{rows:,} rows: a stage {seconds:.2f} s, plain Spark {plain_seconds:.2f} s")
    beyond = median(one - other for one, other in zip(ours, plain, strict=True))
    return {
        "rows": rows, "stage_seconds": ours, "plain_seconds": plain, "seconds_beyond": round(beyond, 3),
        "work": work and work.model_dump(),
    }  # fmt: skip


def fresh_processes(repetitions: int, scratch: Path) -> dict[str, Any]:
    """The demo's job in plain PySpark and by ``skewless run``, each time in a new process and, of ours, the stages."""
    seconds: dict[str, list[float]] = {way: [] for way in (PLAIN, *WAYS)}
    stages: dict[str, list[dict[str, Any]]] = {}
    for number in range(repetitions):
        root = scratch / f"root-{number}"
        sources, output, spec = readable_sources(root), root / "plain", root / "python_tokens.yaml"
        # It has native and Python aggregates, which read the exchange one after the other.
        spec.write_text(yaml.safe_dump(demo_spec(), sort_keys=False), encoding="utf-8")
        seconds[PLAIN].append(plain_tokens(sources, output))
        _told(f"{PLAIN}: {seconds[PLAIN][-1]:.1f} s")
        for way, options in WAYS.items():
            done = skewless_run(str(spec), "--root", str(root), *options)
            _told(f"{way}: {done.seconds:.1f} s")
            seconds[way].append(done.seconds)
            found = json.loads(done.told)
            stages[way] = found["stages"]
            _require_same(way, output, Path(found["published_path"]))
        shutil.rmtree(root)
    return {"seconds": seconds, "stages": stages}


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """The aims of the row, judged on what was measured."""
    judged = []
    counted = [(f"{one['rows']:,} rows", one["work"], READ_ONE_KIND) for one in found["warm"]]
    counted += [
        (f"{way}, stage {stage['stage']}", stage["work"], READ_BOTH_KINDS)
        for way, stages in found["fresh"]["stages"].items()
        for stage in stages
    ]
    for where, told, most in counted:
        work = SparkWork.model_validate(told)
        judged += [
            Verdict("SQL executions of a stage", where, work.executions, MOST_EXECUTIONS),
            Verdict("Spark jobs of a stage", where, work.jobs, MOST_JOBS),
        ]
        if work.shuffle_bytes_written:
            read = work.shuffle_bytes_read / work.shuffle_bytes_written
            judged.append(Verdict("shuffle bytes read over written", where, read, most))
    judged += [
        Verdict(
            "seconds of a warm stage beyond plain Spark", f"{one['rows']:,} rows", one["seconds_beyond"], STAGE_SECONDS
        )
        for one in found["warm"]
    ]
    seconds = found["fresh"]["seconds"]
    judged += [Verdict(FRESH, way, median(seconds[way]) / median(seconds[PLAIN]), most) for way, most in RATIOS.items()]
    return judged


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    setting, fresh = document["setting"], document["fresh"]
    about = (
        "A warm stage is staged and takes its input at once: count and sum, Zipf 1.2, ten rows a key; plain Spark is"
        " `groupBy().agg` and a write of the same rows. Whole runs are the demo's job in new processes: `skewless run`"
        " on the first night, on a later night, which starts from the counts of the first, and in as many stages as the"
        f" spec has waves. All run in turn; answers are compared. Medians of {document['repetitions']} on"
        f" {setting['cores']} cores, Python {setting['python']}, Spark {setting['spark']}."
    )
    warm = [
        (f"{one['rows']:,}", *(f"{median(one[name]):.2f}" for name in ("stage_seconds", "plain_seconds")),
         f"{one['seconds_beyond']:.2f}")
        for one in document["warm"]
    ]  # fmt: skip
    plain = median(fresh["seconds"][PLAIN])
    runs = [
        (way, f"{median(seconds):.1f}", f"{median(seconds) / plain:.2f}", str(len(fresh["stages"].get(way, ())) or ""))
        for way, seconds in fresh["seconds"].items()
    ]
    tables = (
        table(("rows", "warm stage, s", "plain Spark, s", "beyond, s"), warm),
        table(("whole run", "seconds", "over plain", "stages"), runs),
    )
    return page_of("B11: the price of a stage", about, *tables)


def _require_same(way: str, plain: Path, ours: Path) -> None:
    """Require the same keys and counts.

    Raises:
        WrongAnswerError: they differ.
    """
    one, other = (_counts(folder) for folder in (plain, ours))
    if one != other:
        raise WrongAnswerError(f"{way}: {len(other):,} tokens, of other counts than the {len(one):,} of {PLAIN}")


def _counts(folder: Path) -> dict[str, int]:
    table = ds.dataset(folder, format="parquet").to_table(["token", "occurrences"])
    return dict(zip(*table.to_pydict().values(), strict=True))


def _told(words: str) -> None:
    sys.stderr.write(f"B11 {words}\n")
