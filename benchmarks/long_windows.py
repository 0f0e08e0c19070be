"""B22: nights over a window of 200 days beside plain PySpark that recomputes it: ``make bench ONLY=B22``.

Each run is a new process. Both write count, sum and a sketch by key; the answers are compared.
"""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.formats import require_same, spec_of
from benchmarks.fresh_process import PLAIN, means, parts_of_ours, parts_of_plain, process, skewless_run
from benchmarks.result_files import DATA, Verdict, as_documents, in_words, machine, page_of, table
from benchmarks.workloads import zipf

NAME, OURS, REPETITIONS = "b22_long_windows", "skewless run", 1
WINDOW, ROWS, KEYS, EXPONENT, VALUES, VISITORS = 200, 20_000, 200_000, 1.2, 1_000, 100_000
FIRST = dt.date(2025, 1, 1)
#: The nights in their order: how many days back rows come late, and how many rows in each of these days.
NIGHTS: Mapping[str, tuple[range, int]] = {
    "first night": (range(0), 0),
    "quiet night": (range(0), 0),
    "a late file": (range(30, 31), 2_000),
    "thirty late files": (range(1, 31), 100),
}
#: The most that a night is to take, over plain PySpark or over a quiet night of ours.
AIMS: Mapping[str, tuple[str, float]] = {
    "first night": (PLAIN, 1.5),
    "a late file": (OURS, 1.3),
    "thirty late files": (OURS, 1.3),
}


def measure(rows: int = ROWS, repetitions: int = REPETITIONS, root: Path = DATA) -> dict[str, Any]:
    """Both ways in turn, night after night."""
    base = root.resolve()
    base.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, dict[str, list[float]]] = {night: {PLAIN: [], OURS: []} for night in NIGHTS}
    parts: dict[str, dict[str, list[dict[str, float]]]] = {night: {PLAIN: [], OURS: []} for night in NIGHTS}
    megabytes: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        for number in range(repetitions):
            home = Path(scratch) / str(number)
            lake = home / "lake"
            for day in range(WINDOW + len(NIGHTS) - 1):
                _put(lake, day, "part", rows, seed=day)
            megabytes["rows"] = _megabytes(lake)
            spec = home / "spec.yaml"
            job = spec_of("parquet", lake / "date={date}", home / "ours") | {"window": WINDOW}
            spec.write_text(yaml.safe_dump(job), encoding="utf-8")
            for last, (night, (late, of_each)) in enumerate(NIGHTS.items(), WINDOW - 1):
                for back in late:
                    _put(lake, last - back, f"late-{last}", of_each, seed=1_000 * last + back)
                days = ",".join(_folder(day) for day in range(last - WINDOW + 1, last + 1))
                plain = ["-m", "benchmarks.plain_formats", "parquet", f"{lake}/{{{days}}}", str(home / night)]
                done = process([sys.executable, *plain])
                seconds[night][PLAIN].append(done.seconds)
                parts[night][PLAIN].append(parts_of_plain(done))
                date = _folder(last).removeprefix("date=")
                done = skewless_run(str(spec), "--root", str(home), "--date", date)
                seconds[night][OURS].append(done.seconds)
                parts[night][OURS].append(parts_of_ours(done))
                require_same(night, home / night, home / "ours" / _folder(last))
                states = home / ".ours.skewless" / "states"
                megabytes |= {
                    f"states, {night}": _megabytes(states),
                    f"merged, {night}": _megabytes(states, "nodes/*/"),
                }
                sys.stderr.write(f"B22, {number}: {night}: {seconds[night]}, {parts[night][OURS][-1]}, {megabytes}\n")
            shutil.rmtree(home)
    found = {
        "row": "B22", "rows": rows, "seconds": seconds, "megabytes": megabytes,
        "parts": {night: means(ways) for night, ways in parts.items()},
        "setting": machine(pyspark="pyspark", pyarrow="pyarrow"),
    }  # fmt: skip
    return {**found, "verdicts": as_documents(verdicts(found))}


def _put(lake: Path, day: int, name: str, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    keys = pa.array([f"key-{number:08d}" for number in range(KEYS)])
    columns = {
        "key": keys.take(pa.array(zipf(KEYS, EXPONENT, rows, seed) - 1)),
        "value": random.integers(0, VALUES, rows),
        "visitor": random.integers(0, VISITORS, rows),
    }
    (lake / _folder(day)).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), lake / _folder(day) / f"{name}.parquet", compression="zstd")


def _folder(day: int) -> str:
    return f"date={FIRST + dt.timedelta(days=day)}"


def _megabytes(folder: Path, below: str = "") -> float:
    return round(sum(file.stat().st_size for file in folder.glob(f"**/{below}*.parquet")) / 1e6, 1)


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """The aim of each night."""
    lines = [
        Verdict(f"a night of {WINDOW} days over {_beside(night)}", night, _ratio(found, night), aim)
        for night, (_, aim) in AIMS.items()
    ]
    size = found["megabytes"]
    share = (size["states, first night"] - size["merged, first night"]) / size["rows"]
    return [*lines, Verdict("bytes of states of parts over those of their rows", "first night", round(share, 2), 1.0)]


def _beside(night: str) -> str:
    return PLAIN if AIMS[night][0] == PLAIN else "a quiet one"


def _ratio(found: Mapping[str, Any], night: str) -> float:
    seconds = found["seconds"]
    other = seconds[night][PLAIN] if AIMS.get(night, (PLAIN,))[0] == PLAIN else seconds["quiet night"][OURS]
    return round(median(seconds[night][OURS]) / median(other), 2)


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    size = document["megabytes"]
    lines = [
        (
            night, *(f"{median(document['seconds'][night][way]):.1f}" for way in (PLAIN, OURS)),
            f"{_ratio(document, night):.2f}",
            f"{size[f'states, {night}']:.0f}", f"{size[f'merged, {night}']:.0f}",
        )
        for night in NIGHTS
    ]  # fmt: skip
    about = (
        f"Count, sum and a sketch by key of {WINDOW} days, {document['rows']:,} rows a day ({size['rows']:.0f} MB),"
        f" {KEYS:,} keys, Zipf {EXPONENT}. 2,000 rows 30 days late; 100 in each of 30 days. Setting:"
        f" {in_words(document['setting'])}."
    )
    head = ("night", "plain PySpark, s", f"`{OURS}`, s", "ratio, late: over quiet", "states, MB", "merged")
    return page_of("B22: nights of a long window", about, table(head, lines))
