"""Runs and states are kept apart from the input: what lay in it would be read by all runs to come."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.errors import SpecError
from skewless.publication.records import published_path
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.formats.input_files import find
from skewless_spark.sources.locations import check_kept
from tests.spark.scenario import DATE


def spec_of(path: object, **fields: Any) -> JobSpec:
    raw = {"name": "x", "input": {"path": str(path)}, "key": "k", "aggregates": {"n": "count"},
           "output": {"path": "out"}, **fields}  # fmt: skip
    return parse_spec(json.dumps(raw))


def is_refused(path: object, kept: object, root: object = "/") -> bool:
    try:
        check_kept(spec_of(path), str(root), {"run directory": str(kept)}, "spec")
    except SpecError as err:
        return f"run directory {kept}: expected a folder apart from the input {path}, but got one in" in str(err)
    return False


#: Input, and where a run is kept.
PLACES = [
    ("lake", "lake/runs/1"), ("lake", "lakes/1"), ("lake", "lake/.runs/1"), ("lake", "lake/_runs/1"), ("lake", "lake"),
    ("lake", "lake/_day=1/r"), ("lake/*", "lake/runs"), ("lake/*", "lake/.runs/1"), ("lake/*/*.parquet", "lake/runs/x"),
    ("lake/**/*.csv", "lake/runs"), ("lake/**/part-*", "lake/runs"), ("lake/a.parquet", "lake/runs"),
    ("lake/*/stages/*/*/*/*/*", "lake/runs"), ("lake/r[u]ns", "lake/runs/1"), ("linked", "lake/runs"),
]  # fmt: skip


def test_a_run_is_refused_in_a_place_just_if_its_files_would_be_read_there(tmp_path: Path) -> None:
    refused = []
    for number, (pattern, place) in enumerate(PLACES):
        base = tmp_path / str(number)
        for file in ("lake/a.parquet", "lake/x/b.parquet", "lake/x/c.csv"):
            (base / file).parent.mkdir(parents=True, exist_ok=True)
            (base / file).write_bytes(b"x")
        (base / "linked").symlink_to(base / "lake")
        before = find(str(base / pattern), may_miss=True)
        for file in ("job.json", "stages/0000/attempts/3f/states/part-00000.parquet"):
            (base / place / file).parent.mkdir(parents=True, exist_ok=True)
            (base / place / file).write_bytes(b"x")
        assert is_refused(base / pattern, base / place) == (find(str(base / pattern), may_miss=True) != before), pattern
        refused += [place] if is_refused(pattern, base / place, base) else []
    assert 5 < len(refused) < 10


@pytest.mark.parametrize(
    ("path", "kept", "refused"),
    [
        ("/lake/date={date}", "/lake/date=2031-01-01/run", True),
        ("/lake/{date:%Y/%m/%d}", "/lake/2031/01/31/run", True),
        ("/lake/{date:%Y/%m/%d}", "/lake/runs/run", False),
        ("s3://lake/clicks", "s3a://lake/clicks/runs/1", True),
        ("s3://lake/clicks/date={date}", "s3://lake/clicks/date=2031-01-01/run", True),
        ("s3://lake/clicks", "/lake/clicks/runs/1", False),
    ],
)
def test_other_days_and_buckets_count_too(path: str, kept: str, refused: bool) -> None:
    assert is_refused(path, kept) == refused


def test_prepare_refuses_before_anything_is_written(tmp_path: Path) -> None:
    day = tmp_path / "in" / f"date={DATE}"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"k": ["a"]}), day / "x.parquet")
    run = RunDirectory(str(tmp_path / "in" / "runs" / "1"))
    with pytest.raises(SpecError, match=r"run directory .*in/runs/1: expected a folder apart from the input"):
        prepare(run, spec_of("in"), DATE, str(tmp_path))
    inside = spec_of("in/date={date}", window={"length": 1, "states": "in/date=2031-01-31/states"})
    with pytest.raises(SpecError, match=r"the states in .*-01-31/states/x: expected a folder apart from the input"):
        prepare(RunDirectory(str(tmp_path / "runs" / "1")), inside, DATE, str(tmp_path))
    around = spec_of("in/date={date}", output={"format": "delta", "path": "in"})
    with pytest.raises(SpecError, match=r"output\.path: expected a folder apart from the input .*, but got delta"):
        prepare(RunDirectory(str(tmp_path / "runs" / "1")), around, DATE, str(tmp_path))
    assert not [*tmp_path.glob("**/runs")]
    beside = spec_of("in/date={date}", window={"length": 1, "states": "in/states"})
    prepare(run, beside, DATE, str(tmp_path))  # beside the days, nobody reads them


@pytest.mark.usefixtures("spark")
def test_results_and_runs_lie_apart_from_lookups(tmp_path: Path) -> None:
    for path in ("in/x", "pages/x", "out/date=2026-01-01/x"):
        (tmp_path / path).parent.mkdir(parents=True)
        pq.write_table(pa.table({"k": ["a"]}), tmp_path / f"{path}.parquet")
    query = "SELECT i.k, count(*) AS n FROM i JOIN p ON i.k = p.k JOIN own ON i.k = own.k GROUP BY i.k"
    tables = {name: {"path": path} for name, path in (("i", "in"), ("p", "pages"), ("own", "out"))}
    raw = {"name": "x", "query": query, "tables": tables}
    *inside, good = (parse_spec(json.dumps({**raw, "output": {"path": at}})) for at in ("pages", "pages/out", "out"))
    for spec in inside:
        with pytest.raises(SpecError, match=r"output\.path: .* apart from the lookup .*/pages, but got .*/pages"):
            freeze(spec, DATE, str(tmp_path), "spec")
    with pytest.raises(SpecError, match="expected a folder apart from the input pages, but got one inside it"):
        prepare(RunDirectory(str(tmp_path / "pages" / "runs" / "1")), good, DATE, str(tmp_path))
    assert published_path(freeze(good, DATE, str(tmp_path), "spec")) == str(tmp_path / "out" / f"date={DATE}")


def test_the_folders_of_days_may_have_another_name_than_a_key(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"date": ["a"]}), tmp_path / "in" / "x.parquet")
    spec = spec_of("in", key="date", output={"path": "out", "partition": "day"})
    job = prepare(RunDirectory(str(tmp_path / "run")), spec, DATE, str(tmp_path))
    assert published_path(job) == str(tmp_path / "out" / f"day={DATE}")
