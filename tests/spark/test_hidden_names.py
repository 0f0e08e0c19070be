"""Names that are not data: what Spark reads of a folder is what is listed, and markers of folders are none of it."""

import contextlib
import http.client
import random
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless.spec.part import Part
from skewless_spark.sources.formats.input_files import find
from skewless_spark.windows.part_files import named_files
from tests.object_stores import as_client, object_server
from tests.spark.scenario import DATE, spec_of
from tests.tiers import mostly_long

#: Parts of names: what Spark passes over, what it only seems to pass over, and what it reads.
BEGINS = ("", "", "", ".", "_", "__", "._", "_.")
MIDDLES = ("part-0", "date=2026-11-20", "_k=1", "SUCCESS", "a.b", "x_", "temporary")
ENDS = ("", "", "", ".parquet", "._COPYING_", "._COPYING", "_COPYING_", "=", "._COPYING_.txt")


def drawn_name(draw: random.Random) -> str:
    return draw.choice(BEGINS) + draw.choice(MIDDLES) + draw.choice(ENDS)


def fill(folder: Path, draw: random.Random) -> None:
    for number in range(150):
        inner = folder.joinpath(*(f"{drawn_name(draw)}d" if draw.random() < 0.5 else drawn_name(draw)
                                  for _ in range(draw.choice((0, 0, 1, 1, 2)))))  # fmt: skip
        name = drawn_name(draw)
        with contextlib.suppress(FileExistsError, NotADirectoryError):  # a file and a folder of one name
            inner.mkdir(parents=True, exist_ok=True)
            if not (inner / name).exists():
                (inner / name).write_text(f"{number}\n")


@pytest.mark.parametrize("seed", mostly_long(range(2), 0))
def test_what_is_listed_of_a_random_folder_is_what_spark_reads(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    fill(tmp_path, random.Random(seed))
    for pattern in ("", "/*"):
        read = spark.read.option("recursiveFileLookup", "true").text(f"{tmp_path}{pattern}")
        said = {unquote(row[0]).removeprefix("file:") for row in read.select("_metadata.file_path").collect()}
        listed = set(find(f"{tmp_path}{pattern}"))
        if pattern:  # as in a shell, and not as in Spark, a wildcard does not match a dot
            said = {file for file in said if not file.startswith(f"{tmp_path}/.")}
        assert listed - said == said - listed == set(), pattern
        assert len(said) > 20
        assert len(said) < sum(one.is_file() for one in tmp_path.rglob("*"))


def test_a_wildcard_alone_means_no_file_that_is_hidden(tmp_path: Path) -> None:
    for name in ("a.csv", "_SUCCESS", "_k=1", "b.csv._COPYING_", "_tmp.csv", "in/c.csv", "in/_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def found(pattern: str) -> list[str]:
        return [str(Path(file).relative_to(tmp_path)) for file in find(f"{tmp_path}/{pattern}")]

    assert found("*") == found("**") == ["_k=1", "a.csv", "in/c.csv"]
    assert found("**/*.csv") == ["_tmp.csv", "a.csv", "in/c.csv"]
    assert found("*.csv*") == ["_tmp.csv", "a.csv"]
    assert found("_*") == ["_SUCCESS", "_k=1", "_tmp.csv"]
    assert found("*._COPYING_") == ["b.csv._COPYING_"]


def test_a_folder_above_a_wildcard_is_none_whatever_its_name(tmp_path: Path) -> None:
    root = tmp_path / ".a--release-[1] *?"
    for name in ("in/2026-11-19/a.csv", "in/2026-11-20/a.csv"):
        (root / name).parent.mkdir(parents=True)
        (root / name).touch()
    files = [str(root / "in" / day / "a.csv") for day in ("2026-11-19", "2026-11-20")]
    assert find(f"{root}/in/*/*.csv") == find(f"{root}/i[n]") == files
    spec = spec_of(Path("in/{date}"), "k", {"n": "count"}, window="all")
    parts, _ = named_files(spec, Part(DATE), None, str(root), "spec")
    assert [list(part.inner.values()) for part in parts] == [[file] for file in files]


def test_markers_of_folders_on_an_object_store_are_no_files(tmp_path: Path) -> None:
    with object_server("moto", tmp_path / "server") as server, as_client(server.environment):
        for key in ("in", "in/", "in_$folder$", "in/day=1/", "in/day=1/a.txt", "in/day=2_$folder$", "in/day=2/b.txt",
                    "in/day=3", "in/day=3/c.txt", "in/day=4/", "in/empty.txt", "in/.tmp/d.txt"):  # fmt: skip
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            with contextlib.closing(client):  # obstore itself takes the last "/" off
                client.request("PUT", f"/lake/{key}", b"row\n" if key.endswith(("a.txt", "b.txt", "c.txt")) else b"")
                assert client.getresponse().status == http.client.OK
        files = [f"lake/in/{name}" for name in ("day=1/a.txt", "day=2/b.txt", "day=3/c.txt", "empty.txt")]
        assert find("s3://lake/in") == find("s3://lake/in/*") == files
        assert find("s3://lake/in/day=3") == files[2:3]
        assert find("s3://lake/in/empty.txt") == files[3:]
        assert find("s3://lake/in/day=4") == []
        with pytest.raises(InputError, match="no such path"):
            find("s3://lake/elsewhere")
