"""What B11 makes of counts and seconds; no Spark needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import price_of_a_stage as b11
from benchmarks.fresh_process import PLAIN
from benchmarks.plain_tokens import COLUMNS, tokens
from benchmarks.spark.measurement import WrongAnswerError

WORK = {"executions": 1, "jobs": 3, "tasks": 9, "shuffle_bytes_written": 100, "shuffle_bytes_read": 200}


def found(later_seconds: float, work: dict[str, int]) -> dict[str, Any]:
    seconds = {PLAIN: [9.0, 10.0, 30.0], b11.FIRST: [20.0], b11.LATER: [later_seconds], b11.STAGES: [21.0]}
    warm = {"rows": 10, "stage_seconds": [2.0], "plain_seconds": [0.5], "seconds_beyond": 1.5, "work": work}
    stages = {b11.LATER: [{"stage": 0, "work": work}]}
    return {"repetitions": 3, "warm": [warm], "fresh": {"seconds": seconds, "stages": stages}}


def test_each_aim_is_judged_on_medians() -> None:
    judged = {(one.cell, one.aim): one.met for one in b11.verdicts(found(14.9, WORK))}
    ratio = "`skewless run` over plain PySpark, in fresh processes"
    read = "shuffle bytes read over written"
    wanted = [(b11.LATER, ratio), (b11.STAGES, ratio), (f"{b11.LATER}, stage 0", read), ("10 rows", read)]
    wanted.append(("10 rows", "seconds of a warm stage beyond plain Spark"))
    assert [judged[one] for one in wanted] == [True, False, True, False, False]
    more = {(one.cell, one.aim): one.met for one in b11.verdicts(found(15.1, {**WORK, "jobs": 4}))}
    assert not more[b11.LATER, ratio]
    assert not more["10 rows", "Spark jobs of a stage"]


def test_the_page_has_a_line_for_each_size_and_each_way() -> None:
    document = found(14.0, WORK)
    setting = {"cores": 2, "python": "3.11", "spark": "4.3.0"}
    page = b11.page({**document, "setting": setting})
    assert "| later night | 14.0 | 1.40 | 1 |" in page
    assert "| 10 | 2.00 | 0.50 | 1.50 |" in page


def test_the_plain_script_finds_the_tokens_and_other_counts_than_its_own_are_refused(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"if x_1:", b"", b"\xffa"], "file": ["f", "f", "g"]})
    (made,) = tokens(iter([batch]))
    assert made.to_pydict() == dict(zip(COLUMNS, (["if", "x_1", "a"], ["f", "f", "g"], [0, 3, 1]), strict=True))
    for folder, count in (("plain", 1), ("same", 1), ("other", 2)):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"token": ["a"], "occurrences": [count]}), tmp_path / folder / "0.parquet")
    b11._require_same("ours", tmp_path / "plain", tmp_path / "same")
    with pytest.raises(WrongAnswerError, match="1 tokens, of other counts"):
        b11._require_same("ours", tmp_path / "plain", tmp_path / "other")
