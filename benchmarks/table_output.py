"""B13: publishing a day of 1,000 files in a folder, an Iceberg and a Delta table, on a disk and on an S3 server.

The peer reads the same files with pyarrow, and writes and syncs them, in as many threads. What is timed of ours is all
between a committed result and a published day: copying it into the table's files, staging, and the commit.
"""

from __future__ import annotations

import datetime as dt
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fresh_process import means
from benchmarks.result_files import DATA, Verdict, as_documents, in_words, machine, page_of, table
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.folder import open_location
from skewless_lake.publication import publish_run
from tests.lake.outputs import DAY, NOW, committed, judge, staged
from tests.object_stores import as_client, object_server

NAME, OURS = "b13_table_output", "skewless"
FILES, ROWS_OF_A_FILE, REPETITIONS, THREADS, AIM = 1_000, 2_000, 3, 8, 1.2
#: What is published where. A folder is on a disk only.
PLACES = {"disk": ("folder", "iceberg", "delta"), "bucket": ("iceberg in a bucket", "delta in a bucket")}
PEER = "pyarrow"


def measure(files: int = FILES, repetitions: int = REPETITIONS, root: Path = DATA) -> dict[str, Any]:
    """Publish the same result in each way, in turns, in a folder on the disk that is to be measured."""
    root.mkdir(parents=True, exist_ok=True)
    parts: dict[str, dict[str, list[dict[str, float]]]] = {place: {} for place in PLACES}
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        for place, ways in PLACES.items():
            for number in range(repetitions):
                for way in (PEER, *ways):
                    home = Path(scratch) / f"{place}-{number}-{way.replace(' ', '-')}"
                    with _store(place, home):
                        took = _timed(way, place, home, files, DAY + dt.timedelta(days=number))
                    parts[place].setdefault(way, []).append(took)
    seconds = {
        place: {way: [round(sum(run.values()), 3) for run in runs] for way, runs in of.items()}
        for place, of in parts.items()
    }
    medians = {place: {way: statistics.median(took) for way, took in of.items()} for place, of in seconds.items()}
    aims = [
        Verdict(
            "wall over writing and syncing the same files with pyarrow", f"{way}, {place}",
            round(medians[place][way] / medians[place][PEER], 3), AIM,
        )
        for place, ways in PLACES.items() for way in ways
    ]  # fmt: skip
    where = {place: means(of) for place, of in parts.items()}
    cells = {
        f"{way}, {place}": {PEER: where[place][PEER], OURS: where[place][way]}
        for place, of in PLACES.items() for way in of
    }  # fmt: skip
    return {
        "verdicts": as_documents(aims), "files": files, "rows_of_a_file": ROWS_OF_A_FILE, "threads": THREADS,
        "setting": machine(pyarrow="pyarrow", pyiceberg="pyiceberg", deltalake="deltalake"), "seconds": seconds,
        "parts": cells,
    }  # fmt: skip


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    lines = []
    for place, of in document["seconds"].items():
        peer = statistics.median(of[PEER])
        for way, took in of.items():
            seconds = statistics.median(took)
            lines.append((place, way, f"{seconds:.2f}", f"{seconds / peer:.2f}"))
    about = (
        f"A committed result of {document['files']:,} files of {document['rows_of_a_file']:,} rows each is published."
        f" The peer reads, writes and syncs the same files in {document['threads']} threads. The S3 server is on this"
        f" machine, and is a new one each time. Setting: {in_words(document['setting'])}."
    )
    found = table(("place", "way", "median, s", "over pyarrow"), lines)
    return page_of("B13: publishing in tables", about, found)


@contextmanager
def _store(place: str, home: Path) -> Iterator[None]:
    """The place that is published in. Each time it is a new server: this one looks at all of its objects to list some.

    So a round would pay for the files of the rounds before.
    """
    if place == "disk":
        yield
        return
    with (
        object_server("localbucket", home / "server") as server,
        as_client({**server.environment, **server.catalog("shared", home / "shared.db")}),
    ):
        yield


def _timed(way: str, place: str, home: Path, files: int, day: dt.date) -> dict[str, float]:
    """Publish a result; the seconds of each part of that."""
    kind = {"iceberg in a bucket": "postgresql", "delta in a bucket": "bucket", PEER: "folder"}.get(way, way)
    run = committed(home / "run", home, kind, _result(files), in_files=files, day=day)
    target = str(home / "written") if place == "disk" else f"s3://lake/{home.name}"
    work = {"read, write, sync": lambda: _peer(run, target)} if way == PEER else _ours(run)
    found = {}
    for name, part in work.items():
        begun = time.monotonic()
        part()
        found[name] = time.monotonic() - begun
    return found


def _ours(run: RunDirectory) -> dict[str, Callable[[], object]]:
    if not run.job().spec.output.is_table:
        judge(run)
        return {"publish": lambda: publish_run(run, NOW)}
    return {
        "write the table's files": lambda: staged(run), "judge": lambda: judge(run),
        "commit": lambda: publish_run(run, NOW),
    }  # fmt: skip


def _peer(run: RunDirectory, target: str) -> None:
    sources = [run.path(file.path) for file in run.committed(RESULT_STEP).of_kind("result")]

    def one(number: int) -> None:
        rows = pq.read_table(sources[number])
        fs, path = open_location(f"{target}/part-{number:05d}.parquet")
        with fs.open(path, "wb") as out:
            pq.write_table(rows, out, compression="zstd")
            if "://" not in target:
                out.flush()
                os.fsync(out.fileno())

    if "://" not in target:
        Path(target).mkdir()
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        list(pool.map(one, range(len(sources))))


def _result(files: int) -> pa.Table:
    rng, rows = np.random.default_rng(13), files * ROWS_OF_A_FILE
    return pa.table({
        "key": pa.array(np.char.add("key-", np.arange(rows).astype(str))),
        "clicks": rng.integers(1, 1_000, rows), "seconds": rng.random(rows),
    })  # fmt: skip
