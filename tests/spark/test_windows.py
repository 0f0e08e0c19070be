"""Several windows in one result, windows of all parts, and late data that is left out."""

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skewless.errors import InputError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part
from skewless.spec.spec import JobSpec
from skewless.standing.states_store import StatesStore
from skewless_cli import run_view
from skewless_cli.running import check_job
from skewless_spark.result.merge import result_schema
from tests.spark.scenario import as_rows, result_of, shown, window_of
from tests.spark.test_window import AGGREGATES, DAY, Lake, lake, reduced

__all__ = ["lake"]

#: Native and Python aggregates; those of text and lists tell the order of the parts.
SOME = {name: AGGREGATES[name] for name in ("n", "total", "earliest", "listed", "counted")}


def spec_of(lake: Lake, **fields: Any) -> JobSpec:
    """The job in the engine that has one stage: how rows are routed is tested elsewhere."""
    return lake.spec(**{"aggregates": SOME, "engine": "combine", "routing": {"reducers": 2}, **fields})


def of_days(lake: Lake, days: Iterable[int]) -> list[tuple[Any, ...]]:
    """What ``SOME`` of all rows of some days is, without Spark and without Skewless."""
    values, words = defaultdict[Any, list[Any]](list), defaultdict[Any, list[Any]](list)
    for file in (file for day in days for file in sorted(lake.path(day, "x").parent.glob("*.parquet"))):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            values[row["key"]].append(row["value"])
            words[row["key"]].append(row["word"])
    columns = {
        "key": list(values),
        "n": [len(one) for one in values.values()],
        "total": [sum(one) for one in values.values()],
        "earliest": [one[0] for one in words.values()],
        "listed": list(values.values()),
        "counted": [
            [
                {"value": word, "count": count}
                for word, count in sorted(Counter(one).items(), key=lambda it: (-it[1], it[0]))
            ]
            for one in words.values()
        ],
    }
    return as_rows(pa.table(columns))


def of_window(run: RunDirectory, length: int) -> list[tuple[Any, ...]]:
    result = result_of(run)
    return as_rows(result.filter(pc.equal(result["window"], length)).drop_columns("window"))


def test_each_window_of_several_is_that_of_a_run_over_its_own_days(lake: Lake) -> None:
    expectations = [
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "window", "value_set": [1, 2, 4]}},
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1}},
    ]
    spec = spec_of(lake, window=[1, 2, 4], quality={"expectations": expectations})
    for day in (0, 1, 3):  # there is no day 2
        lake.put(day, "b", rows=100)
    lake.night(1, spec)
    lake.put(0, "a", rows=40)
    words, _ = check_job(spec, "spec", Part(DAY + dt.timedelta(days=3)), str(lake.folder))
    told = r"window of 1, 2, 4: 3 parts with files; 200 rows in kept states of [\d,]+ bytes, for files of \d"
    assert re.search(told, words)
    run = lake.night(3, spec, publish=True)
    assert reduced(run) == 140
    assert result_of(run).column_names == ["key", "window", *SOME]
    for length in (1, 2, 4):
        assert of_window(run, length) == of_days(lake, range(4 - length, 4))

    window = window_of(run)
    assert [(one.length, one.first) for one in window.windows] == [(1, 2), (2, 2), (4, 0)]
    assert [(line.name, line.rows, line.of_parts_rows) for line in run.part_lines().windows] == [
        ("1", 100, 100), ("2", 100, 100), ("4", 340, 340)
    ]  # fmt: skip
    assert [one["window"] for one in run_view.as_object(run)["window_plan"]] == ["1", "2", "4"]
    quality = run.quality()
    assert quality is not None
    assert quality.success
    assert quality.keys == result_of(run).num_rows == sum(line.keys for line in run.part_lines().windows)
    assert any(check.column == "key, window" for check in quality.checks)

    plain = spec_of(lake, window=[1, 2], aggregates={"n": "count"})
    for day in (0, 1, 2):  # states of one part are copied from the stage, those of two are merged
        lake.put(day, "c", rows=30)
    run = lake.night(2, plain)
    assert [of_window(run, length) for length in (1, 2)] == [
        [row[:2] for row in of_days(lake, range(3 - length, 3))] for length in (1, 2)
    ]
    csv = plain.model_copy(update={"output": plain.output.model_copy(update={"format": "csv"})})
    assert (
        result_schema(lake.spark, lake.prepared(3, csv).job(), "spec").simpleString()
        == "struct<key:string,window:int,n:bigint>"
    )


@pytest.mark.long
def test_a_window_of_all_parts_has_every_day_up_to_the_runs_own(lake: Lake) -> None:
    spec = spec_of(lake, window="all")
    for day in (0, 1, 3, 4):
        lake.put(day, "b", rows=100)
    for stray in ("date=2026-11-99", "date=latest", "other"):
        (lake.folder / "lake" / stray).mkdir()
    lake.night(1, spec)
    run = lake.night(3, spec)
    assert reduced(run) == 100
    assert as_rows(result_of(run)) == of_days(lake, range(4))
    window = window_of(run)
    assert window.missing == ("2026-11-22",)
    by_column = spec_of(lake, window="all", input={"path": str(lake.folder / "lake"), "parts": "date"})
    found = window_of(lake.prepared(3, by_column))
    assert [part.name for part in found.parts] == [part.name for part in window.parts]
    with pytest.raises(InputError, match="expected files of each part, but got none of 2026-11-22"):
        lake.prepared(3, spec_of(lake, window={"length": "all", "missing": "fail"}))
    for odd in (dt.date(1970, 1, 1), dt.date(2099, 1, 1)):
        lake.put((odd - DAY).days, "odd", rows=10)
    found = window_of(lake.prepared(3, spec))
    assert [part.name for part in found.parts] == ["1970-01-01", *(part.name for part in window.parts)]
    told = "1970-01-02, 1970-01-03, 1970-01-04, ..., 2026-11-18, 2026-11-19, 2026-11-22 (20,777 in all)"
    assert found.missing_words == told
    assert len(found.model_dump_json()) < 25_000


@pytest.mark.long
def test_late_data_that_is_ignored_is_counted_and_taken_in_by_a_later_run(lake: Lake) -> None:
    ignore = spec_of(lake, window={"length": 3, "late": "ignore"})
    for day in range(3):
        lake.put(day, "b", rows=100)
    lake.night(1, ignore)
    before = of_days(lake, range(3))
    lake.put(0, "late", rows=40)
    lake.path(1, "b").unlink()  # a whole day
    words, _ = check_job(ignore, "spec", Part(DAY + dt.timedelta(days=2)), str(lake.folder))
    assert re.search(r"3 parts with files, 2 late files left out; 200 rows in kept states of .*\.$", words)
    run = lake.night(2, ignore)
    assert reduced(run) == 100
    assert as_rows(result_of(run)) == before
    window = window_of(run)
    assert [(part.ignored_files, part.ignored_rows) for part in window.parts] == [(1, 40), (1, 0), (0, 0)]
    assert window.counts() == {"reused": 2, "reread": 0, "added": 1, "replaced": 0, "removed": 0}
    text = shown(run)
    assert "late: 2 files with 40 rows were left out (late: ignore)" in text
    assert "late.parquet was added, and left out" in text
    told = run_view.as_object(run)
    assert (told["late_files_ignored"], told["late_rows_ignored"]) == (2, 40)

    # What was left out is not opened again: the next run takes its rows from the last one.
    store = StatesStore(window.store)
    last, _ = store.newest("2026-11-22")
    assert last is not None
    (counted,) = last.version.left_out
    assert (counted.path, counted.rows) == (str(lake.path(0, "late")), 40)
    marked = counted.model_copy(update={"rows": 41})
    store.commit_all([last.version.model_copy(update={"left_out": (marked,), "run": "marked"})])
    next_night = window_of(lake.prepared(2, ignore))
    assert next_night.ignored_rows == 41

    lake.put(2, "late", rows=30)  # the run's own part is always up to date
    own = lake.night(2, ignore)
    assert reduced(own) == 30
    taken = lake.night(2, spec_of(lake))
    assert reduced(taken) == 40
    assert as_rows(result_of(taken)) == of_days(lake, range(3))
