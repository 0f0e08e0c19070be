"""A result becomes visible at once and for good: versions of a day, their turns, what is left and what is kept."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skewless.documents.quality import Quarantine, State
from skewless.errors import LostRaceError, QualityError, RunDirectoryError
from skewless.publication.folder_output import FolderOutput
from skewless.publication.publish import Validated, publishing, require_passed
from skewless.publication.records import Publication, identity_of, publication_of, published_path, state_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_lake.publication import readers_have, state_now
from tests.publication.days import DAY, NOW, beside, kept, left_over, manifest, published, texts, turns_of, validated
from tests.unit import synthetic

#: As far as a checksum looks at one: pages, a footer of three bytes, its length, and the end.
_PARQUET = "PAR1the pagesfoo\x03\0\0\0PAR1"


def test_exactly_the_committed_files_are_published_and_the_manifest_names_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = validated(tmp_path / "run", out, {"a.txt": "one", "b.txt": "two"})
    record = published(run)
    assert record == Publication(path=f"{out}/{DAY}", rows=7, keys=2, turn=1)
    assert record.path == published_path(run.job())
    assert texts(out / DAY) == ["one", "two"]
    found = manifest(out)
    assert (found.by, found.turn) == (identity_of(run), 1)
    assert [file.name for file in found.files] == [
        f"part-00000-{found.name}.parquet", f"part-00001-{found.name}.parquet",
    ]  # fmt: skip
    assert [path.name for path in out.iterdir()] == [DAY]
    assert left_over(out) == []


def test_no_two_versions_of_a_day_have_a_file_name_in_common(tmp_path: Path) -> None:
    out, names = tmp_path / "out", []
    for turn in (1, 2, 3):
        published(validated(tmp_path / str(turn), out, {"a.txt": "same"}, turn=turn))
        names.append(manifest(out).files[0].name)
    assert len(set(names)) == 3


def test_a_newer_run_replaces_the_day_whole_and_the_older_cannot_undo_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    older = validated(tmp_path / "1", out, {"a.txt": "old", "b.txt": "old"}, turn=1)
    newer = validated(tmp_path / "2", out, {"a.txt": "new"}, turn=2)
    first = published(older)
    published(newer)
    assert published(older) == first
    assert state_now(newer) == state_of(newer)
    assert state_now(older) == State("superseded", f"published, and replaced since: readers see that of {newer}")
    assert texts(out / DAY) == ["new"]
    assert kept(out) == [["old", "old"]]
    assert [path.name for path in out.iterdir()] == [DAY]


def test_failed_quality_publishes_nothing_and_names_the_expectation(tmp_path: Path) -> None:
    out = tmp_path / "out"
    published(validated(tmp_path / "1", out, {"a.txt": "good"}))
    bad = validated(tmp_path / "2", out, {"a.txt": "bad"}, turn=2, success=False)
    with pytest.raises(
        QualityError, match=r"^1 of 1 checks failed: \S.* \(3 of 7.*nothing of this run is published; run \S+/2\."
    ):
        published(bad)
    with pytest.raises(QualityError, match=r"published: readers see that of \S+/1; run \S+/2\."):
        require_passed(bad, Validated.of(bad).report, readers_have(bad.job()))
    first = validated(tmp_path / "3", tmp_path / "else", {"a.txt": "bad"}, turn=2, success=False)
    assert readers_have(first.job()) == "readers have no result of 2026-11-20"
    assert texts(out / DAY) == ["good"]
    assert state_of(bad) == State("failed", "failed validation, nothing is published")


def test_a_result_that_was_changed_since_it_was_validated_is_not_published(tmp_path: Path) -> None:
    run = validated(tmp_path / "run", tmp_path / "out", {"a.parquet": _PARQUET})
    (file,) = run.committed(RESULT_STEP).files
    Path(run.path(file.path)).write_text(_PARQUET.replace("pages", "other"), encoding="utf-8")
    run.verify(file)  # its footer is as it was
    with pytest.raises(RunDirectoryError, match=r"expected the file of 24 bytes that was committed, but got other co"):
        published(run)
    assert not list((tmp_path / "out").iterdir())
    assert left_over(tmp_path / "out") == []


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    run = validated(tmp_path / "run", tmp_path / "out", {"a.txt": "one"})
    with pytest.raises(RunDirectoryError, match=r"out/date=.*: the day cannot be published \(File ex"):
        published(run)


def test_an_empty_result_is_published(tmp_path: Path) -> None:
    published(validated(tmp_path / "run", tmp_path / "out", {}))
    assert texts(tmp_path / "out" / DAY) == []
    assert manifest(tmp_path / "out").files == ()


def test_what_was_not_validated_is_not_published(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"))
    run.write_once("job.json", synthetic.job([], output_path=str(tmp_path / "out")))
    run.new_attempt(RESULT_STEP).commit([], {"rows": 0, "keys": 0})
    with pytest.raises(RunDirectoryError, match=r"there is no quality/COMMIT.json"):
        published(run)
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_moved_into_at_once_is_refused(tmp_path: Path) -> None:
    run = validated(tmp_path / "run", "s3://bucket/out", {"a.txt": "one"})
    with pytest.raises(
        RunDirectoryError, match=r"output.path: expected a path of a local or shared .*, but got 's3://bucket"
    ):
        published(run)


def test_a_state_has_one_word_and_one_sentence_and_withheld_rows_are_not_told_as_published(tmp_path: Path) -> None:
    run = validated(tmp_path / "run", tmp_path / "out", {"a.txt": "good"})
    assert state_of(run) == State("unfinished", "validated, passed; not published yet")
    published(run)
    assert state_of(run) == State("published", "published")
    report = run.quality()
    assert report is not None
    warned = report.checks[0].model_copy(update={"success": False, "severity": "warn"})
    warns = report.model_copy(update={"checks": (warned,)})
    assert (warns.verdict, warns.verdict.kind) == (State("warned", "passed with 1 warning"), "warn")
    for left, words in (
        (Quarantine(keys=2, rows=120_000), "120,000 rows withheld"),
        (Quarantine(keys=1), "1 key withheld"),
    ):
        assert report.model_copy(update={"quarantine": left, "keys": 9}).verdict == State("quarantined", words)
        assert warns.model_copy(update={"quarantine": left}).verdict.sentence == f"passed with 1 warning, {words}"
    record = Publication(path="x", rows=205_715, keys=2_016, turn=1, quarantined=9, withheld_rows=120_000)
    assert record.published_rows == 85_715
    assert record.model_copy(update={"withheld_rows": None}).published_rows is None


# Runs of one day beside each other: tests/simulation stops and kills them anywhere.


def two_runs(folder: Path) -> tuple[Path, RunDirectory, RunDirectory]:
    """The output of a day that was published, and an older and a newer run that publish it again."""
    out = folder / "out"
    first, older, newer = (
        validated(folder / name, out, {"a.txt": name}, turn=turn)
        for turn, name in enumerate(("first", "older", "newer"), start=1)
    )
    published(first)
    return out, older, newer


def until_step(steps: Iterator[str], name: str) -> None:
    while next(steps) != name:
        pass


def test_a_claimant_that_sleeps_before_its_exchange_has_no_draft_when_it_wakes(tmp_path: Path) -> None:
    out, older, newer = two_runs(tmp_path)
    late, later = (publishing(run, FolderOutput(run, NOW), turns_of(out)) for run in (older, newer))
    until_step(late, "cleared")
    until_step(later, "cleared")  # claimed, and not exchanged yet
    with pytest.raises(LostRaceError):
        list(late)
    assert texts(out / DAY) == ["first"]
    words = r"turn 2 to be the last one claimed, but got turn 3 of .*newer, which has not"
    with pytest.raises(LostRaceError, match=words):
        published(older)


@pytest.mark.parametrize("superseded", [False, True])
def test_the_draft_of_a_second_attempt_that_was_killed_goes_when_its_run_is_called_again(
    tmp_path: Path, superseded: bool
) -> None:
    out, older, newer = two_runs(tmp_path)
    for run in (newer, older):
        published(run)
    run = older if superseded else newer
    assert (publication_of(run) is None) == superseded
    # An attempt that was paused when it found nothing published, and was killed while it built.
    (beside(out) / "drafts" / DAY / f"{run.job().turn}-0123456789ab.building").mkdir()
    published(run)
    assert left_over(out) == []


def test_where_the_store_of_turns_was_lost_the_published_folder_knows_the_turn(tmp_path: Path) -> None:
    out, older, newer = two_runs(tmp_path)
    published(newer)
    shutil.rmtree(beside(out) / "turns")
    published(older)
    assert texts(out / DAY) == ["newer"]
    assert publication_of(older) is None
    assert turns_of(out).look(DAY).finished == 3


def test_one_turn_of_two_runs_is_refused(tmp_path: Path) -> None:
    """The store was lost between their draws, and put back."""
    out, _, newer = two_runs(tmp_path)
    published(newer)
    twin = validated(tmp_path / "twin", out, {"a.txt": "twin"}, turn=3, grace_hours=1)
    with pytest.raises(RunDirectoryError, match=r"turn 3 of .*: it belongs to .*newer, not to this run"):
        published(twin)
    assert texts(out / DAY) == ["newer"]
