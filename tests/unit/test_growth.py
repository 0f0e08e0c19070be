"""What grows with tasks, files and workers grows no faster than they do: bytes and looks are counted, not seconds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.columns import column, exact_sum, numbers
from skewless.document import LARGEST_COUNT
from skewless.documents.commit import StepCommit
from skewless.documents.job import Job, Unit
from skewless.errors import DocumentError
from skewless.routing.hashing import BUCKET_SEED, bucket_hash, hashes_of, key_hash
from tests.unit import synthetic


def job_of(files: int) -> Job:
    units = tuple(Unit(path=f"/lake/part-{n:06d}.parquet", rows=n, size_bytes=n + 1) for n in range(files))
    return synthetic.job([1]).model_copy(update={"units": units, "waves": (tuple(range(files)),)})


def test_a_file_more_is_a_value_more_in_each_column_that_differs() -> None:
    few, many = (len(job_of(files).sealed()) for files in (1_000, 2_000))
    assert (many - few) / 1_000 <= 45, "the path, two counts and the ordinal; no name of a field, no default"


def test_a_job_of_many_files_is_read_into_few_bytes_for_each() -> None:
    text = job_of(20_000).sealed().encode()
    tracemalloc.start()
    job = Job.from_sealed(text)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held / len(job.units) <= 300, "as objects each took two kilobytes"


def test_columns_are_a_sequence_of_rows_and_go_both_ways() -> None:
    job = job_of(7)
    again = Job.from_sealed(job.sealed().encode())
    assert again == job
    assert hash(again) == hash(job)
    assert again.units == tuple(job.units) != tuple(job.units)[:-1]
    assert again.units[1:3] == tuple(again.units)[1:3]
    assert again.units[-1].rows == 6
    assert type(again.units[2].rows) is int
    assert again.units[2].model_copy(update={"rows": 5}).rows == 5
    assert column(again.units, "counted") == [True] * 7
    assert numbers(again.units, "rows").sum() == job.rows == 21
    assert column(tuple(job.units), "rows") == numbers(tuple(job.units), "rows").tolist() == list(range(7))
    assert Job.model_validate(job.model_dump()) == job


def test_columns_of_different_lengths_are_refused() -> None:
    text = StepCommit(step="a", attempt="b", files=()).to_json().replace('"rows":[]', '"rows":[1]')
    with pytest.raises(DocumentError, match=r"field files: expected columns of one length, but got 0 and 1"):
        StepCommit.from_json(text)
    with pytest.raises(DocumentError, match=r"field files.more: there is no such field"):
        StepCommit.from_json(text.replace('"kind"', '"more":[],"kind"'))


def test_sums_beyond_64_bits_are_exact() -> None:
    assert exact_sum(np.full(1 << 12, LARGEST_COUNT)) == LARGEST_COUNT << 12


@given(st.lists(st.text(max_size=300), max_size=40))
def test_many_keys_are_hashed_as_one_is(keys: list[str]) -> None:
    assert hashes_of(keys).tolist() == [key_hash(key) for key in keys]
    assert hashes_of(keys, BUCKET_SEED).tolist() == [bucket_hash(key) for key in keys]
