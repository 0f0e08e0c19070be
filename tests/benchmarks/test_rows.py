"""Each row and figure of the benchmarks runs at a small size, its peers agree, and a wrong answer fails it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from benchmarks import formats, growth, many_files, memory, object_input, planning, table_output
from benchmarks.one_process import READS
from benchmarks.one_process import main as one_process
from benchmarks.spark.cell import Cell, Place, Size
from benchmarks.spark.datasets import drawn_keys, files_of, written
from benchmarks.spark.harness import Effort, measure
from benchmarks.spark.measurement import WrongAnswerError, measured
from benchmarks.spark.page import write
from benchmarks.spark.peers.grouping import KeyGrouping, ShuffleGrouping
from benchmarks.spark.rows import ROWS
from benchmarks.spark.setting import session

TINY = Size(scale=0.0005)

ONCE = Effort(repetitions=1)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The benchmarks' own session, whose workers find the aggregates by their entry points."""
    with session(2) as started:
        yield started


def tiny(cell: Cell) -> Cell:
    return replace(cell, data=replace(cell.data, files=10), routing={"waves": [1, 4]})


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


INPUT_ROWS = 2_000

READ = {
    "parquet": "read_parquet('{}/*')",
    "csv": "read_csv('{}/*')",
    "json": "read_json('{}/*')",
    "text": "read_csv('{}/*', delim=' ', header=false, names=['key', 'value', 'visitor'])",
}


@pytest.mark.parametrize("cell", formats.CELLS)
def test_each_input_has_the_rows(tmp_path: Path, cell: str) -> None:
    folder, kind = formats.input_of(tmp_path, INPUT_ROWS, cell), formats.CELLS[cell][0]
    if kind == "orc":
        found = orc.read_table(next(folder.iterdir())).to_pydict()
    else:
        query = f"SELECT key, value, visitor FROM {READ[kind].format(folder)}"
        found = duckdb.connect().sql(query).to_arrow_table().to_pydict()
    assert found == formats.drawn(INPUT_ROWS).to_pydict()
    assert formats.input_of(tmp_path, INPUT_ROWS, cell) == folder
    sums = formats.drawn(INPUT_ROWS).group_by("key").aggregate([([], "count_all"), ("value", "sum")]).to_pylist()
    for peer in (name for name, kinds in READS.items() if kind in kinds):
        one_process(peer, kind, str(folder), str(tmp_path / peer))
        told = pq.read_table(tmp_path / peer / "part.parquet").to_pylist()
        expected = {one["key"]: (one["count_all"], one["value_sum"]) for one in sums}
        assert {one["key"]: (one["n"], one["total"]) for one in told} == expected


@pytest.mark.parametrize(("total", "visitors"), [(6, 100.0), (5, 120.0)], ids=["another sum", "another sketch"])
def test_other_answers_are_refused(tmp_path: Path, total: int, visitors: float) -> None:
    answers = {"plain": (5, 100.0), "same": (5, 104.0), "other": (total, visitors)}
    for name, (one, sketch) in answers.items():
        (tmp_path / name).mkdir()
        table = pa.table({"key": ["a"], "n": [1], "total": [one], "visitors": [sketch]})
        # Spark says of its counts that they are never null.
        table = table.cast(table.schema.set(1, pa.field("n", pa.int64(), nullable=name != "plain")))
        pq.write_table(table, tmp_path / name / "0.parquet")
    formats.require_same("CSV", tmp_path / "plain", tmp_path / "same")
    with pytest.raises(WrongAnswerError, match="CSV: 1 keys, of other values"):
        formats.require_same("CSV", tmp_path / "plain", tmp_path / "other")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_figures_that_are_no_rows_are_measured_at_a_small_size(tmp_path: Path) -> None:
    files = many_files.measure(scale=0.01, rounds=1)
    assert [line["files"] for line in files["lines"]] == [100, 1_000]
    subjects = {name: subject._replace(sizes=(10, 100)) for name, subject in growth.SUBJECTS.items()}
    assert len(growth.measure(subjects, apart=False)["lines"]) == 2 * len(subjects)
    decisions = planning.measure(scale=0.01, apart=False)["lines"]
    assert {line["ring"] for line in decisions} == {*planning.RINGS}
    assert memory.measure(tmp_path / "memory", scale=0.001)["balanced"]
    buckets = object_input.measure(rows=12_000, repetitions=1, root=tmp_path / "buckets")
    assert buckets["seconds"].keys() == {object_input.READING, object_input.PEER, object_input.OURS, object_input.NEAR}
    tables = table_output.measure(files=8, repetitions=1, root=tmp_path / "tables")
    assert len(tables["verdicts"]) == sum(len(ways) for ways in table_output.PLACES.values())
