"""Running a row: repetitions of all peers by turns, medians, and the document that is written of them."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.result_files import as_documents
from benchmarks.spark.cell import Cell, Peer, Row, Size
from benchmarks.spark.datasets import written
from benchmarks.spark.measurement import Measurement, check, measured
from benchmarks.spark.setting import described, session
from skewless.spec.routing import ENGINES

#: A peer that took longer is not asked again: it sleeps most of that, by the same arithmetic each time.
PATIENCE_SECONDS = 30.0
#: How the names of our own begin.
OURS = "skewless"
#: The scale at which a session and its workers are made warm; smaller measurements are left cold.
WARM_UP = Size(scale=0.02)


@dataclass(frozen=True)
class Effort:
    """How often, and how patiently.

    Attributes:
        repetitions: of every peer that is not too slow.
        patience_seconds: see ``PATIENCE_SECONDS``; ours is always repeated.
    """

    repetitions: int = 3
    patience_seconds: float = PATIENCE_SECONDS


@dataclass
class Turns:
    """What one peer did in one cell."""

    peer: str
    runs: list[Measurement] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        """Of every figure."""
        return {name: median(run.figures[name] for run in self.runs) for name in self.runs[0].figures}

    def profile(self) -> dict[str, float]:
        """Mean seconds by purpose."""
        names = dict.fromkeys(name for run in self.runs for name in run.profile)
        return {name: sum(run.profile.get(name, 0.0) for run in self.runs) / len(self.runs) for name in names}


def run_row(row: Row, size: Size, effort: Effort, root: Path) -> dict[str, Any]:
    """Measure a row; the document, JSON values only. Inputs are kept below ``root``, and scratch is.

    Raises:
        WrongAnswerError: a peer computed something else than ours.
    """
    cells = row.cells(size)
    for cell in cells:
        written(cell.data, root)
    with session(row.slots) as spark:
        if size.scale > 2 * WARM_UP.scale:
            _warm_up(spark, row, root)
        return measure(spark, row, cells, size, effort, root)


def measure(
    spark: SparkSession, row: Row, cells: Sequence[Cell], size: Size, effort: Effort, root: Path
) -> dict[str, Any]:
    """Measure some cells of a row in a session that there is; see ``run_row``."""
    began = time.perf_counter()
    turns = {}
    for cell in cells:
        with _scratch(root) as scratch:
            turns[cell.name] = _turns(spark, row, cell, effort, root, scratch)
    medians = {(cell, one.peer): one.medians() for cell, peers in turns.items() for one in peers}
    return {
        "row": row.ident, "title": row.title, "text": row.text, "plotted": row.plotted,
        "scale": size.scale, "long": size.long, "repetitions": effort.repetitions,
        "patience_seconds": effort.patience_seconds, "took_seconds": round(time.perf_counter() - began),
        "setting": {**described(spark), "slots": row.slots, "engines": ["auto", *ENGINES]},
        "cells": [_cell(cell) for cell in cells],
        "verdicts": as_documents(row.aims(medians, cells)),
        "lines": [_line(cell, one) for cell, peers in turns.items() for one in peers],
    }  # fmt: skip


def _warm_up(spark: SparkSession, row: Row, root: Path) -> None:
    cell = row.cells(WARM_UP)[0]
    folder = written(cell.data, root)
    with _scratch(root) as scratch:
        for peer in row.peers(cell):
            _told(f"{row.ident} warm-up: {peer.name}")
            measured(spark, peer, cell, folder, scratch)


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """A folder of a cell, where its peers may keep something from one repetition to the next."""
    (root / "scratch").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root / "scratch") as folder:
        yield Path(folder)


def _turns(spark: SparkSession, row: Row, cell: Cell, effort: Effort, root: Path, scratch: Path) -> list[Turns]:
    """All peers by turns; the first run, of a repetition if the input moves, is what answers are held to."""
    peers: Sequence[Peer] = row.peers(cell)
    turns = {peer.name: Turns(peer.name) for peer in peers}
    folder = written(cell.data, root)
    reference: pa.Table | None = None
    too_slow: dict[str, bool] = defaultdict(bool)
    for number in range(effort.repetitions):
        reference = None if cell.data.moves else reference
        first = number * len(peers) // effort.repetitions  # the first of a cell pays for the compilation of its code
        for peer in [*peers[first:], *peers[:first]]:
            if too_slow[peer.name]:
                continue
            run = measured(spark, peer, cell, folder, scratch)
            if reference is None:
                reference = run.answer
            check(cell, peer.name, run.answer, reference)
            wall = run.figures["wall_seconds"]
            too_slow[peer.name] = wall > effort.patience_seconds and not peer.name.startswith(OURS)
            turns[peer.name].runs.append(run)
            _told(f"{row.ident} {cell.name}: {peer.name} {wall:.1f} s")
    return list(turns.values())


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "cell": cell.name,
        "data": asdict(cell.data),
        "aggregates": {name: dict(call) for name, call in cell.aggregates.items()},
        "slots": cell.slots,
        "ideal_seconds": cell.ideal_seconds,
        "ideal_rows": cell.ideal_rows,
    }


def _line(cell: str, turns: Turns) -> dict[str, Any]:
    return {
        "cell": cell,
        "peer": turns.peer,
        "walls": [round(run.figures["wall_seconds"], 3) for run in turns.runs],
        "figures": _rounded(turns.medians()),
        "profile": _rounded(turns.profile()),
    }


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


def _told(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
