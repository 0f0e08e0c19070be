"""How answers are compared and aims are judged; no Spark needed."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.result_files import Verdict
from benchmarks.spark.cell import Cell, Size
from benchmarks.spark.datasets import Dataset, LakeOfDays, written
from benchmarks.spark.measurement import WrongAnswerError, check
from benchmarks.spark.rows import ROWS
from benchmarks.spark.spark_work import JobWork, QueryWork, StageWork, TaskWork, profiled

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
