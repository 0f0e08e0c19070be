"""J5: a Python aggregate beside a count, one key with 40 % of the rows: ``make bench ONLY=J5``.

Beside the two-phase job that an engineer writes by hand who has the aggregate: states where rows are read, merged by
key, the count taken in the same pass (``benchmarks.plain_two_phases``). Each run is a new process.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import yaml

from benchmarks.fresh_process import means, parts_of_ours, parts_of_plain, process, skewless_run
from benchmarks.plain_two_phases import FUNCTION
from benchmarks.result_files import DATA, Verdict, as_documents, in_words, machine, page_of, table
from benchmarks.spark.measurement import WrongAnswerError

NAME, BY_HAND, OURS = "j5_two_phases", "two phases by hand", "skewless run"
REPETITIONS, AIM = 6, 1.15
KEYS, VALUES, HOT, FILES = 20_000, 200, 0.4, 40
SIZES = (1_000_000, 10_000_000)


def measure(sizes: tuple[int, ...] = SIZES, repetitions: int = REPETITIONS, root: Path = DATA) -> dict[str, Any]:
    """Both ways in turn, on inputs of so many rows."""
    base = root.resolve()
    base.mkdir(parents=True, exist_ok=True)
    lines, where = [], {}
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        for rows in sizes:
            source, seconds = Path(scratch) / f"rows-{rows}", {way: list[float]() for way in (BY_HAND, OURS)}
            parts: dict[str, list[dict[str, float]]] = {BY_HAND: [], OURS: []}
            _write(rows, source)
            for number in range(repetitions):
                home = Path(scratch) / f"{rows}-{number}"
                home.mkdir()
                words = ["-m", "benchmarks.plain_two_phases", str(source), str(home / "by_hand")]
                done = process([sys.executable, *words])
                seconds[BY_HAND].append(done.seconds)
                parts[BY_HAND].append(parts_of_plain(done))
                (home / "spec.yaml").write_text(yaml.safe_dump(_spec(source, home / "ours")), encoding="utf-8")
                done = skewless_run(str(home / "spec.yaml"), "--root", str(home))
                seconds[OURS].append(done.seconds)
                parts[OURS].append(parts_of_ours(done))
                _require_same(home / "by_hand", home / "ours")
                shutil.rmtree(home)
            where[f"{rows:,} rows"] = means(parts)
            lines.append({"rows": rows, "seconds": seconds})
            sys.stderr.write(f"J5 {rows:,} rows: {seconds}\n")
    document = {"lines": lines, "parts": where, "setting": machine(pyspark="pyspark", pyarrow="pyarrow")}
    aims = [
        Verdict("`skewless run` over two phases by hand", f"{line['rows']:,} rows", _ratio(line), AIM) for line in lines
    ]
    return {**document, "verdicts": as_documents(aims)}


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    lines = [
        (
            f"{line['rows']:,}",
            *(f"{median(line['seconds'][way]):.1f}" for way in (BY_HAND, OURS)),
            f"{_ratio(line):.2f}",
        )
        for line in document["lines"]
    ]
    about = (
        f"`{FUNCTION}` of {VALUES} values in Python beside a count, {KEYS:,} keys, one with {HOT:.0%} of the rows. "
        f"Fresh processes in turn, medians. Setting: {in_words(document['setting'])}."
    )
    return page_of(
        "J5: a Python aggregate beside a count", about, table(("rows", BY_HAND, f"`{OURS}`", "ratio"), lines)
    )


def _ratio(line: Mapping[str, Any]) -> float:
    return round(median(line["seconds"][OURS]) / median(line["seconds"][BY_HAND]), 3)


def _write(rows: int, folder: Path) -> None:
    random = np.random.default_rng(5)
    keys = np.where(random.random(rows) < HOT, 0, random.integers(1, KEYS, rows))
    names, values = (pa.array([f"{sign}{n}" for n in range(count)]) for sign, count in (("k", KEYS), ("v", VALUES)))
    found = pa.table({"key": names.take(keys), "value": values.take(random.integers(0, VALUES, rows))})
    folder.mkdir()
    size = -(-rows // FILES)
    for number in range(FILES):
        pq.write_table(found.slice(number * size, size), folder / f"part-{number:05d}.parquet")


def _spec(source: Path, output: Path) -> dict[str, Any]:
    aggregates = {"n": "count", "values": {"function": FUNCTION, "column": "value"}}
    return {
        "name": "beside", "input": {"path": str(source)}, "key": "key", "aggregates": aggregates,
        "output": {"path": str(output)},
    }  # fmt: skip


def _require_same(by_hand: Path, ours: Path) -> None:
    answers = []
    for folder in (by_hand, ours):
        found = ds.dataset(sorted(map(str, folder.rglob("*.parquet")))).to_table(["key", "n", "values"])
        found = found.take(pc.sort_indices(found["key"]))
        answers.append(
            (found["key"].to_pylist(), found["n"].to_pylist(), list(map(_sorted, found["values"].to_pylist())))
        )
    if answers[0] != answers[1]:
        raise WrongAnswerError(f"{OURS} says something else than {BY_HAND}")


def _sorted(counts: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(one.values()) for one in counts)
