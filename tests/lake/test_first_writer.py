"""Run directories on S3 servers: the first writer wins, a lost answer costs nothing, any other store is refused."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skewless.documents.commit import StepCommit
from skewless.errors import RunDirectoryError
from skewless.run.directory import RunDirectory
from skewless.run.folder import as_written, open_location
from skewless.run.object_client import ObjectFiles
from skewless.run.storage import content_checksum
from skewless_cli.doctor import check_places
from tests.broken_wire import Fault, broken_wire, once_each
from tests.object_stores import KINDS, ObjectServer, as_client, object_server
from tests.processes import side_by_side
from tests.tiers import mostly_long


@pytest.fixture(scope="module", params=mostly_long(KINDS, "localbucket"))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def place(server: ObjectServer, tmp_path: Path) -> Iterator[str]:
    with as_client(server.environment):
        yield f"s3a://lake/{tmp_path.name}"


@pytest.fixture
def fs(place: str) -> ObjectFiles:
    found = open_location(place)[0]
    assert isinstance(found, ObjectFiles)
    return found


def commit(attempt: str) -> StepCommit:
    return StepCommit(step="result", attempt=attempt, files=(), counts={"rows": 1})


def put(fs: ObjectFiles, path: str, content: bytes) -> None:
    with fs.open(path, "wb") as out:
        out.write(content)


def test_a_document_is_written_once_and_read_under_the_path_as_it_was_given(
    place: str, server: ObjectServer, tmp_path: Path
) -> None:
    run = RunDirectory(f"{place}/run")
    assert not run.exists("result/COMMIT.json")
    assert run.write_once("result/COMMIT.json", commit("a"))
    assert not run.write_once("result/COMMIT.json", commit("b"))
    assert run.committed("result").attempt == "a"
    assert run.path("x") == f"{place}/run/x"
    assert str(RunDirectory(f"{place}/run/")) == f"{place}/run"
    assert server.keys(tmp_path.name) == [f"{tmp_path.name}/run/result/COMMIT.json"], "the probe leaves nothing"


def test_files_are_as_those_of_a_folder(place: str, fs: ObjectFiles, tmp_path: Path) -> None:
    root = place.removeprefix("s3a://")
    names = ["a/1.parquet", "a/b=ü 1/2 %.parquet", "a/b=x/3.parquet", "c?"]
    for name in names:
        put(fs, f"{root}/{name}", name.encode())
    assert fs.find(root) == sorted(f"{root}/{name}" for name in names)
    assert fs.find(f"{root}/a/1.parquet") == [f"{root}/a/1.parquet"]
    assert fs.find(f"{root}/a/1") == []
    assert {(entry["name"], entry["type"]) for entry in fs.ls(f"{root}/a")} == {
        (f"{root}/a/b=x", "directory"), (f"{root}/a/b=ü 1", "directory"), (f"{root}/a/1.parquet", "file"),
    }  # fmt: skip
    assert fs.glob(f"{root}/a/*/*.parquet") == [f"{root}/a/b=x/3.parquet", f"{root}/a/b=ü 1/2 %.parquet"]
    assert fs.glob(f"{root}/a/*.parquet") == [f"{root}/a/1.parquet"]
    assert [fs.isfile(f"{root}/{name}") for name in ("a", "a/1.parquet", "d")] == [False, True, False]
    assert [fs.isdir(f"{root}/{name}") for name in ("a", "a/1.parquet", "d")] == [True, False, False]
    info = fs.info(f"{root}/a/1.parquet")
    assert (info["name"], info["size"]) == (f"{root}/a/1.parquet", len(names[0]))
    assert info["ETag"]
    assert fs.modified(f"{root}/a/1.parquet").tzinfo
    assert as_written(fs, place, f"{root}/c?") == f"{place}/c?"
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{root}/d")
    fs.get_file(f"{root}/c?", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == b"c?"
    fs.rm(f"{root}/a", recursive=True)
    assert fs.find(root) == [f"{root}/c?"]
    fs.rm_file(f"{root}/gone")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{root}/a", recursive=True)


@pytest.mark.parametrize(
    "size",
    mostly_long([0, 1, (1 << 20) + 1, 40 << 20], 0, (1 << 20) + 1),
    ids=["empty", "a byte", "a block", "in parts"],
)
def test_what_is_written_is_read_back_whole_and_in_ranges(place: str, fs: ObjectFiles, size: int) -> None:
    content, path = random.Random(size).randbytes(size), f"{place.removeprefix('s3a://')}/file"
    put(fs, path, content)
    assert fs.cat_file(path) == content
    with fs.open(path, "rb") as opened:
        opened.seek(size // 2)
        assert opened.read(100) == content[size // 2 :][:100]
        opened.seek(0)
        assert opened.read() == content
    assert content_checksum(fs, path)


def test_a_file_whose_writer_fails_is_not_there(place: str, fs: ObjectFiles) -> None:
    path = f"{place.removeprefix('s3a://')}/half"

    def half() -> None:
        with fs.open(path, "wb") as out:
            out.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    left = fs.open(path, "wb")
    left.write(b"half")
    del left
    assert not fs.exists(path)


RACING = """
import sys
from skewless.documents.commit import StepCommit
from skewless.run.directory import RunDirectory
place, me, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
won = []
for number in range(rounds):
    commit = StepCommit(step="result", attempt=me, files=(), counts={})
    if RunDirectory(f"{place}/{number}").write_once("COMMIT.json", commit):
        won.append(number)
print(*won)
"""


def racing(place: str, rounds: int) -> tuple[list[int], list[str]]:
    """Eight processes that write the same documents, in some rounds: the rounds that were won, and what was said."""
    commands = [[sys.executable, "-c", RACING, place, f"writer-{me}", str(rounds)] for me in range(8)]
    with side_by_side(commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as processes:
        said = [process.communicate(timeout=120) for process in processes]
    return [int(number) for out, _ in said for number in out.split()], [err for _, err in said if err]


@pytest.mark.long
def test_of_eight_writers_one_wins(place: str) -> None:
    won, errors = racing(place, 40)
    assert not errors
    assert sorted(won) == list(range(40))


def test_the_doctor_lets_two_writers_compete_in_a_bucket_and_leaves_nothing_there(
    place: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKEWLESS_RUNS", raising=False)
    assert [one.state for one in check_places(place)] == ["good"]
    assert server.keys(place.partition("lake/")[2]) == []
    assert [one.state for one in check_places("s3://no-such-bucket/x")] == ["wrong"]


@pytest.mark.long
def test_a_store_that_lets_every_writer_win_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with object_server("rclone", tmp_path / "server") as server, as_client(server.environment):
        run = RunDirectory("s3://lake/run")
        for _ in range(2):
            with pytest.raises(RunDirectoryError) as refused:
                run.write_once("job.json", commit("a"))
            assert str(refused.value) == (
                "s3://lake: two writers of one object have both won, as the store ignores the condition "
                "If-None-Match; choose a store that honours it, or a folder of a shared file system."
            )
        (line,) = check_places("s3://lake")
        assert (line.state, "have both won" in line.fact) == ("wrong", True)
        assert server.keys() == []
        won, errors = racing("s3://lake/race", 1)
        assert won == []
        assert all("have both won" in said for said in errors)
        assert len(errors) == 8


@pytest.mark.parametrize(
    "fault", mostly_long(["lose answer", "lose request", "late", "500", "503", "409"], "lose answer", "409")
)
def test_one_fault_in_each_request_costs_nothing(s3: ObjectServer, tmp_path: Path, fault: Fault) -> None:
    with broken_wire(s3.port, once_each(fault)) as wire, as_client(s3.behind(wire.port)):
        run = RunDirectory(f"s3://lake/{tmp_path.name}")
        assert run.write_once("result/COMMIT.json", commit("a"))  # its own success behind a lost answer
        assert not run.write_once("result/COMMIT.json", commit("b"))
        assert run.committed("result").attempt == "a"
        assert run.write_same("spec.json", commit("c")) == commit("c")
        assert run.new_attempt("stages/0000").commit([], {"rows": 2}).count("rows") == 2
    assert any(what == fault for _, what in wire.seen)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("500", "cannot be written (the store answered 500 Internal Server Error, InternalError)"),
        ("503", "cannot be written (the store answered 503 Service Unavailable, SlowDown)"),
        ("lose request", "cannot be written (the store did not answer: HTTP error: error sending request)"),
    ],
)
def test_a_store_that_stays_away_is_told_in_one_sentence(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch, fault: Fault, said: str
) -> None:
    monkeypatch.setattr("skewless.run.object_client.RETRIES", 2)
    with broken_wire(s3.port, lambda *_: fault) as wire, as_client(s3.behind(wire.port)):
        run = RunDirectory("s3://lake/away")
        with pytest.raises(RunDirectoryError) as told:
            run.write_once("job.json", commit("a"))
        assert str(told.value) == f"run directory s3://lake/away: job.json {said}; mend that, and try again."
        with pytest.raises(RunDirectoryError, match=r"job\.json: the document cannot be read"):
            run.exists("job.json")  # which must not be taken for a run that has not begun


@pytest.mark.long
def test_a_store_that_is_away_for_three_seconds_costs_nothing(s3: ObjectServer, tmp_path: Path) -> None:
    back = time.monotonic() + 3

    def away(_number: int, _request: str) -> Fault:
        return "503" if time.monotonic() < back else "none"

    with broken_wire(s3.port, away) as wire, as_client(s3.behind(wire.port)):
        assert RunDirectory(f"s3://lake/{tmp_path.name}").write_once("job.json", commit("a"))
    assert time.monotonic() > back


def test_a_bucket_that_is_not_there_is_told_in_one_sentence(place: str) -> None:
    del place
    run = RunDirectory("s3://nowhere/run")
    with pytest.raises(RunDirectoryError, match=r"job\.json cannot be written \(there is no such bucket\)"):
        run.write_once("job.json", commit("a"))
    with pytest.raises(RunDirectoryError, match=r"the document cannot be read \(there is no such bucket\)"):
        run.text_of("job.json")


@pytest.mark.long
def test_an_upload_in_parts_that_fails_is_given_up(s3: ObjectServer, tmp_path: Path) -> None:
    def second_part(_number: int, request: str) -> Fault:
        return "500" if "partNumber=2" in request else "none"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skewless.run.object_client.RETRIES", 1)
        with broken_wire(s3.port, second_part) as wire, as_client(s3.behind(wire.port)):
            fs, path = open_location(f"s3://lake/{tmp_path.name}/large")
            with pytest.raises(OSError, match="the store answered 500"):
                put(fs, path, bytes(40 << 20))
            assert not fs.exists(path)
    assert any(request.startswith("DELETE") and "uploadId=" in request for request, _ in wire.seen)


@pytest.mark.long
def test_a_path_without_a_bucket_or_without_the_client_is_refused() -> None:
    with pytest.raises(RunDirectoryError, match="s3:// is followed by no bucket"):
        RunDirectory("s3:///run")
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from skewless.errors import RunDirectoryError\n"
        "from skewless.run.directory import RunDirectory\n"
        "try:\n    RunDirectory('gs://lake/run')\nexcept RunDirectoryError as err:\n    print(err)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == (
        "run directory gs://lake/run: expected a path that fsspec can open, but got no package obstore, "
        "which skewless[object-stores] installs; install what it asks for.\n"
    )
