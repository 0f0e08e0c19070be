"""B15: nights over a window of seven days beside plain PySpark that recomputes it: ``make bench ONLY=B15``.

Each run is a new process. Both write count, sum and a sketch by key; the answers are compared.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import yaml

from benchmarks.formats import drawn, parquet, require_same, spec_of
from benchmarks.fresh_process import PLAIN, means, parts_of_ours, parts_of_plain, process, skewless_run
from benchmarks.result_files import DATA, Verdict, as_documents, in_words, machine, page_of, table

NAME, OURS, REPETITIONS = "b15_fresh_nights", "skewless run", 3
ROWS, WINDOW, FILES, LATE_DAY, LATE_ROWS = 1_000_000, 7, 4, 5, 20_000
#: The last day of each night's window, and the most that is aimed at.
NIGHTS: Mapping[str, tuple[int, float]] = {"first night": (7, 1.15), "second night": (8, 1.0), "a late file": (8, 1.0)}


def measure(rows: int = ROWS, repetitions: int = REPETITIONS, root: Path = DATA) -> dict[str, Any]:
    """Both ways in turn: a night without states, the next one, and that one again with a file more in an older day."""
    base = root.resolve()
    base.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, dict[str, list[float]]] = {night: {PLAIN: [], OURS: []} for night in NIGHTS}
    parts: dict[str, dict[str, list[dict[str, float]]]] = {night: {PLAIN: [], OURS: []} for night in NIGHTS}
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        for number in range(repetitions):
            home = Path(scratch) / str(number)
            lake = home / "lake"
            for day in range(1, WINDOW + 2):
                (lake / _day(day)).mkdir(parents=True)
                parquet(FILES)(drawn(rows, seed=day), lake / _day(day))
            spec = home / "spec.yaml"
            job = spec_of("parquet", lake / "date={date}", home / "ours") | {"window": WINDOW}
            spec.write_text(yaml.safe_dump(job), encoding="utf-8")
            for night, (last, _) in NIGHTS.items():
                if night == "a late file":
                    pq.write_table(drawn(LATE_ROWS, seed=0), lake / _day(LATE_DAY) / "late.parquet")
                days = ",".join(_day(day) for day in range(last - WINDOW + 1, last + 1))
                plain = ["-m", "benchmarks.plain_formats", "parquet", f"{lake}/{{{days}}}", str(home / night)]
                done = process([sys.executable, *plain])
                seconds[night][PLAIN].append(done.seconds)
                parts[night][PLAIN].append(parts_of_plain(done))
                date = _day(last).removeprefix("date=")
                done = skewless_run(str(spec), "--root", str(home), "--date", date)
                seconds[night][OURS].append(done.seconds)
                parts[night][OURS].append(parts_of_ours(done))
                require_same(night, home / night, home / "ours" / _day(last))
            sys.stderr.write(f"B15, {number}: {seconds}\n")
            shutil.rmtree(home)
    found = {
        "row": "B15", "rows": rows, "seconds": seconds, "parts": {night: means(ways) for night, ways in parts.items()},
        "setting": machine(pyspark="pyspark", pyarrow="pyarrow"),
    }  # fmt: skip
    return {**found, "verdicts": as_documents(verdicts(found))}


def _day(day: int) -> str:
    return f"date=2026-11-{day:02d}"


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """The aim of each night."""
    what = "a night over plain PySpark that recomputes the window, in fresh processes"
    return [Verdict(what, night, _ratio(found["seconds"][night]), aim) for night, (_, aim) in NIGHTS.items()]


def _ratio(seconds: Mapping[str, list[float]]) -> float:
    return round(median(seconds[OURS]) / median(seconds[PLAIN]), 3)


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    lines = [
        (night, *(f"{median(seconds[way]):.1f}" for way in (PLAIN, OURS)), f"{_ratio(seconds):.2f}")
        for night, seconds in document["seconds"].items()
    ]
    about = (
        f"Count, sum and a HyperLogLog sketch by key of {WINDOW} days, {document['rows']:,} rows a day in {FILES} files"
        f" of Parquet. The late file has {LATE_ROWS:,} rows. Fresh processes in turn, medians."
        f" Setting: {in_words(document['setting'])}."
    )
    head = ("night", "plain PySpark, s", f"`{OURS}`, s", "ratio")
    return page_of("B15: nights in fresh processes", about, table(head, lines))
