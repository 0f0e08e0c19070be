"""A file of the input is the one that was pinned, or the run stops; what leaves its content alone does not stop it."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest

from skewless.documents.job import Job, Unit
from skewless.errors import InputError
from skewless.spec.input import Input
from skewless.standing.parts import FoundFile
from skewless_spark.sources.formats.input_files import in_threads
from skewless_spark.sources.identity import (
    CHECKSUM_FILE_BYTES,
    checksums,
    found_file,
    require_unchanged,
    verdict,
    version_from,
)
from skewless_spark.sources.listing import list_input
from tests.unit import synthetic


def pinned(path: str) -> Job:
    units = list_input(Input(path=path, format="text"), path).units
    return synthetic.job([1]).model_copy(update={"input_path": path, "units": units})


def held(job: Job) -> None:
    require_unchanged(job, range(len(job.units)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "input" / "words.txt"
    path.parent.mkdir()
    path.write_text("one two three\n" * 100)
    return path


@pytest.fixture
def large(file: Path) -> Path:
    file.write_bytes(b"one two three four five\n" * (CHECKSUM_FILE_BYTES // 20))
    return file


def keeping_times(file: Path, change: Callable[[Path], object]) -> None:
    before = file.stat()
    change(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def edited(file: Path) -> None:
    with file.open("r+b") as out:
        out.seek(file.stat().st_size // 2)
        out.write(b"#")


def exchanged(file: Path) -> None:
    other = file.with_name("_other")
    other.write_bytes(file.read_bytes()[::-1])
    other.replace(file)


def restored(file: Path) -> None:
    copy = file.with_name("_copy")
    shutil.copy2(file, copy)
    file.unlink()
    shutil.copy2(copy, file)


def linked(file: Path) -> None:
    file.with_name("_backup").hardlink_to(file)


@pytest.mark.parametrize("change", [edited, exchanged])
def test_a_rewrite_that_keeps_size_and_time_is_noticed(file: Path, change: Callable[[Path], object]) -> None:
    job = pinned(str(file.parent))
    held(job)
    keeping_times(file, change)
    with pytest.raises(InputError, match=r"but got input file .*words.txt was rewritten; nothing was committed"):
        held(job)


@pytest.mark.parametrize("change", [restored, linked, lambda file: file.chmod(0o600)], ids=["copy", "link", "mode"])
def test_what_leaves_the_content_alone_does_not_stop_a_run(file: Path, change: Callable[[Path], object]) -> None:
    job, before = pinned(str(file.parent)), file.stat()
    change(file)
    assert (file.stat().st_ctime_ns, file.stat().st_ino) != (before.st_ctime_ns, before.st_ino)
    held(job)


@pytest.mark.parametrize("change", [edited, linked])
def test_of_a_large_file_the_change_time_alone_stops_a_run(large: Path, change: Callable[[Path], object]) -> None:
    job = pinned(str(large.parent))
    assert not job.units[0].checksum
    held(job)
    keeping_times(large, change)
    with pytest.raises(InputError, match=r"words.txt was touched: its change time is another, and no checksum"):
        held(job)


def test_a_file_that_is_gone_or_a_folder_now_is_told(file: Path) -> None:
    job = pinned(str(file.parent))
    file.unlink()
    with pytest.raises(InputError, match=r"words.txt is gone"):
        held(job)
    file.mkdir()
    with pytest.raises(InputError, match=r"words.txt was rewritten"):
        held(job)


def test_where_a_file_system_tells_little_the_content_of_small_files_is_compared(tmp_path: Path) -> None:
    fs, path = fsspec.filesystem("memory"), f"{tmp_path}/words.txt"
    fs.pipe_file(path, b"one two\n")
    job = pinned(f"memory://{path}")
    held(job)
    unit, now = job.units[0], found_file(fs, path)
    assert not now.version.startswith(("tag:", "stat:"))
    assert verdict(unit, now) == "compare"
    job = job.model_copy(update={"units": (unit.model_copy(update={"checksum": "0" * 64}),)})
    with pytest.raises(InputError, match=r"words.txt was rewritten"):
        held(job)


def test_a_local_file_is_known_by_both_times_and_its_inode(file: Path) -> None:
    now = file.stat()
    said = f"stat:{now.st_mtime_ns}:{now.st_ctime_ns}:{now.st_ino}"
    assert found_file(fsspec.filesystem("file"), str(file)) == FoundFile(str(file), now.st_size, said)


TOLD: list[tuple[dict[str, Any], str]] = [
    ({"ETag": '"9b2"', "LastModified": "2026-11-20", "VersionId": None}, 'tag:"9b2"'),
    ({"ETag": '"9b2"', "LastModified": "2026-11-20", "VersionId": "v7"}, 'tag:"9b2"/v7'),
    ({"etag": "CJ", "generation": "1700", "updated": "2026-11-20", "mtime": 1.0}, "tag:CJ/1700"),
    ({"etag": "0x8D", "last_modified": "2026-11-20", "content_md5": b"x"}, "tag:0x8D/b'x'"),
    ({"mtime": 17.5, "type": "file"}, "time:17.5"),
    ({"modificationTime": 1700}, "time:1700"),
    ({"created": "2026-11-20"}, ""),
]


@pytest.mark.parametrize(("info", "version"), TOLD, ids=["s3", "s3 versions", "gcs", "azure", "hdfs", "webhdfs", "no"])
def test_the_tag_of_an_object_store_names_its_content(info: Mapping[str, Any], version: str) -> None:
    assert version_from(info) == version


VERDICTS = {
    "same": ("stat:5:6:7", "c", 1, "stat:5:6:7", "same"),
    "longer": ("stat:5:6:7", "c", 2, "stat:5:6:7", "rewritten"),
    "later": ("stat:5:6:7", "c", 1, "stat:6:6:7", "rewritten"),
    "change time": ("stat:5:6:7", "c", 1, "stat:5:9:7", "compare"),
    "inode": ("stat:5:6:7", "c", 1, "stat:5:6:9", "compare"),
    "change time of a large one": ("stat:5:6:7", "", 1, "stat:5:9:7", "touched"),
    "inode of a large one": ("stat:5:6:7", "", 1, "stat:5:6:9", "same"),
    "tag": ("tag:a", "", 1, "tag:b", "rewritten"),
    "same tag": ("tag:a", "", 1, "tag:a", "same"),
    "time": ("time:1", "c", 1, "time:2", "rewritten"),
    "same time": ("time:1", "c", 1, "time:1", "compare"),
    "same time of a large one": ("time:1", "", 1, "time:1", "same"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_an_identity_tells(case: str) -> None:
    version, checksum, size, now, expected = VERDICTS[case]
    unit = Unit(path="/in", rows=1, size_bytes=1, version=version, checksum=checksum)
    assert verdict(unit, FoundFile(unit.path, size, now)) == expected


def test_little_is_read_for_checksums(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("x")
    sizes = [4 << 20, (4 << 20) + 1, *[3 << 20] * 30]
    found = [FoundFile(str(path), size, "stat:1:1:1") for size in sizes]
    taken = checksums(fsspec.filesystem("file"), found)
    assert [bool(one) for one in taken] == [True, False, *[True] * 20, *[False] * 10]
    assert not any(checksums(fsspec.filesystem("file"), [FoundFile(str(path), 1, "tag:a")]))


def _waits(number: int) -> int:
    time.sleep(0.001)
    return number * 2


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 500])
def test_threads_give_results_in_the_order_of_the_arguments(count: int) -> None:
    assert list(in_threads(_waits, range(count))) == [number * 2 for number in range(count)]


def test_only_calls_that_wait_are_made_in_other_threads() -> None:
    here = threading.get_ident()
    # Some microseconds each, so that they are quick on a busy machine, too; all of them together take 60 ms.
    quick = list(in_threads(lambda _: (sum(range(300)), threading.get_ident()), range(20_000)))
    assert {thread for _, thread in quick} == {here}
    slow = list(in_threads(lambda number: (_waits(number), threading.get_ident()), range(300)))
    assert len({thread for _, thread in slow}) > 2
