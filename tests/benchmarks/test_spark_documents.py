"""What a row's document, page and plot say; no Spark needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.result_files import Figures, Verdict, as_documents, write_all_aims
from benchmarks.spark.cell import Cell, Size
from benchmarks.spark.datasets import Dataset, LakeOfDays, drawn_keys, drawn_values, files_of, written
from benchmarks.spark.measurement import WrongAnswerError, check
from benchmarks.spark.page import write
from benchmarks.spark.rows import ROWS
from benchmarks.spark.spark_work import JobWork, QueryWork, StageWork, TaskWork, profiled

SMALL = Dataset(rows=1000, keys=20, exponent=1.2, files=8)
CELL = Cell(
    name="small", data=SMALL, aggregates={"total": {"function": "sum"}, "median": {"function": "x"}}, slots=2,
    tolerances={"median": 0.1}, spans={"median": 100.0},
)  # fmt: skip


def document(row: str = "B5", wall: float = 2.0, scale: float = 1.0) -> dict[str, Any]:
    verdict = Verdict("wall over KG", "uniform", wall, 1.05)
    return {
        "row": row, "title": "a title", "text": "A text.", "plotted": "wall_seconds", "scale": scale, "long": False,
        "repetitions": 3, "patience_seconds": 30.0, "took_seconds": 4,
        "setting": {"cores": 2, "memory_gib": 24.0, "python": "3", "spark": "4", "java": "17", "engines": ["staged"]},
        "cells": [],
        "verdicts": [{"aim": verdict.aim, "met": verdict.met, "words": verdict.words}],
        "lines": [
            {"cell": "uniform", "peer": "KG", "walls": [1.0], "figures": {"wall_seconds": 1.0}, "profile": {}},
            {"cell": "uniform", "peer": "skewless staged", "walls": [wall] * 3, "figures": {"wall_seconds": wall},
             "profile": {}},
        ],
    }  # fmt: skip


def test_an_aim_is_met_up_to_its_limit_and_missed_without_a_figure() -> None:
    upper = Verdict("wall over KG", "uniform", 1.05, 1.05)
    lower = Verdict("times as fast", "uniform", 2.0, 2.0, at_least=True)
    figures = [(upper, 1.05), (lower, 2.0), (upper, 1.06), (lower, 1.99), (upper, None), (lower, float("nan"))]
    assert [replace(one, figure=figure).met for one, figure in figures] == [True, True, False, False, False, False]
    assert replace(upper, figure=1.2).words == "MISSED: uniform: wall over KG, at most 1.05; 1.2"
    assert replace(lower, figure=None).words == "MISSED: uniform: times as fast, at least 2; not measured"


def test_a_ratio_needs_both_figures() -> None:
    medians = {("c", "KG"): {"wall_seconds": 6.0}, ("c", "ours"): {"wall_seconds": 3.0}}
    assert Figures("c", medians).ratio("KG", "ours") == 2.0
    assert Figures("c", medians).ratio("SG", "ours") is None


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


def test_an_input_is_drawn_once_and_is_the_same_for_the_same_parameters(tmp_path: Path) -> None:
    folder = written(SMALL, tmp_path / "one")
    again = written(SMALL, tmp_path / "other")
    assert [Path(path).read_bytes() for path in files_of(folder)] == [Path(p).read_bytes() for p in files_of(again)]
    stamps = [Path(path).stat().st_mtime_ns for path in files_of(folder)]
    assert written(SMALL, tmp_path / "one") == folder
    assert [Path(path).stat().st_mtime_ns for path in files_of(folder)] == stamps
    assert written(replace(SMALL, seed=1), tmp_path / "one") != folder


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


def test_the_first_file_may_hold_half_of_the_rows(tmp_path: Path) -> None:
    files = files_of(written(replace(SMALL, first_file_share=0.5), tmp_path))
    rows = [pq.read_metadata(path).num_rows for path in files]
    assert (rows[0], sum(rows), len(rows)) == (500, 1000, 8)


def test_a_cost_belongs_to_its_key() -> None:
    data = replace(SMALL, values="cost")
    values = drawn_values(data, keys := drawn_keys(data))
    assert all(len(np.unique(values[keys == key])) == 1 for key in np.unique(keys))
    assert len(np.unique(values)) > 5


def test_a_row_that_is_run_again_changes_its_own_files_and_the_page(tmp_path: Path) -> None:
    write(document("B5"), tmp_path)
    write(document("B9"), tmp_path)
    other = {name: (tmp_path / name).read_bytes() for name in ("spark_b9.json", "spark_b9.svg")}
    before = (tmp_path / "spark_b5.svg").read_bytes()
    write(document("B5", wall=1.0), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in other} == other
    assert (tmp_path / "spark_b5.svg").read_bytes() != before
    text = (tmp_path / "spark.md").read_text(encoding="utf-8")
    of_b5, of_b9 = text.split("## B9")
    assert "| KG | 1.00 |\n| skewless staged | 1.00 |" in of_b5
    assert "| KG | 1.00 |\n| skewless staged | 2.00 |" in of_b9
    assert "AT 0.1 OF THE FULL SIZE" not in text
    write(document("B5", scale=0.1), tmp_path)
    assert "AT 0.1 OF THE FULL SIZE" in (tmp_path / "spark.md").read_text(encoding="utf-8")


def test_a_plot_has_the_same_bytes_each_time_and_no_date(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(json.loads(json.dumps(document())), tmp_path / name)
    one, other = ((tmp_path / name / "spark_b5.svg").read_text(encoding="utf-8") for name in ("one", "other"))
    assert one == other
    assert "dc:date" not in one
    assert len(one) < 20_000


def test_all_aims_are_on_one_page_with_what_was_missed(tmp_path: Path) -> None:
    good, bad = Verdict("wall over SG", "z=1.2", 1.0, 1.05), Verdict("states", "z=1.2", None, 0.5, at_least=True)
    lines = [{"cell": cell, "peer": "SG", "profile": {"tasks": 2.0, "rest": 1.0}} for cell in ("z=1.2", "z=2.0")]
    spark = {"row": "B2", "long": True, "verdicts": as_documents([good, bad]), "lines": lines}
    (tmp_path / "spark_b2_long.json").write_text(json.dumps(spark))
    over_cells = {"aim": "makespan", "met": False, "worst": "1.2 (drift)", "missed": ["1.2 (drift)"], "cells": 3}
    (tmp_path / "balance.json").write_text(json.dumps({"verdicts": [over_cells, {**over_cells, "met": None}]}))
    (tmp_path / "waterfall_balance.svg").touch()  # of an aim that was missed once
    write_all_aims(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "3 aims, 1 of them met" in text
    assert "\n[B2 (60 s)](spark.md) 1/2." in text
    waterfall = (tmp_path / "waterfall_spark_b2_long.svg").read_text()
    assert "z=1.2, SG: 3.0 s" in waterfall
    assert "z=2.0" not in waterfall
    link = "([waterfall](waterfall_spark_b2_long.svg))"
    assert f"\n- [B2 (60 s)](spark.md) {link}: states, at least 0.5: z=1.2, not measured\n" in text
    assert "\n- [balance](balance.md): makespan: missed in 1 of 3 cells, at worst 1.2 (drift)\n" in text


def test_wall_time_is_told_by_what_it_goes_into() -> None:
    def job(number: int, started: float, seconds: float, *tasks: tuple[float, float]) -> JobWork:
        stage = StageWork(number, tuple(TaskWork(*task, 0, 0, 0, 0, 0) for task in tasks))
        return JobWork(number, "", started, seconds, (stage,))

    of_query, apart = job(1, 1.5, 3.0, (2.0, 2.0), (2.0, 1.0)), job(2, 7.0, 1.0, (7.0, 0.5))
    found = profiled([QueryWork("", 1.0, 5.0, frozenset({1}))], [of_query, apart], slots=2, wall_seconds=10.0)
    # Two tasks from 2 to 4 and to 3, in a query from 1 to 6; one from 7 to 7.5 in a job from 7 to 8.
    assert list(found.values()) == [1.75, 0.75, 3.5, 4.0]
