"""States of Python aggregates, and the numbers of keys, do not depend on how rows and states are cut into batches."""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from skewless.errors import AggregateError
from skewless_spark.aggregates.keys import KeyIndex
from skewless_spark.states import python_reduction
from skewless_spark.states.python_calls import PythonCall, checked, guarded
from skewless_spark.states.python_reduction import ADMITTED, FORWARDED, STAYED, reduce_batches

WORDS = PythonCall("words", "value_counts", {}, ("string",), "a_s0_0", "s0_0", "r0")
KEYS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40)


def batches_of(table: pa.Table, cuts: list[int]) -> list[pa.RecordBatch]:
    ends = sorted(min(cut, len(table)) for cut in cuts)
    parts = [table.slice(start, end - start) for start, end in zip([0, *ends], [*ends, len(table)], strict=True)]
    return [part.combine_chunks().to_batches()[0] for part in parts if len(part)]


def rows_of(keys: list[str | None]) -> pa.Table:
    hashes = pa.array([(n * 0x9E3779B1) % 2**32 - 2**31 for n in range(len(keys))], pa.int64())
    texts = [f"w{n % 3}" for n in range(len(keys))]
    return pa.table({"c0": pa.array(keys, pa.string()), "a_s0_0": texts, "rows_hash": hashes})


def reduced(batches: list[pa.RecordBatch], *, apart: bool = False) -> pa.Table:
    found = list(reduce_batches([WORDS], ["c0"], apart=apart)(batches))
    return pa.Table.from_batches(found).drop_columns(["key_seconds", "task_seconds", "setup_seconds"])


@settings(deadline=None)
@given(keys=KEYS, cuts=st.lists(st.integers(0, 40), max_size=6), apart=st.booleans())
def test_states_are_those_of_one_batch(keys: list[str | None], cuts: list[int], apart: bool) -> None:
    rows = rows_of(keys)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(python_reduction, "JOINED_ROWS", 5)
        cut = reduced(batches_of(rows, cuts), apart=apart)
    whole = reduced(batches_of(rows, []))
    assert cut.to_pylist() == whole.to_pylist()
    assert whole["python_rows"].to_pylist() == whole["python_admitted"].to_pylist()
    assert whole["c0"].to_pylist() == list(dict.fromkeys(keys))


def test_modules_of_a_worker_are_left_out_of_its_collections_and_those_of_this_process_are_not(
    spark: SparkSession,
) -> None:
    reduce = reduce_batches([WORDS], ["c0"])

    def left_out(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sum(batch.num_rows for batch in reduce(batches))
        yield pa.RecordBatch.from_pydict({"keys": [found], "objects": [gc.get_freeze_count()]})

    row = spark.createDataFrame([("a", "w0", 7)], "c0 string, a_s0_0 string, rows_hash bigint").coalesce(1)
    (found,) = row.mapInArrow(left_out, "keys bigint, objects bigint").collect()
    assert found["keys"] == 1
    assert found["objects"] > 10_000
    before = gc.get_freeze_count()
    reduced(batches_of(rows_of(["a"]), []))
    assert gc.get_freeze_count() == before


def test_batches_are_joined_until_they_have_as_many_rows_as_keys_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_reduction, "JOINED_ROWS", 10)
    batches = batches_of(rows_of(["a", "b"] * 20), list(range(4, 40, 4)))
    assert [one.num_rows for one in python_reduction._joined(batches, lambda: 0)] == [12, 12, 12, 4]
    assert [one.num_rows for one in python_reduction._joined(batches, lambda: 30)] == [32, 8]


def test_rows_are_counted_by_how_they_came() -> None:
    rows = rows_of(["b", "b", "c", "a"])
    rows = rows.append_column("arrival", pa.array([ADMITTED, STAYED, FORWARDED, STAYED], pa.int8()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(python_reduction, "JOINED_ROWS", 1)
        found = reduced(batches_of(rows, [1, 2]))
    counts: list[dict[str, Any]] = found.drop_columns(["s0_0", "python_hash"]).to_pylist()
    assert counts == [
        {"c0": "b", "python_rows": 2, "python_admitted": 1, "python_forwarded": 0, "total_rows": 2},
        {"c0": "c", "python_rows": 1, "python_admitted": 0, "python_forwarded": 1, "total_rows": 1},
        {"c0": "a", "python_rows": 1, "python_admitted": 0, "python_forwarded": 0, "total_rows": 1},
    ]


def test_states_that_no_array_holds_are_told_as_that() -> None:
    text, accumulator = pa.array(["x" * (60 << 20)]), WORDS.accumulator()
    for work in (lambda: pa.concat_arrays([text] * 40), lambda: pa.chunked_array([text] * 40)):
        with pytest.raises(AggregateError, match=r"less than 2 GiB of text for all keys of a task.*routing\.reducers"):
            checked(WORDS, guarded(WORDS, "state", accumulator, work, str), pa.string(), 40, "state")


ANY_KEYS = st.lists(st.none() | st.text(max_size=3) | st.sampled_from(["a", "b", "NULL", ""]), max_size=60)


def test_a_key_keeps_its_number_in_later_batches() -> None:
    index = KeyIndex()
    index.number(pa.array(["b", "a"]))
    groups, new_rows = index.number(pa.array(["c", "a", "d", "b", "c"]))
    assert groups.tolist() == [2, 1, 3, 0, 2]
    assert new_rows.tolist() == [0, 2]
    assert len(index) == 4


def test_a_slice_of_a_longer_array_is_numbered_by_its_own_rows() -> None:
    groups, new_rows = KeyIndex().number(pa.array(["x", "y", None, "y", "z"]).slice(2, 2))
    assert (groups.tolist(), new_rows.tolist()) == ([0, 1], [0, 1])


@settings(deadline=None)  # the first Arrow call of a process imports pandas
@given(batches=st.lists(ANY_KEYS, max_size=5))
def test_numbers_are_those_of_a_plain_dictionary_fed_row_by_row(batches: list[list[str | None]]) -> None:
    index = KeyIndex()
    plain: dict[str | None, int] = {}
    for batch in batches:
        expected_new = [row for row, key in enumerate(batch) if key not in plain and key not in batch[:row]]
        expected = [plain.setdefault(key, len(plain)) for key in batch]
        groups, new_rows = index.number(pa.array(batch, pa.string()))
        assert groups.tolist() == expected
        assert new_rows.tolist() == expected_new
        assert groups.dtype == new_rows.dtype == np.int64
        assert len(index) == len(plain)
