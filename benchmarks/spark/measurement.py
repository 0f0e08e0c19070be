"""One run of one peer: its time, what Spark did meanwhile, and its answer held to that of the others."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.spark.cell import Cell, Peer, Place, Settling
from benchmarks.spark.spark_work import JobWork, jobs_since, next_job, profiled, queries_since, stages_of


class WrongAnswerError(Exception):
    """A peer computed something else than ours did: the row fails."""


@dataclass(frozen=True)
class Measurement:
    """One run.

    Attributes:
        figures: by name.
        answer: the result, by key.
        profile: seconds of wall time by what they went into.
    """

    figures: dict[str, float]
    answer: pa.Table
    profile: dict[str, float]


def measured(spark: SparkSession, peer: Peer, cell: Cell, folder: Path, scratch: Path) -> Measurement:
    """Run a peer once, on an input that is there."""
    scratch.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(dir=scratch))
    tally = own / "tally"
    tally.mkdir()
    place = Place(folder, own / "output", own / "scratch")
    place.scratch.mkdir()
    try:
        if isinstance(peer, Settling):
            peer.settle(spark, cell, place)
        first = next_job(spark)
        began, started = time.time(), time.perf_counter()
        own_figures = peer.run(spark, cell.with_tally(str(tally)), place)
        wall = time.perf_counter() - started
        jobs = jobs_since(spark, first)
        answer = _answer(place.output, cell)
        figures = {"wall_seconds": wall, **_told_by_spark(jobs, answer.num_rows), **own_figures}
        if any("tally" in call for call in cell.aggregates.values()):
            figures["set_ups"] = sum(int(file.read_text(encoding="ascii")) for file in tally.glob("*.txt"))
            figures["set_ups_per_key"] = figures["set_ups"] / max(1, answer.num_rows)
        until = began + figures["wall_seconds"]
        _relate(figures, cell)
        queries = [query for query in queries_since(spark, began) if query.started < until]
        timed = [job for job in jobs if job.started < until]
        profile = profiled(queries, timed, spark.sparkContext.defaultParallelism, figures["wall_seconds"])
        return Measurement(figures, answer, profile)
    finally:
        shutil.rmtree(own)


def check(cell: Cell, peer: str, answer: pa.Table, reference: pa.Table) -> None:
    """Hold an answer to another one: the same keys, and per key the same up to the cell's tolerances.

    Raises:
        WrongAnswerError: names the peer, the column and the first key that differ.
    """
    where = f"{peer} on {cell.name}"
    if not answer["key"].equals(reference["key"]):
        raise WrongAnswerError(f"{where}: {answer.num_rows:,} keys, not the {reference.num_rows:,} of the others")
    for name in cell.aggregates:
        mine, theirs = (table[name].cast(pa.float64()).to_numpy() for table in (answer, reference))
        allowed = cell.tolerances.get(name, 0.0) * (cell.spans.get(name) or np.maximum(1.0, np.abs(theirs)))
        wrong = np.flatnonzero(~(np.abs(mine - theirs) <= allowed))
        if len(wrong):
            at = int(wrong[0])
            raise WrongAnswerError(
                f"{where}: {name} of {answer['key'][at]} is {mine[at]:g}, not {theirs[at]:g} as with the others"
                f" (and {len(wrong) - 1:,} more)"
            )


def _answer(folder: Path, cell: Cell) -> pa.Table:
    table = pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))
    table = table.select(["key", *cell.aggregates]).combine_chunks()
    return table.take(pc.sort_indices(table["key"]))


def _told_by_spark(jobs: Sequence[JobWork], keys: int) -> dict[str, float]:
    """Bytes between tasks, and for a peer of one pass the load of its tasks and its states."""
    stages = stages_of(jobs)
    giving = [stage for stage in stages if stage.total("given_rows")]
    figures: dict[str, float] = {"stages": 1, "shuffled_bytes": float(sum(s.total("given_bytes") for s in stages))}
    if not giving:
        return figures
    # Rows cross once at most, states after them: the last exchange is that of the states if it is smaller
    # than what was read, and else there are none but the results themselves.
    read = max(stage.total("input_rows") for stage in stages)
    last = giving[-1]
    merged = last.total("given_rows") < read
    figures["partial_states"] = float(last.total("given_rows") if merged else keys)
    figures["state_bytes"] = float(last.total("given_bytes") if merged else stages[-1].total("written_bytes"))
    if merged and len(giving) == 1:
        figures["load_rows"] = float(last.largest("input_rows"))
    else:
        figures["load_rows"] = float(max(stage.largest("shuffled_rows") for stage in stages))
    figures["largest_task_rows"] = figures["load_rows"]
    return figures


def _relate(figures: dict[str, float], cell: Cell) -> None:
    """Times and loads over the ideal ones, as far as the cell has them."""
    if cell.ideal_seconds:
        figures["wall_over_ideal"] = figures["wall_seconds"] / cell.ideal_seconds
    if cell.ideal_rows and "load_rows" in figures:
        figures["load_over_ideal"] = figures["load_rows"] / cell.ideal_rows
        if cell.ideal_seconds:
            busy = figures["load_over_ideal"] * cell.ideal_seconds
            figures["overhead_per_stage_seconds"] = (figures["wall_seconds"] - busy) / figures["stages"]
    if "rows_forwarded" in figures:
        figures["forwarded_share"] = figures["rows_forwarded"] / cell.data.rows
