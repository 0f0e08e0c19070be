"""B22: nights over windows of 7 to 730 days beside Spark that recomputes, and beside daily partials merged by SQL.

``python -m benchmarks.long_windows [--rows 100000000 --windows 28 730]`` measures some cells; others keep theirs.
Each run is a new process. All write count, sum and a sketch by key, and the answers are compared.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.drawing import draw_lines
from benchmarks.formats import require_same, spec_of
from benchmarks.fresh_process import PLAIN, process, skewless_run
from benchmarks.result_files import (
    DATA,
    RESULTS,
    Verdict,
    as_documents,
    in_words,
    machine,
    page_of,
    table,
    write_all_aims,
    write_results,
)
from benchmarks.workloads import zipf

NAME, OURS, PARTIALS = "b22_long_windows", "skewless run", "daily partials, SQL"
EXPONENT, VALUES, VISITORS = 1.2, 1_000, 100_000
FIRST, LATE_DAYS = dt.date(2024, 1, 1), 30
#: Days back of which a file is deleted in the late night, if the window has them.
DELETED = (2, 5)
#: A quiet night has a new day; a late one has, beside a new day, late rows in 30 days, and deletions.
NIGHTS = ("first night", "quiet night", "late night")
#: Files that had a part of the rows of a day, which are deleted later.
_GONE, _GONE_PART = "gone", 20


class Cell(NamedTuple):
    """What is measured: the rows of the whole window, and the part of them that comes late."""

    window: int
    rows: int = 10_000_000
    keys: int = 200_000
    late: float = 0.01


WINDOWS = (7, 28, 90, 365, 730)
#: The length of windows of which other sizes are measured.
_USUAL = 90


def cells_of(rows: int, windows: Sequence[int]) -> list[Cell]:
    """Those of some lengths; of the usual one also with other numbers of late rows and of keys."""
    others = [Cell(_USUAL, rows, late=0.001), Cell(_USUAL, rows, late=0.1)]
    others += [Cell(_USUAL, rows, keys) for keys in (2_000, 20_000)]
    return [Cell(window, rows) for window in windows] + (others if _USUAL in windows else [])


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Measure cells, and write them beside those that were measured before."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_windows", description=__doc__)
    parser.add_argument("--rows", type=int, default=Cell(0).rows, help="of the whole window")
    parser.add_argument("--windows", type=int, nargs="*", default=WINDOWS, help="lengths, in days")
    options = parser.parse_args(arguments)
    path = folder / f"{NAME}.json"
    known = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    for cell in cells_of(options.rows, options.windows):
        measured = measure(cell)
        known = [one for one in known if Cell(*one["cell"]) != cell] + [measured]
        known.sort(key=lambda one: (one["cell"][1], *one["cell"]))
        document = {"row": "B22", "cells": known, "setting": machine(pyspark="pyspark", pyarrow="pyarrow")}
        document["verdicts"] = as_documents(verdicts(known))
        write_results(folder, NAME, document, page(document))
        plot(document, folder)
        sys.stderr.write(f"B22: {json.dumps(measured)}\n")
    write_all_aims(folder)


def measure(cell: Cell, root: Path = DATA) -> dict[str, Any]:
    """All ways in turn, night after night: seconds, seconds of cores that Spark's tasks took, Spark jobs, megabytes."""
    base = root.resolve()
    base.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"cell": list(cell), "nights": {}}
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        home = Path(scratch)
        lake = home / "lake"
        rows = cell.rows // cell.window
        for day in range(cell.window + len(NIGHTS) - 1):
            gone = [rows // _GONE_PART] if cell.window + 1 - day in DELETED else []
            for name, count in zip(("part", _GONE), [rows - sum(gone), *gone], strict=False):
                _put(lake, day, name, cell.keys, count)
        found["rows_mb"] = _megabytes(lake)
        spec = home / "spec.yaml"
        job = spec_of("parquet", lake / "date={date}", home / "ours") | {"window": cell.window}
        spec.write_text(yaml.safe_dump(job), encoding="utf-8")
        (home / "spark-defaults.conf").write_text(
            f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {home.as_uri()}/events\n",
            encoding="utf-8",
        )
        os.environ["SPARK_CONF_DIR"] = str(home)
        for last, night in enumerate(NIGHTS, cell.window - 1):
            changed = [last] if last >= cell.window else list(range(last + 1))
            if night == NIGHTS[-1]:
                late = range(1, min(LATE_DAYS, cell.window - 1) + 1)
                for back in late:
                    _put(lake, last - back, "late", cell.keys, int(cell.late * cell.rows) // len(late))
                for back in DELETED:
                    (lake / _folder(last - back) / f"{_GONE}.parquet").unlink(missing_ok=True)
                changed += [last - back for back in late]
            days = ",".join(_folder(day) for day in range(last - cell.window + 1, last + 1))
            of_days = ",".join(map(_folder, changed))
            recipe = ["-m", "benchmarks.plain_partials", str(lake), str(home / "partials"), days, of_days]
            plain = ["-m", "benchmarks.plain_formats", "parquet", f"{lake}/{{{days}}}", str(home / "plain")]
            date = _folder(last).removeprefix("date=")
            results = {PLAIN: home / "plain", PARTIALS: home / "merged", OURS: home / "ours" / _folder(last)}
            ways = {}
            for way, result in results.items():
                events = home / "events"
                events.mkdir()
                if way == OURS:
                    done = skewless_run(str(spec), "--root", str(home), "--date", date)
                else:
                    done = process([sys.executable, *(plain if way == PLAIN else [*recipe, str(result)])])
                ways[way] = {"seconds": done.seconds, **_work(events)}
                shutil.rmtree(events)
                require_same(f"{cell}, {night}", results[PLAIN], result)
            for way in (PLAIN, PARTIALS):
                shutil.rmtree(results[way])
            states = home / ".ours.skewless" / "states"
            sizes = {"states_mb": _megabytes(states), "nodes_mb": _megabytes(states, "nodes/*/")}
            found["nights"][night] = {"ways": ways, **sizes}
        del os.environ["SPARK_CONF_DIR"]
    return found


def _work(events: Path) -> dict[str, float]:
    """What the tasks of an application took, and its jobs, by its event log."""
    cores, jobs = 0, 0
    for file in events.glob("**/*"):
        if not file.is_file():
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            event = json.loads(line) if line.startswith('{"Event":"SparkListener') else {}
            jobs += event.get("Event") == "SparkListenerJobStart"
            if event.get("Event") == "SparkListenerTaskEnd":
                cores += (event.get("Task Metrics") or {}).get("Executor CPU Time", 0)
    return {"core_seconds": round(cores / 1e9, 3), "jobs": jobs}


@lru_cache(maxsize=1)
def _names(keys: int) -> pa.Array:
    return pa.array([f"key-{number:08d}" for number in range(keys)])


def _put(lake: Path, day: int, name: str, keys: int, rows: int) -> None:
    seed = [day, len(name), name == _GONE]
    random = np.random.default_rng(seed)
    columns = {
        "key": _names(keys).take(pa.array(zipf(keys, EXPONENT, rows, int(random.integers(1 << 31))) - 1)),
        "value": random.integers(0, VALUES, rows),
        "visitor": random.integers(0, VISITORS, rows),
    }
    (lake / _folder(day)).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), lake / _folder(day) / f"{name}.parquet", compression="zstd")


def _folder(day: int) -> str:
    return f"date={FIRST + dt.timedelta(days=day)}"


def _megabytes(folder: Path, below: str = "") -> float:
    return round(sum(file.stat().st_size for file in folder.glob(f"**/{below}*.parquet")) / 1e6, 1)


def figure(measured: Mapping[str, Any], night: str, way: str, name: str = "seconds") -> float:
    """A figure of a way in a night."""
    return float(measured["nights"][night]["ways"][way][name])


def _words(cell: Cell) -> str:
    _, rows, keys, late = Cell(0)
    other = {
        f"{cell.rows / 1e6:g} M rows": cell.rows != rows, f"{cell.keys:,} keys": cell.keys != keys,
        f"{cell.late:.1%} late": cell.late != late,
    }  # fmt: skip
    return ", ".join([f"{cell.window} days", *(words for words, unusual in other.items() if unusual)])


def verdicts(cells: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The aims of each cell."""
    return [verdict for one in cells for verdict in _verdicts(one, cells)]


def _verdicts(measured: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    cell, (first, quiet, late) = Cell(*measured["cell"]), NIGHTS
    words, of_first = _words(cell), measured["nights"][first]
    over = figure(measured, first, OURS) / figure(measured, first, PLAIN)
    yield Verdict(f"a first night over {PLAIN}", words, round(over, 2), 1.5)
    of_parts = (of_first["states_mb"] - of_first["nodes_mb"]) / measured["rows_mb"]
    yield Verdict("bytes of states of parts over those of their rows", words, round(of_parts, 2), 1.0)
    if cell.window > LATE_DAYS and cell.late == Cell(0).late:
        over = figure(measured, late, OURS) / figure(measured, quiet, OURS)
        yield Verdict("a late night over a quiet one", words, round(over, 2), 1.3)
    if cell.window == max(WINDOWS):
        work = figure(measured, late, PLAIN, "core_seconds") / figure(measured, late, OURS, "core_seconds")
        clock = figure(measured, late, PLAIN) / figure(measured, late, OURS)
        yield Verdict(f"Spark work of {PLAIN} over ours, a late night", words, round(work, 1), 20.0, at_least=True)
        yield Verdict(f"seconds of {PLAIN} over ours, a late night", words, round(clock, 1), 5.0, at_least=True)
        for other in cells:
            if Cell(*other["cell"]) == cell._replace(window=28):
                over = figure(measured, late, OURS) / figure(other, late, OURS)
                yield Verdict("a late night over that of 28 days", words, round(over, 2), 1.3)


def slopes(cells: Sequence[Mapping[str, Any]], name: str) -> dict[str, dict[str, float]]:
    """For each way, by how much a figure of a late night grows with days, late rows and keys: log-log slopes."""
    usual = {Cell(*one["cell"]): one for one in cells if Cell(*one["cell"]).rows == Cell(0).rows}
    axes: dict[str, dict[float, Mapping[str, Any]]] = {
        "days": {cell.window: one for cell, one in usual.items() if cell == Cell(cell.window)},
        "late rows": {cell.late: one for cell, one in usual.items() if cell == Cell(_USUAL, late=cell.late)},
        "keys": {cell.keys: one for cell, one in usual.items() if cell == Cell(_USUAL, keys=cell.keys)},
    }
    return {
        axis: {way: _slope({at: figure(one, NIGHTS[-1], way, name) for at, one in line.items()}) for way in _WAYS}
        for axis, line in axes.items()
        if len(line) > 1
    }


_WAYS = (PLAIN, PARTIALS, OURS)


def _slope(line: Mapping[float, float]) -> float:
    return round(float(np.polyfit(np.log([*line]), np.log([*line.values()]), 1)[0]), 2)


def plot(document: Mapping[str, Any], folder: Path) -> None:
    """Draw the Spark work of a late night over the days of its window."""
    measured = {Cell(*one["cell"]): one for one in document["cells"]}
    of_rows: dict[str, dict[float, float]] = {}
    for cell, one in measured.items():
        if cell == Cell(cell.window, cell.rows):
            for way in _WAYS:
                line = of_rows.setdefault(f"{way}, {cell.rows / 1e6:g} M rows", {})
                line[cell.window] = figure(one, NIGHTS[-1], way, "core_seconds")
    of_rows = {name: line for name, line in of_rows.items() if len(line) > 1}
    draw_lines(of_rows, folder / f"{NAME}.svg", NAME, "days of the window", "a late night, seconds of cores")


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    usual = Cell(0)
    head = ("window", "night", *_WAYS, "ours / plain", "Spark work, s", *_WAYS[1:])
    about = (
        f"Count, sum and a sketch by key, Zipf {EXPONENT}: {usual.rows / 1e6:g} M rows of {usual.keys:,} keys unless"
        f" said. A quiet night has a new day; a late one also late rows ({usual.late:.0%}) over {LATE_DAYS} days, and"
        " deletions in two. Seconds of new processes; Spark work is CPU time of tasks."
        f" Setting: {in_words(document['setting'])}."
    )
    grown = [
        (name.replace("_", " "), axis, *(f"{of_ways[way]:.2f}" for way in _WAYS))
        for name in ("seconds", "core_seconds")
        for axis, of_ways in slopes(document["cells"], name).items()
    ]
    told = table(("late night", "log-log slope over", *_WAYS), grown) if grown else ""
    lines = [line for one in document["cells"] for line in _lines(one)]
    return page_of("B22: nights of long windows", about, table(head, lines), told, f"![]({NAME}.svg)")


def _lines(measured: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    words = _words(Cell(*measured["cell"])) + f", {measured['rows_mb']:.0f} MB"
    for night in measured["nights"]:
        seconds = [figure(measured, night, way) for way in _WAYS]
        work = [figure(measured, night, way, "core_seconds") for way in _WAYS]
        yield (
            words if night == NIGHTS[0] else "", night,
            *(f"{one:.1f}" for one in seconds), f"{seconds[-1] / seconds[0]:.2f}", *(f"{one:.1f}" for one in work),
        )  # fmt: skip


if __name__ == "__main__":
    main()
