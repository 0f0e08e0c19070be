"""What lies in an input and is no plain file: each gives a sentence, none is waited for, none is passed over."""

import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.errors import InputError
from skewless.spec.input import Input
from skewless_spark.sources.formats.input_files import find
from skewless_spark.sources.listing import list_input

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An input of one file, with a folder beside it; its path is short enough for a socket."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        for name in ("input/day=1", "beside"):
            (Path(place) / name).mkdir(parents=True)
            pq.write_table(pa.table({"key": ["a", "b"]}), Path(place) / name / "part.parquet")
        yield Path(place) / "input"


def dangling(path: Path) -> None:
    path.symlink_to("gone.parquet")


def itself(path: Path) -> None:
    path.symlink_to(path.name)


def folder_beside(path: Path) -> None:
    path.symlink_to(next(one / "beside" for one in path.parents if (one / "beside").is_dir()))


def around(path: Path) -> None:
    path.symlink_to(path.parent)


def listening(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "dangling link": (dangling, "a plain file, but got a link to gone.parquet, which leads to nothing that can be"),
    "link to itself": (itself, "a plain file, but got a link to odd.parquet, which leads round in a circle"),
    "linked folder": (folder_beside, "a folder that lies where it is listed, but got a link to"),
    "link to its own folder": (around, "a folder that lies where it is listed, but got a link to"),
    "fifo": (os.mkfifo, "a plain file, but got a FIFO"),
    "socket": (listening, "a plain file, but got a socket"),
}


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("at", ["folder", "folder below", "glob", "deep glob"])
def test_what_is_no_plain_file_is_told(folder: Path, kind: str, at: str) -> None:
    make, sentence = ODD[kind]
    make((folder / "day=1" if at == "folder below" else folder) / "odd.parquet")
    path = {"glob": f"{folder}/*", "deep glob": f"{folder}/**/*.parquet"}.get(at, str(folder))
    if at == "glob" and "folder" in kind:
        return  # a linked folder that a pattern names is meant; see below
    with pytest.raises(InputError, match=f"input .*odd.parquet: expected {re.escape(sentence)}"):
        list_input(Input(path=path), path)


@pytest.mark.parametrize("kind", ["dangling link", "link to itself", "fifo"])
def test_an_input_that_is_no_plain_file_itself_is_told(folder: Path, kind: str) -> None:
    make, sentence = ODD[kind]
    make(folder / "odd.parquet")
    with pytest.raises(InputError, match=f"expected {re.escape(sentence)}"):
        find(str(folder / "odd.parquet"))


def test_a_name_whose_bytes_are_no_utf_8_is_told(folder: Path) -> None:
    (folder / "caf\udce9.parquet").touch()
    with pytest.raises(InputError, match=r"caf\\udce9.parquet: expected a file name in UTF-8 without ':'"):
        find(str(folder))


def test_links_that_the_path_itself_names_and_links_to_files_are_followed(folder: Path) -> None:
    (folder.parent / "latest").symlink_to(folder)
    (folder.parent / "one").mkdir()
    (folder.parent / "one" / "linked.parquet").symlink_to(folder / "day=1" / "part.parquet")
    assert find(str(folder.parent / "latest")) == [str(folder.parent / "latest" / "day=1" / "part.parquet")]
    assert find(str(folder.parent / "one")) == [str(folder.parent / "one" / "linked.parquet")]
    assert find(f"{folder.parent}/lat*") == [str(folder.parent / "latest" / "day=1" / "part.parquet")]


def test_a_linked_folder_on_the_way_of_a_glob_is_told(folder: Path) -> None:
    (folder / "day=2").symlink_to(folder.parent / "beside")
    with pytest.raises(InputError, match=r"input folder .*/day=2: expected a folder that lies where it is listed"):
        find(f"{folder}/day=*/*.parquet")
    assert find(f"{folder}/day=1/*.parquet") == [str(folder / "day=1" / "part.parquet")]


def test_what_is_hidden_may_be_anything(folder: Path) -> None:
    for number, (make, _) in enumerate(ODD.values()):
        if make is not listening:
            make(folder / f"_odd{number}")
    assert find(str(folder)) == [str(folder / "day=1" / "part.parquet")]


@pytest.mark.parametrize("pattern", ["*", "**", "*/*.parquet", "**/*.parquet"])
def test_a_wildcard_does_not_come_to_names_that_begin_with_a_dot(folder: Path, pattern: str) -> None:
    old = folder / ".input.skewless/kept/day=1/20261120T000001Z-2-ab"
    old.mkdir(parents=True)
    (folder / ".linked").symlink_to(folder.parent / "beside")
    for name in (old / "part.parquet", folder / ".part.parquet"):
        pq.write_table(pa.table({"key": ["a"]}), name)
    assert find(f"{folder}/{pattern}") == [str(folder / "day=1" / "part.parquet")]
    (folder / ".linked").unlink()
    assert find(f"{folder}/.in*/kept/**/*.parquet") == [str(old / "part.parquet")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
@pytest.mark.parametrize("pattern", ["", "/day=*/*.parquet", "/**/*.parquet", "/*"])
def test_a_folder_that_cannot_be_listed_is_told_and_not_passed_over(folder: Path, pattern: str) -> None:
    (folder / "day=2").mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(InputError, match=r"day=2: expected a path that can be read, but got Permission denied"):
            find(f"{folder}{pattern}")
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_a_file_that_cannot_be_read_is_told(folder: Path) -> None:
    (folder / "words.txt").touch(mode=0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(InputError, match=r"words.txt: expected a readable file, but got Permission denied"):
            list_input(Input(path=str(folder), format="text"), str(folder / "words.txt"))
    finally:
        os.seteuid(0)


def test_a_file_that_goes_while_it_is_listed_is_told(folder: Path) -> None:
    files = [str(folder / "gone.parquet")]
    with pytest.raises(InputError, match=r"gone.parquet: expected a file that stays there, but got No such file"):
        list_input(Input(path=str(folder)), str(folder), files=files)
