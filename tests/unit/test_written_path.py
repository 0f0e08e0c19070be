"""A path keeps the scheme, the bucket and the account that its user wrote."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from skewless.documents.steps import Failure
from skewless.errors import RunDirectoryError
from skewless.run.directory import RunDirectory
from skewless.run.objects.location import as_written, open_location
from skewless.run.retention import Limits, fates
from tests.unit.synthetic import job

SCHEMES = ["s3a://bucket", "s3://bucket", "gs://bucket", "abfss://box@account.dfs.core.windows.net", "memory://place"]


@pytest.mark.parametrize("place", SCHEMES)
@pytest.mark.parametrize("below", ["", "/f", "/f/g h/date=1/x.parquet", "/a@b/c:d"])
def test_what_a_file_system_strips_is_put_back_as_it_was(place: str, below: str) -> None:
    fs, inner = open_location(f"{place}{below}")
    assert as_written(fs, f"{place}/elsewhere", inner) == f"{place}{below}"


def test_a_local_path_stays_a_path(tmp_path: Path) -> None:
    for location in (str(tmp_path), f"file://{tmp_path}"):
        fs, inner = open_location(location)
        assert as_written(fs, location, f"{inner}/x") == f"{tmp_path}/x"


def test_a_path_of_another_bucket_is_refused() -> None:
    fs, inner = open_location("s3a://bucket-two/x")
    with pytest.raises(RunDirectoryError, match="s3a://bucket: expected a path in it"):
        as_written(fs, "s3a://bucket/y", inner)


# Those on object stores are in test_object_stores.py: they have a client of their own.
@pytest.mark.parametrize("place", ["memory://place"])
def test_a_run_directory_is_named_as_it_was_given(place: str) -> None:
    location = f"{place}/runs/nightly/run-1"
    run = RunDirectory(f"{location}/")
    assert (str(run), run.path("states/0")) == (location, f"{location}/states/0")
    run.write_once("failures/a.json", Failure(exit_code=1, sentence="It failed."))
    assert RunDirectory(str(run)).read("failures/a.json", Failure).sentence == "It failed."
    with pytest.raises(RunDirectoryError, match=f"run directory {location}: there is no job.json"):
        run.job()


@pytest.mark.parametrize("place", ["memory://place"])
def test_runs_that_are_listed_are_named_as_their_folder_was(place: str) -> None:
    RunDirectory(f"{place}/runs/nightly/run-1").write_once("job.json", job([10]))
    (fate,) = fates(f"{place}/runs", dt.datetime(2030, 1, 1, tzinfo=dt.UTC), Limits())
    assert fate.location == f"{place}/runs/nightly/run-1"
