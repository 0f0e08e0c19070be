"""B14: a whole run over each format beside plain PySpark, every run in a process of its own: ``make bench ONLY=B14``.

The inputs have the same rows. Both write count, sum and a sketch by key; the answers are compared.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import yaml
from pyarrow import orc

from benchmarks.fresh_process import FRESH, PLAIN, means, parts_of_ours, parts_of_plain, process, skewless_run
from benchmarks.one_process import READS
from benchmarks.plain_formats import OF_A_LINE
from benchmarks.result_files import DATA, Verdict, as_documents, in_words, machine, page_of, table
from benchmarks.spark.measurement import WrongAnswerError
from benchmarks.workloads import zipf

NAME = "b14_formats"
REPETITIONS, AIM = 3, 1.25
KEYS, EXPONENT, VALUES, VISITORS = 20_000, 1.2, 1_000, 100_000
OURS = "skewless run"
#: Two sketches of the same values differ by less than this part, whatever they were merged of.
_SKETCH = 0.1


def parquet(files: int) -> Callable[[pa.Table, Path], None]:
    """What writes rows into so many files of a folder."""

    def write(rows: pa.Table, folder: Path) -> None:
        size = -(-rows.num_rows // files)
        for number in range(files):
            pq.write_table(rows.slice(number * size, size), folder / f"part-{number:05d}.parquet", compression="zstd")

    return write


def _csv(rows: pa.Table, folder: Path) -> None:
    pa_csv.write_csv(rows, folder / "rows.csv", pa_csv.WriteOptions(quoting_style="none"))


def _json(rows: pa.Table, folder: Path) -> None:
    pieces = ['{"key": "', '", "value": ', ', "visitor": ', "}\n"]
    _lines(rows, folder / "rows.json", pieces)


def _text(rows: pa.Table, folder: Path) -> None:
    _lines(rows, folder / "rows.txt", ["", " ", " ", "\n"])


def _lines(rows: pa.Table, path: Path, pieces: Sequence[str]) -> None:
    """Write a line for each row: its values between pieces of text."""
    with path.open("wb") as opened:
        for batch in rows.to_batches(max_chunksize=1 << 20):
            texts = [pc.cast(column, pa.string()) for column in batch.columns]
            parts: list[Any] = [pieces[0]]
            for text, piece in zip(texts, pieces[1:], strict=True):
                parts += [text, piece]
            lines = pc.binary_join_element_wise(*parts, "")
            opened.write(memoryview(lines.buffers()[2])[: lines.buffers()[2].size])


def _orc(rows: pa.Table, folder: Path) -> None:
    orc.write_table(rows, str(folder / "rows.orc"), compression="zstd")


def _gz(rows: pa.Table, folder: Path) -> None:
    _csv(rows, folder)
    plain = folder / "rows.csv"
    with plain.open("rb") as source, gzip.open(folder / "rows.csv.gz", "wb", compresslevel=6) as opened:
        shutil.copyfileobj(source, opened, 1 << 20)
    plain.unlink()


#: The format that both are told, and what writes it.
CELLS: Mapping[str, tuple[str, Callable[[pa.Table, Path], None]]] = {
    "Parquet, 1 file": ("parquet", parquet(1)),
    "Parquet, 40 files": ("parquet", parquet(40)),
    "Parquet, 1,000 files": ("parquet", parquet(1_000)),
    "CSV": ("csv", _csv),
    "JSON": ("json", _json),
    "ORC": ("orc", _orc),
    "text": ("text", _text),
    "CSV, gz": ("csv", _gz),
}


#: Which cells are measured of inputs of so many rows.
SIZES: Mapping[int, Sequence[str]] = {
    1_000_000: tuple(CELLS), 10_000_000: tuple(CELLS), 50_000_000: ("Parquet, 40 files",),
}  # fmt: skip


def measure(
    sizes: Mapping[int, Sequence[str]] = SIZES, repetitions: int = REPETITIONS, root: Path = DATA
) -> dict[str, Any]:
    """Run all ways on inputs of so many rows, in turn; inputs are kept below ``root``, and scratch is."""
    base = root.resolve()
    base.mkdir(parents=True, exist_ok=True)
    lines, where = [], {}
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        for rows, cells in sizes.items():
            for cell in cells:
                source = input_of(base, rows, cell)
                seconds: dict[str, list[float]] = {}
                parts: dict[str, list[dict[str, float]]] = {PLAIN: [], OURS: []}
                for number in range(repetitions):
                    home = Path(scratch) / f"{rows}-{list(CELLS).index(cell)}-{number}"
                    for way, took in _each(cell, source, home, parts).items():
                        seconds.setdefault(way, []).append(took)
                    shutil.rmtree(home)
                size = sum(file.stat().st_size for file in source.iterdir())
                lines.append({"rows": rows, "cell": cell, "bytes": size, "seconds": seconds})
                where[_name(lines[-1])] = means(parts)
                sys.stderr.write(f"B14 {rows:,} rows, {cell}: {seconds}\n")
    setting = machine(pyspark="pyspark", pyarrow="pyarrow")
    found = {"row": "B14", "lines": lines, "parts": where, "setting": setting}
    return {**found, "verdicts": as_documents(verdicts(found))}


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """The aim of each cell."""
    return [Verdict(FRESH, _name(line), _ratio(line), AIM) for line in found["lines"]]


def _name(line: Mapping[str, Any]) -> str:
    return f"{line['cell']}, {line['rows']:,} rows"


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    lines = []
    for line in document["lines"]:
        seconds = {way: f"{median(runs):.1f}" for way, runs in line["seconds"].items()}
        lines.append((
            f"{line['rows']:,}", line["cell"], f"{line['bytes'] / 1e6:,.0f}", seconds[PLAIN], seconds[OURS],
            f"{_ratio(line):.2f}", *(seconds.get(peer, "") for peer in READS), str(len(line["seconds"][OURS])),
        ))  # fmt: skip
    about = (
        f"Count, sum and a HyperLogLog sketch by key, {KEYS:,} keys, Zipf {EXPONENT}. Each run is a process of its own,"
        " in turn: a script of plain PySpark that reads with a schema, `skewless run`, of which nothing is known yet,"
        " and scripts of DuckDB and polars. Every answer is compared."
        f" Medians of the runs. Setting: {in_words(document['setting'])}."
    )
    head = ("rows", "format", "MB", "plain PySpark, s", "`skewless run`, s", "ratio", *READS, "runs")
    found = table(head, lines)
    return page_of("B14: formats", about, found)


def _ratio(line: Mapping[str, Any]) -> float:
    return round(median(line["seconds"][OURS]) / median(line["seconds"][PLAIN]), 3)


def _each(cell: str, source: Path, home: Path, parts: Mapping[str, list[dict[str, float]]]) -> dict[str, float]:
    """Each way once; their seconds, of two of them added by part to ``parts``. Their answers are compared."""
    home.mkdir()
    kind = CELLS[cell][0]
    plain = [sys.executable, "-m", "benchmarks.plain_formats", kind, str(source), str(home / "plain")]
    done = process(plain)
    seconds = {PLAIN: done.seconds}
    parts[PLAIN].append(parts_of_plain(done))
    spec = home / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(kind, source, home / "ours")), encoding="utf-8")
    done = skewless_run(str(spec), "--root", str(home))
    seconds[OURS] = done.seconds
    parts[OURS].append(parts_of_ours(done))
    require_same(cell, home / "plain", home / "ours")
    for peer in (name for name, kinds in READS.items() if kind in kinds):
        words = ["-m", "benchmarks.one_process", peer, kind, str(source), str(home / peer)]
        seconds[peer] = process([sys.executable, *words]).seconds
        require_same(cell, home / "plain", home / peer, by_key=False)
    return seconds


def require_same(cell: str, plain: Path, ours: Path, *, by_key: bool = True) -> None:
    """Require the same keys, counts and sums, and sketches that are about the same, by key or all together.

    Raises:
        WrongAnswerError: they differ.
    """
    one, other = _answer(plain), _answer(ours)
    # Whether a column may be null, or which of Arrow's texts it has, is no part of an answer.
    exact = all(one[name].to_pylist() == other[name].to_pylist() for name in ("key", "n", "total"))
    # Sketches of other libraries may be wrong by more, of a few values.
    first, second = (
        np.asarray(each["visitors"]) if by_key else pc.sum(each["visitors"]).as_py() for each in (one, other)
    )
    if not exact or not np.allclose(first, second, rtol=_SKETCH):
        raise WrongAnswerError(f"{cell}: {len(other):,} keys, of other values than the {len(one):,} of {PLAIN}")


def spec_of(kind: str, source: Path, output: Path) -> dict[str, Any]:
    """The job, over an input of such a format."""
    columns = {"key": "string", "value": "bigint", "visitor": "bigint"}
    return {
        "name": "formats",
        "input": {"path": str(source), "format": kind, **({"columns": columns} if kind in {"csv", "json"} else {})},
        **({"map": {"select": list(OF_A_LINE)}} if kind == "text" else {}),
        "key": "key",
        "aggregates": {
            "n": "count",
            "total": {"function": "sum", "column": "value"},
            "visitors": {"function": "approx_count_distinct", "column": "visitor"},
        },
        "output": {"path": str(output)},
    }


def _answer(folder: Path) -> pa.Table:
    found = ds.dataset(sorted(str(path) for path in folder.rglob("*.parquet"))).to_table(
        ["key", "n", "total", "visitors"]
    )
    return found.take(pc.sort_indices(found["key"])).combine_chunks()


def input_of(base: Path, rows: int, cell: str) -> Path:
    """The folder of an input of so many rows, written now if it was not before."""
    kind = "".join(sign for sign in cell.lower() if sign.isalnum())
    folder = base / "inputs" / f"b14-{rows}-{kind}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=folder.parent))
        CELLS[cell][1](drawn(rows), draft)
        draft.rename(folder)
    return folder


def drawn(rows: int, seed: int = 14) -> pa.Table:
    """So many rows; the same each time."""
    random = np.random.default_rng(seed)
    names = pa.array([f"k{number}" for number in random.permutation(KEYS)])
    return pa.table({
        "key": names.take(pa.array(zipf(KEYS, EXPONENT, rows, seed) - 1)),
        "value": random.integers(0, VALUES, rows), "visitor": random.integers(0, VISITORS, rows),
    })  # fmt: skip
