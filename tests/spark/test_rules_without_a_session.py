"""Rules of the Spark face that take no session to try: loads of tasks, deleted rows, addresses of servers."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.documents.job import Unit
from skewless.errors import InputError
from skewless.planner.first_plan import first_plan
from skewless.routing.plan import RoutingPlan
from skewless.spec.spec import JobSpec
from skewless_spark.sources.lake.snapshot import VECTOR, deleted_of_unit, deleted_positions, packed, unpacked
from skewless_spark.stage.measured_stage import task_loads
from skewless_spark.windows.part_files import sees_order
from tests.unit import synthetic


def counts(rows: int = 1000, **fields: Any) -> dict[str, Any]:
    return {"rows": rows, "left_over": 0, "states": 7, "task_seconds": None, "setup_seconds": None, **fields}


def plan_of(tasks: int) -> RoutingPlan:
    return first_plan(synthetic.job([1000], reducers=tasks))


@pytest.mark.parametrize(
    ("task", "setup", "rows", "busy"),
    [
        (None, None, 1000, None),
        (0.04, None, 1000, None),  # too short to tell anything
        (0.04, 0.02, 1000, 0.06),  # setting keys up is work, too
        (0.06, None, 1000, 0.06),
        (0.06, None, 3000, None),  # too little for a row
        (0.09, None, 3000, 0.09),
        (0.0, 0.5, 100, 0.5),
    ],
)
def test_seconds_are_told_where_they_are_more_than_the_noise(
    task: float | None, setup: float | None, rows: int, busy: float | None
) -> None:
    first, other = task_loads(plan_of(2), {0: counts(rows, left_over=5, task_seconds=task, setup_seconds=setup)})
    assert (first.busy_seconds, first.processed_rows, first.backlog_rows, first.queued_rows) == (
        busy,
        rows,
        5,
        rows + 5,
    )
    assert (other.queued_rows, other.states, other.busy_seconds) == (0, 0, None)


def test_a_deletion_vector_comes_back_as_it_was() -> None:
    for kept in ([], [True] * 9, [False, True, True, False] * 5, [True] * 70 + [False]):
        assert unpacked(packed(kept)).tolist() == [at for at, one in enumerate(kept) if not one]


def test_deleted_rows_are_those_of_the_file_each_once_and_counted_from_the_unit(tmp_path: Path) -> None:
    data, other = "/lake/a.parquet", "/lake/b.parquet"
    spelled = {
        "first": [(other, 1), (f"file:{data}", 9), (other, 0), (f"file:{data}", 4)],
        "second": [(f"file://{data}", 4), (data, 2)],
    }
    for name, rows in spelled.items():
        table = {"file_path": [path for path, _ in rows], "pos": pa.array([at for _, at in rows], pa.int64())}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    deletes = [str(tmp_path / f"{name}.parquet") for name in spelled]
    vectors = {data: packed([True, True, False, True, True, True, False])}
    assert deleted_positions(data, deletes, {}).tolist() == [2, 4, 9]
    assert deleted_positions(other, deletes, {}).tolist() == [0, 1]
    assert deleted_positions("/lake/c.parquet", deletes, {}).tolist() == []
    assert deleted_positions(data, [deletes[0], f"{VECTOR}1"], vectors).tolist() == [2, 4, 6, 9]
    unit = Unit(path=data, rows=5, size_bytes=1, deletes=tuple(deletes), first_row=3)
    assert deleted_of_unit(unit, {}).tolist() == [-1, 1, 6]
    assert deleted_positions(data, [], {}).dtype == np.int64
    with pytest.raises(InputError, match=r"delete file .*gone.parquet: expected the deleted rows of /lake/a.parquet"):
        deleted_positions(data, [str(tmp_path / "gone.parquet")], {})


def test_rows_are_seen_in_order_if_one_of_the_aggregates_asks_for_it() -> None:
    spec = synthetic.spec()
    calls = {
        "n": {"function": "count"}, "visits": {"function": "sessions", "column": "at", "gap": 60.0},
        "middle": {"function": "exact_median", "column": "at"},
    }  # fmt: skip
    asked = [
        sees_order(JobSpec.model_validate({**spec.model_dump(), "aggregates": {name: calls[name] for name in names}}))
        for names in (["n"], ["n", "visits"], ["middle", "n"])
    ]
    assert asked == [False, True, True]
