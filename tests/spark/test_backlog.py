"""States and backlog of one pass over the rows are those of a branch of their own for the backlog, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from skewless_spark.branches import tasks
from skewless_spark.engines import ENGINES
from skewless_spark.stage.queue import Stage
from skewless_spark.stage.routes import TASK
from skewless_spark.stage.state_counts import COUNTS
from skewless_spark.states.committed_files import BACKLOG
from skewless_spark.states.committed_files import NATIVE as NATIVE_STATES
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import as_rows, prepared, spec_of, write_input
from tests.tiers import mostly_long

NATIVE = {
    "n": "count",
    "most": {"function": "max", "column": "price"},
    "all": {"function": "sum", "column": "price"},
    "days": {"function": "min", "column": "day"},
}
WORDS = {
    "last": {"function": "max", "column": "word"},
    "words": {"function": "approx_count_distinct", "column": "word"},
}
PYTHON = {"words": {"function": "value_counts", "column": "word"}, "prices": {"function": "latest", "column": "price"}}
#: Rows that each of three tasks may reduce: few, none.
BUDGETS = (40, 0)


def odd_rows(rows: int = 2_000) -> pa.Table:
    """Keys with null among them, and values that could change on their way: minus zero, NaN, no text, NUL."""
    rng = np.random.default_rng(5)
    prices = [[-0.0, 0.0, float("nan"), None, 1.5][number % 5] for number in range(rows)]
    words = [["\u00e9", "", None, "a\0"][number % 4] for number in range(rows)]
    keys = [None if rank == 3 else f"k{rank}" for rank in (rng.zipf(1.5, rows) % 40).tolist()]
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "price": pa.array(prices, pa.float64()),
            "day": pa.array([number % 90 for number in range(rows)], pa.date32()),
            "word": words,
        }
    )


@pytest.mark.parametrize("budget", mostly_long(BUDGETS, 40))
@pytest.mark.parametrize(
    "aggregates",
    mostly_long([NATIVE, {**NATIVE, **WORDS}, PYTHON, {**NATIVE, **PYTHON}], NATIVE),
    ids=["of a fixed size", "texts and sketches", "python", "both"],
)
def test_one_pass_makes_the_states_and_the_backlog_of_two(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aggregates: dict[str, Any], budget: int
) -> None:
    path = write_input(tmp_path / "input", odd_rows(), files=4)
    routing = {"policy": "static", "reducers": 3, "waves": [1, 1], "first_plan": []}
    run = prepared(tmp_path, spec_of(path, "key", aggregates, routing=routing))
    columns = JobColumns.of(run.job())
    # Few rows are expected, so that states of any size are made in one pass.
    plan = run.plan(0).model_copy(update={"budget_rows": budget, "expected_rows": (1, 0, 0)})
    found = []
    for once in (True, False):
        monkeypatch.setattr(tasks, "_may_leave", lambda _, once=once: once)
        outcome = ENGINES["staged"].outcome(Stage(spark, run, columns, plan)).toArrow()
        assert set(outcome["kind"].to_pylist()) <= set(tasks.kinds_of(Stage(spark, run, columns, plan)))
        found.append(_tables(outcome, columns))
    assert found[0] == found[1]
    assert len(found[0]["backlog"]) > 0


def _tables(outcome: pa.Table, columns: JobColumns) -> dict[str, list[tuple[Any, ...]]]:
    """Counts, states and backlog, each row as text, in an order of its own: minus zero differs from zero there."""
    native, python = (
        [name for one in some for name in columns.states(one)] for some in (columns.native, columns.python)
    )
    place = [TASK, *columns.keys]
    parts = {
        "counts": (~pc.field("rows").is_null(), [*place, *COUNTS]),
        "backlog": (pc.field("kind") == BACKLOG, [*place, *columns.names, *columns.origins]),
    }
    if native:
        parts["native"] = ((pc.field("kind") == NATIVE_STATES) & (pc.field("rows") > 0), [*place, *native])
    if python:
        parts["python"] = (pc.field("python_rows") > 0, [*place, "python_rows", "total_rows", *python])
    return {name: as_rows(outcome.filter(which).select(some)) for name, (which, some) in parts.items()}
