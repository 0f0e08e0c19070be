"""Keys are numbered in order of first appearance, however they are cut into batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless_spark.aggregates.key_index import KeyIndex

KEYS = st.lists(st.none() | st.text(max_size=3) | st.sampled_from(["a", "b", "NULL", ""]), max_size=60)


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
@given(batches=st.lists(KEYS, max_size=5))
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
