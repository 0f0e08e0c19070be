"""What the log of a Delta table says of the files that we write: the bounds by which readers skip them."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_lake.delta_log import bounds_of
from skewless_lake.publication import roll_back
from skewless_spark.sources.lake.delta import snapshot_of
from skewless_spark.sources.lake.table_inputs import Condition
from tests.lake.outputs import DAY, NOW, part_of, publish

AT = dt.datetime(2026, 11, 20, 12, 0, 0, 999_999, tzinfo=dt.UTC)
LONG = "x" * 80
#: What many tables have for "until further notice". The log cuts it off to milliseconds, and there is no next one.
FOR_EVER = dt.datetime.max  # noqa: DTZ901  # as some columns have it


def rows(number: int) -> pa.Table:
    columns: dict[str, tuple[pa.DataType, Any]] = {
        "key": (pa.string(), f"{'abc'[number]}{LONG}"),
        "n": (pa.int64(), 100 * number),
        "on": (pa.date32(), DAY + dt.timedelta(days=number)),
        "at": (pa.timestamp("us", "UTC"), AT + dt.timedelta(hours=number)),
        "wall": (pa.timestamp("us"), AT.replace(tzinfo=None) + dt.timedelta(hours=number)),
        "mean": (pa.float64(), float(number)),
        "cents": (pa.decimal128(12, 2), Decimal(number)),
        "all": (pa.list_(pa.int64()), [number]),
        "top": (pa.struct([("item", pa.string())]), {"item": "a"}),
    }
    return pa.table({name: pa.array([value, value, None], kind) for name, (kind, value) in columns.items()})


def actions(root: Path) -> list[dict[str, Any]]:
    table = pa.table(DeltaTable(str(root / "marts" / "clicks")).get_add_actions(flatten=True))
    return sorted(table.to_pylist(), key=lambda one: one["min.n"])


def publish_three(root: Path, turn: int) -> None:
    publish(root / f"{turn}", root, "delta", pa.concat_tables(map(rows, range(3))), turn=turn, in_files=3)


def test_files_have_the_bounds_of_their_rows_and_keep_them_in_a_rollback(tmp_path: Path) -> None:
    publish_three(tmp_path, 1)
    before = actions(tmp_path)
    for number, one in enumerate(before):
        assert (one["num_records"], one["null_count.key"], one["null_count.mean"]) == (3, 1, 1)
        assert (one["min.n"], one["max.n"]) == (100 * number, 100 * number)
        assert one["min.on"] == one["max.on"] == DAY + dt.timedelta(days=number)
        whole = f"{'abc'[number]}{LONG}"
        assert one["min.key"] <= whole <= one["max.key"]
        assert len(one["max.key"]) == 64
        at, millisecond = AT + dt.timedelta(hours=number), dt.timedelta(milliseconds=1)
        for name, exact in (("at", at), ("wall", at.replace(tzinfo=None))):
            assert exact - millisecond < one[f"min.{name}"] <= exact <= one[f"max.{name}"] < exact + millisecond
        assert {one.get(f"{bound}.{name}") for bound in ("min", "max") for name in ("mean", "cents", "all")} == {None}
    publish_three(tmp_path, 2)
    roll_back(part_of("delta", tmp_path), NOW)
    after = actions(tmp_path)
    assert [one["path"] for one in after] == [one["path"] for one in before]
    bounds = [name for name in before[0] if name.startswith(("min.", "max.", "null_count.", "num_"))]
    assert [[one[name] for name in bounds] for one in after] == [[one[name] for name in bounds] for one in before]


def test_a_job_that_reads_the_table_leaves_files_out_by_them(tmp_path: Path) -> None:
    publish_three(tmp_path, 1)
    table = str(tmp_path / "marts" / "clicks")
    snapshot = snapshot_of(
        Input.model_validate({"format": "delta", "path": table}),
        Part(DAY),
        "",
        table,
        lambda _: [Condition("n", "bigint", ">=", (200,))],
    )
    assert [pq.read_table(file.path, partitioning=None)["n"][0].as_py() for file in snapshot.files] == [200]
    assert snapshot.table.left_out == 2


#: Short ones of all alphabets, and some that are cut, which differ little or not at all before that.
texts = st.text(max_size=5) | st.text("ab\U0010ffff", min_size=1, max_size=5).map(lambda end: "\U0010ffff" * 62 + end)


@given(st.lists(texts, min_size=1, max_size=5))
def test_bounds_of_texts_hold_all_of_them(found: list[str]) -> None:
    bounds = bounds_of(min(found), max(found))
    assert bounds is None or all(bounds[0] <= one <= bounds[1] for one in found)  # type: ignore[operator]


@pytest.mark.long
def test_a_log_that_has_the_last_millisecond_leaves_out_no_file_by_it(tmp_path: Path) -> None:
    for until in (FOR_EVER, FOR_EVER.replace(year=2026)):
        write_deltalake(str(tmp_path), pa.table({"until": pa.array([until], pa.timestamp("us", "UTC"))}), mode="append")
    new_year = int(dt.datetime(2027, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    after_new_year = Condition("until", "timestamp", ">", (new_year,))
    given = Input.model_validate({"format": "delta", "path": str(tmp_path)})
    snapshot = snapshot_of(given, Part(DAY), "", str(tmp_path), lambda _: [after_new_year])
    assert [pq.read_table(file.path)["until"][0].as_py().year for file in snapshot.files] == [9999]
    assert snapshot.table.left_out == 1


@pytest.mark.long
def test_a_day_goes_back_though_a_file_of_another_program_has_dates_that_python_does_not_have(tmp_path: Path) -> None:
    publish_three(tmp_path, 1)
    table = DeltaTable(str(tmp_path / "marts" / "clicks"))
    far = pa.array([8_000_000], pa.int32()).cast(pa.date32())
    write_deltalake(table, pa.table({"on": far, "date": far}), mode="append", schema_mode="merge")
    for turn in (2, 3):
        publish_three(tmp_path, turn)
    assert roll_back(part_of("delta", tmp_path), NOW)["run"] == str(tmp_path / "2")
