"""The inputs of B14 have the same rows in each format, and what is made of seconds and answers; no Spark needed."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from benchmarks import formats
from benchmarks.fresh_process import PLAIN
from benchmarks.one_process import READS
from benchmarks.one_process import main as one_process
from benchmarks.spark.measurement import WrongAnswerError

ROWS = 2_000
READ = {
    "parquet": "read_parquet('{}/*')",
    "csv": "read_csv('{}/*')",
    "json": "read_json('{}/*')",
    "text": "read_csv('{}/*', delim=' ', header=false, names=['key', 'value', 'visitor'])",
}


@pytest.mark.parametrize("cell", formats.CELLS)
def test_each_input_has_the_rows(tmp_path: Path, cell: str) -> None:
    folder, kind = formats.input_of(tmp_path, ROWS, cell), formats.CELLS[cell][0]
    if kind == "orc":
        found = orc.read_table(next(folder.iterdir())).to_pydict()
    else:
        query = f"SELECT key, value, visitor FROM {READ[kind].format(folder)}"
        found = duckdb.connect().sql(query).to_arrow_table().to_pydict()
    assert found == formats.drawn(ROWS).to_pydict()
    assert formats.input_of(tmp_path, ROWS, cell) == folder
    sums = formats.drawn(ROWS).group_by("key").aggregate([([], "count_all"), ("value", "sum")]).to_pylist()
    for peer in (name for name, kinds in READS.items() if kind in kinds):
        one_process(peer, kind, str(folder), str(tmp_path / peer))
        told = pq.read_table(tmp_path / peer / "part.parquet").to_pylist()
        expected = {one["key"]: (one["count_all"], one["value_sum"]) for one in sums}
        assert {one["key"]: (one["n"], one["total"]) for one in told} == expected


def test_each_cell_has_a_line_and_an_aim_of_its_medians() -> None:
    seconds = {PLAIN: [10.0, 8.0, 90.0], formats.OURS: [12.0, 12.6, 11.0]}
    found = {"setting": {}, "lines": [
        {"rows": 1_000, "cell": "CSV", "bytes": 3_000_000, "seconds": seconds},
        {"rows": 1_000, "cell": "JSON", "bytes": 0, "seconds": {**seconds, formats.OURS: [13.0]}},
    ]}  # fmt: skip
    judged = formats.verdicts(found)
    assert [(one.figure, one.met) for one in judged] == [(1.2, True), (1.3, False)]
    page = formats.page(found)
    assert "| 1,000 | CSV | 3 | 10.0 | 12.0 | 1.20 |" in page


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
