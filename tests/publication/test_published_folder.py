"""A published day: verified when it is cleared, durable before its record, open to those it is for; and versions."""

import datetime as dt
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from skewless.errors import RunDirectoryError
from skewless.publication.folder_output import FolderOutput
from skewless.publication.places import BUILDING, Place, clear_drafts, kept_versions, left_drafts, past_grace, place_of
from skewless.publication.publish import publishing
from skewless.publication.records import MANIFEST, Identity, VersionManifest
from skewless.run.directory import RESULT_STEP, RunDirectory
from tests.publication.days import DAY, NOW, beside, kept, left_over, manifest, published, texts, turns_of, validated
from tests.unit import synthetic


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


def test_old_versions_are_kept_for_their_time_of_grace(tmp_path: Path) -> None:
    out, hour = tmp_path / "out", dt.timedelta(hours=1)
    for turn, now in ((1, NOW), (2, NOW), (3, NOW + 23 * hour), (4, NOW + 24 * hour)):
        published(validated(tmp_path / str(turn), out, {"a.txt": str(turn)}, turn=turn), now)
        if turn == 3:
            assert kept(out) == [["1"], ["2"]]
    assert kept(out) == [["2"], ["3"]]


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
from skewless.publication.folder_output import FolderOutput
from skewless.publication.publish import publish, publishing
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
publish(publishing(run, FolderOutput(run, dt.datetime(2026, 11, 21, tzinfo=dt.UTC)), turns))
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


def _lines(code: str, *arguments: str, before: Sequence[str] = ()) -> list[str]:
    command = [*before, sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
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
_DRAWS = r"""
import sys
from skewless.errors import SkewlessError
from skewless.publication.folder_output import draw_turn
from skewless_leases import Turns, open_store
try:
    print(draw_turn(sys.argv[1], Turns(open_store(sys.argv[2]))))
except SkewlessError as err:
    print(err.exit_code, err)
"""


def test_where_folders_cannot_be_exchanged_no_turn_is_drawn(tmp_path: Path) -> None:
    (refused,) = _lines(_REFUSED + _DRAWS, str(tmp_path / "out"), str(tmp_path / "turns"))
    assert refused.startswith(f"2 field output.path, {tmp_path}/.out.skewless: expected a file system that can exch")
    assert refused.endswith("but got one that cannot; choose another one, or publish into a table.")
    assert list((tmp_path / ".out.skewless").iterdir()) == []


def test_an_output_folder_with_a_disk_of_its_own_is_refused_before_any_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    mounted = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs a "$0" && exec "$@"')
    (refused,) = _lines(_DRAWS, str(out), str(tmp_path / "turns"), before=(*mounted, str(out)))
    assert refused.startswith(f"2 field output.path, {out}: expected a folder on the file system of the one it lies in")
    assert refused.endswith("but got a mount point; publish into a folder below it.")


def test_an_output_folder_that_goes_away_meanwhile_is_told_in_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one"})
    steps = publishing(run, FolderOutput(run, NOW), turns_of(out))
    while next(steps) != "cleared":
        pass
    out.rmdir()
    with pytest.raises(RunDirectoryError, match=r"cannot be (written|published) \(No such file or dir"):
        next(steps)


HOUR = dt.timedelta(hours=1)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(synthetic.job([], output_path=str(tmp_path / "out")))


def slot(place: Place, name: str, turn: int = 0, of: str = "") -> Path:
    """A version in the place of a draft; with a turn, its manifest says so, and what it was named."""
    folder = place.drafts / name
    folder.mkdir(parents=True)
    if turn:
        by = Identity(job="0" * 64, run="r")
        manifest = VersionManifest(by=by, turn=turn, name=of or name, files=())
        (folder / MANIFEST).write_text(manifest.sealed(), encoding="utf-8")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_part_is_one_name_beside_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    job = synthetic.job([], output_path=str(tmp_path / "out"))
    spec = job.spec.model_copy(update={"schedule": job.spec.schedule.model_copy(update={"part": "hour-1"})})
    place = place_of(job.model_copy(update={"spec": spec, "hour": "07"}))
    assert place.target == tmp_path / "disk" / "out" / "date=2026-11-20" / "hour=07"
    assert place.beside == tmp_path / "disk" / ".out.skewless"
    assert place.day == "date=2026-11-20--hour=07"


@pytest.mark.parametrize(
    ("name", "turn", "of", "moved", "kept"),
    [
        ("9-ab", 9, "", True, False),  # a draft that was never published
        ("9-ab", 8, "8-cd", True, True),  # the version that was exchanged for it
        ("9-ab", 0, "", True, True),  # nobody can say what it is
        (f"9-ab{BUILDING}", 0, "", True, False),
        ("10-ab", 10, "", True, False),
        ("11-ab", 11, "", False, False),  # of a later turn
    ],
)
def test_drafts_of_this_turn_and_of_earlier_ones_are_moved_away(
    place: Place, name: str, turn: int, of: str, moved: bool, kept: bool
) -> None:
    slot(place, name, turn, of)
    clear_drafts(place, 10, NOW.astimezone(dt.timezone(9 * HOUR)))
    assert names(place.drafts) == ([] if moved else [name])
    assert [(one.folder.name.endswith(name), one.since) for one in kept_versions(place.beside)] == (
        [(True, NOW)] if kept else []
    )


def test_a_version_goes_when_its_grace_is_over_and_strange_names_never(place: Place) -> None:
    for age in (23, 24, 25):
        (place.kept / f"{NOW - age * HOUR:%Y%m%dT%H%M%SZ}-1-ab").mkdir(parents=True)
    (place.kept / "mine").mkdir()
    found = past_grace(place.beside, NOW, 24 * HOUR)
    assert sorted((NOW - one.since) // HOUR for one in found) == [24, 25]


def test_drafts_that_nobody_has_touched_are_left_over(place: Place) -> None:
    for name in ("1-ab", f"2-cd{BUILDING}", "mine"):
        slot(place, name)
    later = dt.datetime.fromtimestamp(os.lstat(place.drafts / "1-ab").st_ctime + 9, dt.UTC)
    assert [one.name for one in left_drafts(place.beside, later)] == ["1-ab", f"2-cd{BUILDING}"]
    assert left_drafts(place.beside, later - HOUR) == []
