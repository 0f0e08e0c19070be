"""Where the paths of a spec lead: below the data root if they are relative, whatever links are on the way."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.locations import resolved
from tests.spark.scenario import DATE, spec_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("root/input", "secret"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"key": ["a", "b"]}), tmp_path / folder / "part.parquet")
    return tmp_path / "root"


def froze(root: Path, source: str, target: str = "published") -> Any:
    spec = spec_of(Path("input"), "key", {"n": "count"})
    output = spec.output.model_copy(update={"path": target})
    given = spec.input.model_copy(update={"path": source})
    spec = spec.model_copy(update={"output": output, "input": given})
    return prepare(RunDirectory(str(root / "runs" / "r")), spec, DATE, str(root))


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "latest").symlink_to(root / "input")
    assert froze(root, "latest").rows == 2


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root.parent / "data").symlink_to(root)
    assert froze(root.parent / "data", "input").rows == 2


@pytest.mark.parametrize("way", ["folder", "file", "parent", "chain", "relative"])
def test_a_relative_path_that_a_link_leads_outside_is_refused(root: Path, way: str) -> None:
    secret = root.parent / "secret"
    (root / "out").symlink_to("../secret" if way == "relative" else secret)
    (root / "again").symlink_to(root / "out")
    (root / "one.parquet").symlink_to(secret / "part.parquet")
    (root / "up").symlink_to(root.parent)
    paths = {"folder": "out", "file": "one.parquet", "parent": "up/secret", "chain": "again", "relative": "out"}
    with pytest.raises(SpecError, match=r"field input\.path: expected a relative path that stays below the data root"):
        froze(root, paths[way])
    assert not (root / "runs").exists()
    with pytest.raises(SpecError, match=r"field output\.path: expected a relative path that stays below the data root"):
        froze(root, "input", f"{paths[way]}/published")


def test_what_is_meant_can_be_written(root: Path) -> None:
    secret = root.parent / "secret"
    assert froze(root, str(secret)).rows == 2
    assert resolved(str(secret), str(root), "spec") == str(secret)


def test_a_link_from_the_output_into_the_input_is_refused(root: Path) -> None:
    (root / "published").symlink_to(root / "input")
    sentence = re.escape(f"expected a folder apart from the input {root / 'input'}, but got {root / 'published'}")
    with pytest.raises(SpecError, match=sentence):
        froze(root, "input", "published")


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        pytest.param("clicks/x", "s3a://lake/data/clicks/x", id="a relative path"),
        pytest.param("./clicks", "s3a://lake/data/clicks", id="from here"),
        pytest.param("/mnt/clicks", "/mnt/clicks", id="an absolute path"),
        pytest.param("gs://other/clicks", "gs://other/clicks", id="a URL"),
    ],
)
def test_a_data_root_may_be_a_folder_in_a_bucket(path: str, leads: str) -> None:
    assert [resolved(path, root, "spec") for root in ("s3a://lake/data", "s3a://lake/data/")] == [leads] * 2
