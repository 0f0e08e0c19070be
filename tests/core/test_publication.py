from __future__ import annotations

import threading
from pathlib import Path

import pytest

from skewless.errors import QualityError, RunDirectoryError
from skewless.ledger import balance
from skewless.publication import Publication, _drafts_of, publish, published_path
from skewless.quality_report import Check, QualityReport
from skewless.run_directory import QUALITY_STEP, RESULT_STEP, RunDirectory
from tests.core import synthetic

DAY = "date=2026-11-20"
#: As far as a checksum looks at one: pages, a footer of three bytes, its length, and the end.
_PARQUET = "PAR1the pagesfoo\x03\0\0\0PAR1"


def validated(folder: Path, out: Path | str, parts: dict[str, str], success: bool = True) -> RunDirectory:
    """A run that is ready to be published, its result files holding the texts given."""
    run = RunDirectory(str(folder))
    job = synthetic.job([], output_path=str(out))
    run.write_once("job.json", job)
    result = run.new_attempt(RESULT_STEP)
    files = []
    for name, text in parts.items():
        path = Path(result.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        files.append(result.described("result", str(path), 1, copied=True))
    result.commit(files, {"rows": 7, "keys": len(parts)})
    zombie = Path(result.path("late-zombie.parquet"))
    zombie.parent.mkdir(parents=True, exist_ok=True)
    zombie.write_text("never listed", encoding="utf-8")
    quality = run.new_attempt(QUALITY_STEP)
    check = Check(
        subject="result",
        expectation="expect_x",
        column="n",
        success=success,
        observed="3",
        sentence="expect_x(n): 3 of 7",
    )
    quality.write(
        "result.json", QualityReport(success=success, keys=len(parts), checks=(check,), ledger=balance(job, [], 0))
    )
    quality.commit([], {})
    return run


def texts(day: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(day.iterdir())}


def test_exactly_the_committed_files_are_published(tmp_path: Path) -> None:
    run = validated(tmp_path / "run", tmp_path / "out", {"a.txt": "one", "b.txt": "two"})
    published = publish(run)
    assert published == Publication(path=f"{tmp_path}/out/{DAY}", rows=7, keys=2)
    assert published.path == published_path(run.job())
    assert texts(tmp_path / "out" / DAY) == {"part-00000.parquet": "one", "part-00001.parquet": "two"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [DAY]


def test_a_newer_run_replaces_the_day_whole_and_the_older_cannot_undo_it(tmp_path: Path) -> None:
    older = validated(tmp_path / "1", tmp_path / "out", {"a.txt": "old", "b.txt": "old"})
    newer = validated(tmp_path / "2", tmp_path / "out", {"a.txt": "new"})
    first = publish(older)
    publish(newer)
    assert publish(older) == first
    assert texts(tmp_path / "out" / DAY) == {"part-00000.parquet": "new"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [DAY]


def test_failed_quality_publishes_nothing_and_names_the_expectation(tmp_path: Path) -> None:
    publish(validated(tmp_path / "1", tmp_path / "out", {"a.txt": "good"}))
    bad = validated(tmp_path / "2", tmp_path / "out", {"a.txt": "bad"}, success=False)
    with pytest.raises(
        QualityError, match=r"required all 1 expectations to hold, but came 1 that failed: expect_x\(n\): 3 of 7"
    ):
        publish(bad)
    assert texts(tmp_path / "out" / DAY) == {"part-00000.parquet": "good"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [DAY]
    assert not bad.exists("publish/published.json")


def test_what_a_killed_attempt_left_behind_goes_with_the_next_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run, other = (validated(tmp_path / name, out, {"a.txt": name}) for name in ("run", "other"))
    left = [
        out / f"{_drafts_of(run, out / DAY)}0123456789abcdef",
        out / f"{_drafts_of(run, out / DAY)}fedcba9876543210.withdrawn",
    ]
    kept = out / f"{_drafts_of(other, out / DAY)}0123456789abcdef"
    for draft in (*left, kept):
        draft.mkdir(parents=True)
        (draft / "part-00000.parquet").write_text("half", encoding="utf-8")
    publish(run)
    assert sorted(out.iterdir()) == sorted([kept, out / DAY])


def test_a_result_that_was_changed_since_it_was_validated_is_not_published(tmp_path: Path) -> None:
    run = validated(tmp_path / "run", tmp_path / "out", {"a.parquet": _PARQUET})
    (file,) = run.committed(RESULT_STEP).files
    Path(run.path(file.path)).write_text(_PARQUET.replace("pages", "other"), encoding="utf-8")
    run.verify(file)  # its footer is as it was
    with pytest.raises(RunDirectoryError, match=r"required the file of 24 bytes that was committed, but came other co"):
        publish(run)
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    run = validated(tmp_path / "run", tmp_path / "out", {"a.txt": "one"})
    with pytest.raises(
        RunDirectoryError, match=r"out/date=.*: required a folder that can be written, but came File ex"
    ):
        publish(run)


def test_an_empty_result_is_published(tmp_path: Path) -> None:
    publish(validated(tmp_path / "run", tmp_path / "out", {}))
    assert texts(tmp_path / "out" / DAY) == {}


def test_what_was_not_validated_is_not_published(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"))
    run.write_once("job.json", synthetic.job([], output_path=str(tmp_path / "out")))
    run.new_attempt(RESULT_STEP).commit([], {"rows": 0, "keys": 0})
    with pytest.raises(RunDirectoryError, match=r"required quality/COMMIT.json, but came no such file"):
        publish(run)
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_moved_into_at_once_is_refused(tmp_path: Path) -> None:
    run = validated(tmp_path / "run", "s3://bucket/out", {"a.txt": "one"})
    with pytest.raises(
        RunDirectoryError, match=r"output.path: required a path of a local or shared .*, but came 's3://bucket"
    ):
        publish(run)


def test_a_reader_sees_the_old_day_or_the_new_one_never_none_or_both(tmp_path: Path) -> None:
    out, rounds = tmp_path / "out", 30
    publish(validated(tmp_path / "first", out, {"a.txt": "0", "b.txt": "0"}))
    runs = [
        validated(tmp_path / str(number), out, {"a.txt": str(number), "b.txt": str(number)})
        for number in range(1, rounds)
    ]
    done, seen, faults = threading.Event(), set(), []

    def read() -> None:
        while not done.is_set():
            try:
                seen.add((out / DAY / "part-00000.parquet").read_text(encoding="utf-8"))
            except OSError as err:
                faults.append(err)

    reader = threading.Thread(target=read)
    reader.start()
    for run in runs:
        publish(run)
    done.set()
    reader.join()
    assert not faults
    assert len(seen) > 1
    assert texts(out / DAY) == {"part-00000.parquet": str(rounds - 1), "part-00001.parquet": str(rounds - 1)}


def test_of_runs_that_publish_the_same_day_at_once_one_is_left_whole(tmp_path: Path) -> None:
    out, start = tmp_path / "out", threading.Barrier(8)
    runs = [validated(tmp_path / str(n), out, {"a.txt": str(n), "b.txt": str(n)}) for n in range(8)]
    faults: list[Exception] = []

    def go(run: RunDirectory) -> None:
        start.wait()
        try:
            publish(run)
        except Exception as err:  # noqa: BLE001 - whatever it is, the test shows it
            faults.append(err)

    threads = [threading.Thread(target=go, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert [path.name for path in out.iterdir()] == [DAY]
    assert len(set(texts(out / DAY).values())) == 1
