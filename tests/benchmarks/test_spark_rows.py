"""Every row of the Spark benchmarks at a tiny size: all peers run, and all say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.spark.cell import Cell, Place, Size
from benchmarks.spark.datasets import drawn_keys, files_of, written
from benchmarks.spark.harness import Effort, measure
from benchmarks.spark.measurement import WrongAnswerError, measured
from benchmarks.spark.page import write
from benchmarks.spark.peers.grouping import KeyGrouping, ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.rows import ROWS
from benchmarks.spark.rows.slept import paced
from benchmarks.spark.setting import session

pytestmark = pytest.mark.long

TINY = Size(scale=0.0005)
ONCE = Effort(repetitions=1)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The benchmarks' own session, whose workers find the aggregates by their entry points."""
    with session(2) as started:
        yield started


def tiny(cell: Cell) -> Cell:
    """The same in few files and stages: each one costs Spark some time."""
    return replace(cell, data=replace(cell.data, files=10), routing={"waves": [1, 4]})


@pytest.mark.parametrize("ident", ROWS)
def test_a_row_runs_and_its_peers_agree(spark: SparkSession, ident: str, tmp_path: Path) -> None:
    row = ROWS[ident]
    # The cells of B2 differ in their skew alone, those of B6 in all.
    cells = [tiny(cell) for cell in row.cells(TINY)][: 1 if ident == "B2" else None]
    document = measure(spark, row, cells, TINY, ONCE, tmp_path / "data")
    write(document, tmp_path / "results")
    assert {line["peer"] for line in document["lines"]} == {peer.name for cell in cells for peer in row.peers(cell)}
    assert all(line["figures"]["wall_seconds"] > 0 for line in document["lines"])
    text = (tmp_path / "results" / f"spark_{ident.lower()}.json").read_text(encoding="utf-8")
    assert json.loads(text) == json.loads(json.dumps(document))
    assert str(tmp_path) not in text
    assert (tmp_path / "results" / f"spark_{ident.lower()}.svg").exists()
    assert "OF THE FULL SIZE" in (tmp_path / "results" / "spark.md").read_text(encoding="utf-8")


def test_a_wrong_answer_fails_the_row(spark: SparkSession, tmp_path: Path) -> None:
    class Forgetful(KeyGrouping):
        def run(self, spark: SparkSession, cell: Cell, place: Place) -> dict[str, float]:
            less = place.scratch / "less"
            less.mkdir()
            for path in files_of(place.input)[1:]:
                (less / Path(path).name).symlink_to(path)
            return dict(super().run(spark, cell, place._replace(input=less)))

    row = replace(ROWS["B5"], peers=lambda _: [ShuffleGrouping(), Forgetful()])
    with pytest.raises(WrongAnswerError, match="KG on uniform"):
        measure(spark, row, [tiny(cell) for cell in row.cells(TINY)], TINY, ONCE, tmp_path)


def test_figures_of_peers_are_what_their_definition_says(spark: SparkSession, tmp_path: Path) -> None:
    (cell,) = (tiny(one) for one in ROWS["B9"].cells(TINY))
    folder = written(cell.data, tmp_path)
    keys = len(set(drawn_keys(cell.data).tolist()))
    by_key = measured(spark, KeyGrouping(), cell, folder, tmp_path / "scratch")
    assert by_key.answer.num_rows == keys
    assert by_key.figures["set_ups"] == keys
    assert by_key.figures["partial_states"] == keys
    by_split = measured(spark, ShuffleGrouping(), cell, folder, tmp_path / "scratch")
    assert by_split.figures["partial_states"] == by_split.figures["set_ups"] > keys
    # Ten files on eight slots: two of them have two.
    assert by_split.figures["load_rows"] == pytest.approx(cell.data.rows / 5, abs=2)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_rows_of_a_slow_slot_take_longer(spark: SparkSession, tmp_path: Path) -> None:
    (even,) = (tiny(one) for one in ROWS["B5"].cells(TINY))
    cell = replace(even, slots=2, aggregates=paced(0.002, slots=2, slow_slot=1, slowdown=3.0, tally=""))
    folder = written(cell.data, tmp_path)
    slow = measured(spark, ShuffleGrouping(), cell, folder, tmp_path / "scratch").figures["wall_seconds"]
    # Half of the rows, three times as long as they would take.
    assert slow >= cell.data.rows / 2 * 0.002 * 3.0


def test_ours_is_timed_without_the_steps_that_no_peer_has(spark: SparkSession, tmp_path: Path) -> None:
    (cell,) = (tiny(one) for one in ROWS["B5"].cells(TINY))
    found = measured(spark, Skewless("staged"), cell, written(cell.data, tmp_path), tmp_path / "scratch")
    figures = found.figures
    timed = sum(figures[f"{step}_seconds"] for step in ("prepare", "stages", "merge"))
    assert figures["wall_seconds"] == pytest.approx(timed)
    assert figures["prepare_seconds"] > 0
    assert figures["validate_seconds"] > 0
    assert min(found.profile.values()) >= 0
    assert found.answer.schema.field("total").type == pa.int64()
