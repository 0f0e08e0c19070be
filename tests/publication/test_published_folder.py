"""What lies in a published day: verified when it is cleared, durable before its record, open to those it is for."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skewless.errors import RunDirectoryError
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.publication.publish import publishing
from tests.publication.days import DAY, NOW, beside, kept, left_over, manifest, published, texts, turns_of, validated


def the_file(out: Path) -> Path:
    return out / DAY / manifest(out).files[0].name


DAMAGES: dict[str, Callable[[Path], object]] = {
    # As a power loss leaves a file that was not on the disk.
    "emptied": lambda out: the_file(out).write_bytes(b""),
    "changed": lambda out: the_file(out).write_bytes(b"two"),
    "gone": lambda out: the_file(out).unlink(),
    "added": lambda out: (out / DAY / "part-00001.parquet").write_bytes(b"of somebody else"),
    "unnamed": lambda out: (out / DAY / "_published").unlink(),
    "torn": lambda out: (out / DAY / "_published").write_bytes(b"{"),
    "without its day": lambda out: shutil.rmtree(out / DAY),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_day_that_was_damaged_is_repaired_when_its_task_is_cleared(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    out = tmp_path / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one"})
    record = published(run)
    damage(out)
    assert published(run) == record
    assert texts(out / DAY) == ["one"]
    assert left_over(out) == []


def test_a_day_that_is_whole_is_left_as_it_is_also_when_the_result_is_gone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one"})
    published(run)
    (out / DAY / "_SUCCESS").touch()  # a marker that readers pass over
    before = manifest(out)
    _remove_source(run)
    published(run)
    assert manifest(out) == before


def test_a_damaged_day_whose_result_is_gone_is_told_in_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one"})
    published(run)
    the_file(out).write_bytes(b"")
    _remove_source(run)
    with pytest.raises(RunDirectoryError, match=r"a.txt: expected the file of 3 bytes that was .*, but got no such f"):
        published(run)
    assert left_over(out) == []


def _remove_source(run: RunDirectory) -> None:
    for file in run.committed(RESULT_STEP).files:
        Path(run.path(file.path)).unlink()


def test_a_day_of_a_later_run_is_not_repaired_by_an_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    older, newer = (validated(tmp_path / str(turn), out, {"a.txt": str(turn)}, turn=turn) for turn in (1, 2))
    record = published(older)
    published(newer)
    the_file(out).write_bytes(b"")
    assert published(older) == record
    assert texts(out / DAY) == [""]
    published(newer)
    assert texts(out / DAY) == ["2"]


def test_old_versions_are_kept_for_their_time_of_grace(tmp_path: Path) -> None:
    out, hour = tmp_path / "out", dt.timedelta(hours=1)
    for turn, now in ((1, NOW), (2, NOW), (3, NOW + 23 * hour), (4, NOW + 24 * hour)):
        published(validated(tmp_path / str(turn), out, {"a.txt": str(turn)}, turn=turn), now)
        if turn == 3:
            assert kept(out) == [["1"], ["2"]]
    assert kept(out) == [["2"], ["3"]]


def test_without_grace_nothing_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for turn in (1, 2):
        published(validated(tmp_path / str(turn), out, {"a.txt": str(turn)}, turn=turn, grace_hours=0))
    assert kept(out) == []


@pytest.mark.parametrize(("umask", "file", "folder"), [(0o027, 0o640, 0o750), (0o002, 0o664, 0o775)])
def test_published_files_and_folders_follow_the_umask(tmp_path: Path, umask: int, file: int, folder: int) -> None:
    out = tmp_path / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one"})
    source = Path(run.path(run.committed(RESULT_STEP).files[0].path))
    source.chmod(0o600)
    before = os.umask(umask)
    try:
        published(run)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (out, out / DAY, *(out / DAY).iterdir())}
    assert modes == {"out": folder, DAY: folder, "_published": file, the_file(out).name: file}


_TRACED = r"""
import datetime as dt, os, sys
from pathlib import Path
import skewless.run.publication.exchange as ours
from skewless.run.publication.publish import publish
from skewless.run.directory import RunDirectory
from skewless_leases import Turns, open_store

told, real = [], os.fsync
def fsync(handle):
    told.append("sync " + os.readlink(f"/proc/self/fd/{handle}"))
    real(handle)
os.fsync = fsync
def heard(event, args):
    if event in ("os.rename", "os.link"):
        told.append(f"{event[3:]} {os.fsdecode(args[0])} {os.fsdecode(args[1])}")
    elif event == "ctypes.dlsym" and args[1] == "renameat2":
        told.append("exchange")
sys.addaudithook(heard)
run = RunDirectory(sys.argv[1])
turns = Turns(open_store(sys.argv[2], durable=False))
publish(run, turns, dt.datetime(2026, 11, 21, tzinfo=dt.UTC))
print("\n".join(told))
"""


def test_files_folder_and_parents_are_on_the_disk_before_the_exchange_and_again_before_the_record(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    published(validated(tmp_path / "1", out, {"a.txt": "one"}))
    run = validated(tmp_path / "2", out, {"a.txt": "two"}, turn=2)
    told = _lines(_TRACED, str(run), str(beside(out) / "turns"))
    name = manifest(out).name
    drafts = beside(out) / "drafts" / DAY
    exchanged = told.index("exchange")
    recorded = next(number for number, line in enumerate(told) if line.startswith("link ") and "published.json" in line)
    building = f"{drafts}/{name}.building"
    named = told.index(f"rename {building} {drafts}/{name}")
    assert {f"sync {building}/{the_file(out).name}", f"sync {building}/_published"} <= set(told[:named])
    assert f"sync {building}" in told[:named]
    assert f"sync {drafts}" in told[named:exchanged]
    assert {f"sync {out / DAY}", f"sync {out}", f"sync {drafts}"} <= set(told[exchanged:recorded])


@pytest.mark.long
def test_a_new_output_folder_is_on_the_disk_before_its_first_day(tmp_path: Path) -> None:
    out = tmp_path / "lake" / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one"})
    told = _lines(_TRACED, str(run), str(tmp_path / "turns"))
    day = next(number for number, line in enumerate(told) if line.startswith("rename ") and line.endswith(DAY))
    assert {f"sync {tmp_path}", f"sync {tmp_path / 'lake'}"} <= set(told[:day])
    assert f"sync {out}" in told[day:]


def _lines(code: str, *arguments: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


# Where folders cannot be exchanged: the kernel refuses renameat2 to this process and those it starts.
_REFUSED = r"""
import ctypes, platform, struct
def refuse_renameat2():
    number = {"x86_64": 316, "aarch64": 276}[platform.machine()]
    code = b"".join(struct.pack("HBBI", *one) for one in (
        (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program) == 0, ctypes.get_errno()
refuse_renameat2()
"""
_PUBLISHES = (
    _REFUSED
    + r"""
import datetime as dt, os, signal, sys
from skewless.errors import SkewlessError
from skewless.run.publication.publish import publish
from skewless.run.directory import RunDirectory
from skewless_leases import Turns, open_store
run, turns, fate = RunDirectory(sys.argv[1]), Turns(open_store(sys.argv[2], durable=False)), sys.argv[3]
def heard(event, args):
    global fate
    if event == "os.rename" and os.fsdecode(args[1]).endswith("/out/date=2026-11-20"):  # the second of two
        if fate == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "move away":
            fate = ""
            os.rename(args[0], sys.argv[2] + "-moved")
sys.addaudithook(heard)
try:
    publish(run, turns, dt.datetime(2026, 11, 21, tzinfo=dt.UTC))
except SkewlessError as err:
    print(err)
"""
)


def _publish_without_exchange(run: RunDirectory, out: Path, fate: str = "") -> subprocess.CompletedProcess[str]:
    arguments = [str(run), str(beside(out) / "turns"), fate]
    return subprocess.run(
        [sys.executable, "-c", _PUBLISHES, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_where_folders_cannot_be_exchanged_it_is_refused_in_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    published(validated(tmp_path / "1", out, {"a.txt": "one"}))
    ended = _publish_without_exchange(validated(tmp_path / "2", out, {"a.txt": "two"}, turn=2), out)
    assert "expected a file system that can exchange two folders at once (renameat2), but got" in ended.stdout
    assert "set output.allow_gap: true" in ended.stdout
    assert texts(out / DAY) == ["one"]


_DRAWS = (
    _REFUSED
    + r"""
import sys
from skewless.errors import SkewlessError
from skewless.run.publication.publish import draw_turn
from benchmarks.leases.memory_store import MemoryStore
from skewless_leases.ownership.turns import Turns
turns = Turns(MemoryStore())
for allow_gap in (False, True):
    try:
        print(draw_turn(sys.argv[1], turns, allow_gap=allow_gap))
    except SkewlessError as err:
        print(err.exit_code, err)
"""
)


def test_where_folders_cannot_be_exchanged_no_turn_is_drawn_without_leave(tmp_path: Path) -> None:
    """The night's work would be for nothing."""
    refused, drawn = _lines(_DRAWS, str(tmp_path / "out"))
    assert refused.startswith(f"2 field output.path, {tmp_path}/.out.skewless: expected a file system that can exch")
    assert drawn == "1"
    assert list((tmp_path / ".out.skewless").iterdir()) == []


def test_where_folders_cannot_be_exchanged_and_a_gap_is_allowed_it_is_published(tmp_path: Path) -> None:
    out = tmp_path / "out"
    published(validated(tmp_path / "1", out, {"a.txt": "one"}))
    ended = _publish_without_exchange(validated(tmp_path / "2", out, {"a.txt": "two"}, turn=2, allow_gap=True), out)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert texts(out / DAY) == ["two"]
    assert kept(out) == [["one"]]
    assert left_over(out) == []


@pytest.mark.long
def test_whoever_comes_next_repairs_a_day_whose_publisher_was_killed_between_two_renames(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = validated(tmp_path / "1", out, {"a.txt": "one"}, allow_gap=True)
    published(first)
    killed = validated(tmp_path / "2", out, {"a.txt": "two"}, turn=2, allow_gap=True)
    ended = _publish_without_exchange(killed, out, "kill")
    assert ended.returncode == -9, ended.stdout + ended.stderr
    assert not (out / DAY).exists()
    published(first)
    assert texts(out / DAY) == ["one"]
    published(killed)
    assert texts(out / DAY) == ["two"]
    assert kept(out) == [["one"]]
    assert left_over(out) == []


@pytest.mark.long
def test_a_second_rename_that_fails_is_rolled_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    published(validated(tmp_path / "1", out, {"a.txt": "one"}))
    overtaken = validated(tmp_path / "2", out, {"a.txt": "two"}, turn=2, allow_gap=True)
    ended = _publish_without_exchange(overtaken, out, "move away")
    assert "got another attempt or run, which moved the draft away" in ended.stdout, ended.stderr
    assert texts(out / DAY) == ["one"]
    assert not list(out.parent.rglob("*.aside"))


_EXCHANGES = (
    _REFUSED
    + r"""
import sys
from pathlib import Path
from skewless.run.publication.exchange import exchange
sys.addaudithook(lambda event, args: event == "os.rename" and print("renamed", *args))
try:
    exchange(Path(sys.argv[1]), Path(sys.argv[2]), allow_gap=True)
except FileNotFoundError:
    print("no draft")
"""
)


@pytest.mark.long
def test_one_whose_draft_was_moved_away_does_not_set_the_day_of_a_later_run_aside(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    assert _lines(_EXCHANGES, str(tmp_path / "1-ab"), str(tmp_path / "day")) == ["no draft"]


def test_an_output_folder_that_goes_away_meanwhile_is_told_in_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    steps = publishing(validated(tmp_path / "run", out, {"a.txt": "one"}), turns_of(out), NOW)
    while next(steps) != "cleared":
        pass
    out.rmdir()
    with pytest.raises(RunDirectoryError, match=r"cannot be (written|published) \(No such file or dir"):
        next(steps)
