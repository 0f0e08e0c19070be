"""Columns of the user's that have the names of columns inside: every such name, with every engine, mapped or not."""

import datetime as dt
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless.spec.input import OWN_PREFIX
from skewless_spark.prepare.freezing import freeze
from tests.spark.scenario import DATE, result_of, run_job, spec_of, write_input
from tests.tiers import mostly_long

_CODE = Path(__file__).parents[2] / "jobs" / "skewless_spark"
#: Where our code names a column: in SQL, in calls, in constants, and as a field of an Arrow table.
_NAMINGS = (
    r"\bAS ([a-z_]\w*)", r"alias\(f?\"(\w+)\"", r"\bcol\(f?\"(\w+)\"", r"withColumn\(\"(\w+)\"",
    r"^_?[A-Z_]+ = \"([a-z_]+)\"$", r"batch\[\"(\w+)\"\]", r"^ +\"(\w+)\": pa\.array",
)  # fmt: skip
_NUMBERED = ("c0", "c1", "s0", "s1", "s0_0", "a_s1_0", "r0", "r1", "p0", "key_0", "m0", "b0_0", "position", "o")
NAMES = sorted(
    {
        *(
            name
            for file in _CODE.rglob("*.py")
            for naming in _NAMINGS
            for name in re.findall(naming, file.read_text(), re.MULTILINE)
        ),
        *_NUMBERED,
    }
    - {"date", "_metadata"}
)
#: Of whole numbers, so that Python aggregates take them; all others are times.
_NUMBERS = ("python_rows", "states", "task", "total_rows")
_ROWS = 240
_START = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)


def value(name: str, row: int) -> Any:
    at = (row * 7919 + sum(name.encode()) * 31) % 5000
    return at if name in _NUMBERS else _START + dt.timedelta(seconds=at)


def column(name: str, rows: range) -> pa.Array:
    kind = pa.int64() if name in _NUMBERS else pa.timestamp("us", "UTC")
    return pa.array([value(name, row) for row in rows], kind)


def in_select(names: list[str]) -> dict[str, Any]:
    return {
        "select": [*(f"`{name}`" for name in names), "explode(array(1, 2)) AS twice"],
        "where": f"`{names[2]}` IS NOT NULL",
    }


def check(
    spark: SparkSession, folder: Path, names: list[str], engine: str, section: dict[str, Any] | None, **fields: Any
) -> None:
    """A job over columns of some names, grouped by the first two of them, beside plain Python."""
    keys, values = names[:2], names[2:]
    of_keys = {name: pa.array([value(name, row % 12) for row in range(_ROWS)]) for name in keys}
    table = pa.table(of_keys | {name: column(name, range(_ROWS)) for name in values})
    path = write_input(folder / "in" / f"date={DATE}", table, files=4)
    # Results have names from inside, too, each that of another column.
    named = dict(zip(values, values[1:] + values[:1], strict=True))
    python = "value_counts" if "window" in fields else "exact_median"  # which has no window
    of_python = {f"m_{name}": {"function": python, "column": name} for name in values if name in _NUMBERS}
    spec = spec_of(
        path, keys, {name: {"function": "max", "column": of} for name, of in named.items()} | of_python,
        engine=engine, routing={"reducers": 3, "waves": [1] if engine == "bypass" else [1, 1]},
        **({"map": section} if section else {}), **fields,
    )  # fmt: skip
    run, finished, _ = run_job(spark, spec, folder / "run")
    assert finished.quality.success
    wanted: dict[Any, list[Any]] = {}
    for number in range(_ROWS):
        wanted.setdefault(tuple(value(name, number % 12) for name in keys), []).append(number)
    found = result_of(run).to_pylist()
    assert len(found) == len(wanted)
    for row in found:
        rows = wanted[tuple(row[name] for name in keys)]
        assert {name: row[name] for name in named} == {n: max(value(of, r) for r in rows) for n, of in named.items()}
        for name, call in of_python.items():
            ordered = sorted(value(call["column"], r) for r in rows)
            half = len(ordered) // 2
            if python == "exact_median":
                assert row[name] == (ordered[half] + ordered[~half]) / 2
            else:
                counts = Counter(ordered * (2 if section else 1))
                assert {one["value"]: one["count"] for one in row[name]} == counts


WAYS = list(itertools.product(("staged", "combine", "bypass"), (False, True)))


@pytest.mark.parametrize(("engine", "mapped"), mostly_long(WAYS, ("staged", True)))
def test_a_column_may_have_any_name_from_inside(spark: SparkSession, tmp_path: Path, engine: str, mapped: bool) -> None:
    at = WAYS.index((engine, mapped))
    assert {"route_key", "task", "kind", "slot", "rows", "file_path", "position", "s0"} <= set(NAMES)
    chosen = NAMES[at :: len(WAYS)]
    names = [*chosen, *(name for name in _NUMBERS[at % 2 :: 2] if name not in chosen)]
    check(spark, tmp_path, names, engine, in_select(names) if mapped else None)


#: Of kept states and their merge, of what goes to Python and comes from it.
_OF_WINDOWS = (
    "route_key", "part", "place", "node", "begin", "file", "newest", "standing", "states", "rows", "python_rows",
    "task", "whole", "kept", "s0", "c0", "m0", "origin", "origin_index",
)  # fmt: skip


@pytest.mark.long
def test_a_column_may_have_any_name_from_inside_in_a_window(spark: SparkSession, tmp_path: Path) -> None:
    """The key is called as its own text is in Python."""
    names = list(_OF_WINDOWS)
    source = {"path": str(tmp_path / "in" / "date={date}")}
    check(spark, tmp_path, names, "staged", in_select(names), window=2, input=source)


def test_names_that_begin_as_ours_do_and_names_of_two_columns_are_refused(tmp_path: Path) -> None:
    ours = f"{OWN_PREFIX.upper()}origin"
    numbers = pa.array([1, 2])
    table = pa.Table.from_arrays([numbers, numbers, numbers, numbers], names=["a", "a", ours, "v"])
    write_input(tmp_path / "in", table, files=1)
    total = {"function": "sum", "column": "v"}
    for key, call, said in [
        (ours, total, "expected a column name that Spark and Skewless do not use"),
        ("v", {"function": "max", "column": ours}, "expected a column name that Spark and Skewless do not use"),
        ("a", total, "'a' of type unsupported bigint, of several columns with this name"),
        (["v", "a"], "count", "'a' of type unsupported bigint, of several columns with this name"),
        ("v", {"function": "max", "column": "a"}, "'a' of type unsupported bigint, of several columns with this name"),
    ]:
        with pytest.raises(InputError, match=re.escape(said)):
            freeze(spec_of(tmp_path / "in", key, {"n": call}), DATE, str(tmp_path), "spec")
    assert freeze(spec_of(tmp_path / "in", "v", {"n": "count"}), DATE, str(tmp_path), "spec").rows == 2
