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

from benchmarks import formats, growth, many_files, memory, planning, table_output
from benchmarks.one_process import READS
from benchmarks.one_process import main as one_process
from benchmarks.result_files import Verdict
from benchmarks.spark.cell import Cell, Place, Size
from benchmarks.spark.datasets import Dataset, LakeOfDays, drawn_keys, files_of, written
from benchmarks.spark.harness import Effort, measure
from benchmarks.spark.measurement import WrongAnswerError, check, measured
from benchmarks.spark.page import write
from benchmarks.spark.peers.grouping import KeyGrouping, ShuffleGrouping
from benchmarks.spark.rows import ROWS
from benchmarks.spark.setting import session
from benchmarks.spark.spark_work import JobWork, QueryWork, StageWork, TaskWork, profiled

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
    tables = table_output.measure(files=8, repetitions=1, root=tmp_path / "tables")
    assert len(tables["verdicts"]) == sum(len(ways) for ways in table_output.PLACES.values())


# How answers are compared and aims are judged; no Spark needed.

SMALL = Dataset(rows=1000, keys=20, exponent=1.2, files=8)

CELL = Cell(
    name="small", data=SMALL, aggregates={"total": {"function": "sum"}, "median": {"function": "x"}}, slots=2,
    tolerances={"median": 0.1}, spans={"median": 100.0},
)  # fmt: skip


def test_an_aim_is_met_up_to_its_limit_and_missed_without_a_figure() -> None:
    upper = Verdict("wall over KG", "uniform", 1.05, 1.05)
    lower = Verdict("times as fast", "uniform", 2.0, 2.0, at_least=True)
    figures = [(upper, 1.05), (lower, 2.0), (upper, 1.06), (lower, 1.99), (upper, None), (lower, float("nan"))]
    assert [replace(one, figure=figure).met for one, figure in figures] == [True, True, False, False, False, False]
    assert replace(upper, figure=1.2).words == "MISSED: uniform: wall over KG, at most 1.05; 1.2"
    assert replace(lower, figure=None).words == "MISSED: uniform: times as fast, at least 2; not measured"


def test_every_aim_of_every_row_is_judged_by_figures_that_its_peers_have() -> None:
    for row in ROWS.values():
        cells = row.cells(Size(scale=0.001))
        peers = {peer.name for cell in cells for peer in row.peers(cell)}
        everything = {
            (cell.name, peer): dict.fromkeys(
                ["wall_seconds", "wall_over_ideal", "load_over_ideal", "partial_states", "state_bytes",
                 "largest_task_rows", "rows_forwarded", "forwarded_share", "set_ups_per_key", "owners_of_a_key",
                 "rows_read", "states_made"], 1.0,
            )
            for cell in cells
            for peer in peers
        }  # fmt: skip
        missing = [one.words for one in row.aims(everything, cells) if one.figure is None]
        assert missing == []


def test_an_answer_must_be_that_of_the_others() -> None:
    answer = pa.table({"key": ["a", "b"], "total": [1, 2], "median": [10.0, 20.0]})
    check(CELL, "KG", answer, answer)
    near = answer.set_column(2, "median", pa.array([20.0, 29.9]))
    check(CELL, "KG", near, answer)
    with pytest.raises(WrongAnswerError, match="KG on small: total of b is 3, not 2"):
        check(CELL, "KG", answer.set_column(1, "total", pa.array([1, 3])), answer)
    with pytest.raises(WrongAnswerError, match="median of b is 31, not 20"):
        check(CELL, "KG", answer.set_column(2, "median", pa.array([10.0, 31.0])), answer)
    with pytest.raises(WrongAnswerError, match="1 keys, not the 2"):
        check(CELL, "KG", answer.slice(0, 1), answer)


def test_files_of_a_lake_come_night_by_night(tmp_path: Path) -> None:
    lake = LakeOfDays(rows=100, keys=20, exponent=1.2, files=2, days=5, nights=2, late_days=(1, 3))
    folder = written(lake, tmp_path)
    rows = {str(path.relative_to(folder)): pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet")}
    assert {path for path in rows if path.startswith("days/")} == {
        f"days/{day}/part-00{number}.parquet" for day in range(5) for number in range(2)
    }
    assert {path: count for path, count in rows.items() if path.startswith(("night-2/", "late-2/"))} == {
        "night-2/6/part-000.parquet": 50,
        "night-2/6/part-001.parquet": 50,
        "night-2/5/late-2-000.parquet": 2,
        "night-2/3/late-2-000.parquet": 2,
        "late-2/1/late-2-000.parquet": 1,
    }
    assert lake.moves
    assert written(lake, tmp_path) == folder


def test_wall_time_is_told_by_what_it_goes_into() -> None:
    def job(number: int, started: float, seconds: float, *tasks: tuple[float, float]) -> JobWork:
        stage = StageWork(number, tuple(TaskWork(*task, 0, 0, 0, 0, 0) for task in tasks))
        return JobWork(number, "", started, seconds, (stage,))

    of_query, apart = job(1, 1.5, 3.0, (2.0, 2.0), (2.0, 1.0)), job(2, 7.0, 1.0, (7.0, 0.5))
    found = profiled([QueryWork("", 1.0, 5.0, frozenset({1}))], [of_query, apart], slots=2, wall_seconds=10.0)
    # Two tasks from 2 to 4 and to 3, in a query from 1 to 6; one from 7 to 7.5 in a job from 7 to 8.
    assert list(found.values()) == [1.75, 0.75, 3.5, 4.0]
