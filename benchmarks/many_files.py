"""What ``prepare`` takes where the input has 10,000 and 100,000 files: ``make bench ONLY=B12``.

Each file has ten rows. pyarrow, which lists the same folder and counts the rows by the footers, goes by turns with it.
"""

from __future__ import annotations

import datetime as dt
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import yaml

from benchmarks.result_files import Verdict, as_documents, in_words, machine, page_of, table
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless_spark.prepare.prepare import prepare

NAME = "b12_files"
#: Seconds that ``prepare`` may take, by the number of files.
AIMS = {10_000: 2.0, 100_000: 15.0}
ROWS, ROUNDS = 10, 3
DAY = dt.date(2026, 11, 20)


def measure(scale: float = 1.0, rounds: int = ROUNDS) -> dict[str, Any]:
    """Both, on each number of files, so many times; less files for a look.

    Raises:
        AssertionError: the two count different rows.
    """
    with tempfile.TemporaryDirectory() as scratch:
        _prepared(_input(Path(scratch) / "warm", 10), Path(scratch))  # whose imports are not the files' price
        lines = [_line(Path(scratch), round(files * scale), rounds) for files in AIMS]
    aims = [
        Verdict("seconds of prepare", f"{files:,} files", line["prepare_seconds"], limit)
        for line, (files, limit) in zip(lines, AIMS.items(), strict=True)
    ]
    return {
        "row": "B12", "verdicts": as_documents(aims), "rows_of_a_file": ROWS, "rounds": rounds, "lines": lines,
        "setting": machine(pyarrow="pyarrow"),
    }  # fmt: skip


def page(document: dict[str, Any]) -> str:
    """The page, in Markdown."""
    lines = []
    for line in document["lines"]:
        ours, theirs = line["prepare_seconds"], line["pyarrow_seconds"]
        lines.append((f"{line['files']:,}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}"))
    about = (
        f"Files of {document['rows_of_a_file']} rows on a local disk, whose pages are in memory. `prepare` lists them,"
        " reads every footer, draws its sample of the keys, and writes the frozen job and plan 0. pyarrow lists them"
        f" and counts their rows by the footers. By turns in one process, medians of {document['rounds']}. Setting:"
        f" {in_words(document['setting'])}."
    )
    found = table(("files", "prepare, s", "pyarrow, s", "ratio"), lines)
    return page_of("B12: many files", about, found)


def _line(scratch: Path, files: int, rounds: int) -> dict[str, Any]:
    source = _input(scratch / f"{files}", files)
    ours, theirs = list[float](), list[float]()
    for _ in range(rounds):
        rows, seconds = _timed(lambda: _prepared(source, scratch))
        ours.append(seconds)
        counted, seconds = _timed(lambda: ds.dataset(source, format="parquet").count_rows())
        theirs.append(seconds)
        if not rows == counted == files * ROWS:
            raise AssertionError(f"{rows:,} rows by prepare, {counted:,} by pyarrow")
    return {
        "files": files,
        "prepare_seconds": round(statistics.median(ours), 3),
        "pyarrow_seconds": round(statistics.median(theirs), 3),
        "prepare_all": ours,
        "pyarrow_all": theirs,
    }


def _input(folder: Path, files: int) -> Path:
    """A folder with so many files of the same rows."""
    folder.mkdir()
    made = io.BytesIO()
    pq.write_table(pa.table({"key": [f"k{number}" for number in range(ROWS)]}), made)
    for number in range(files):
        (folder / f"part-{number:06d}.parquet").write_bytes(made.getvalue())
    return folder


def _prepared(source: Path, scratch: Path) -> int:
    """Prepare a run; the rows of its input."""
    spec = parse_spec(
        yaml.safe_dump({
            "name": "many_files", "input": {"path": str(source)}, "key": "key", "aggregates": {"rows": "count"},
            "output": {"path": str(scratch / "out")},
        })
    )  # fmt: skip
    run = RunDirectory(tempfile.mkdtemp(dir=scratch))
    prepare(run, spec, DAY, str(scratch))
    return run.job().rows


def _timed(act: Callable[[], int]) -> tuple[int, float]:
    began = time.monotonic()
    found = act()
    return found, round(time.monotonic() - began, 3)
