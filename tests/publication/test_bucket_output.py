"""Days in a bucket: published, killed, raced and read; readers by ``_published`` get one version, whole."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from skewless.errors import LostRaceError, RunDirectoryError, SpecError
from skewless.publication.publish import publish, publishing
from skewless.publication.records import Publication, manifest_of, record_of
from skewless.run.directory import RunDirectory
from skewless.run.folder import open_location
from skewless_lake.bucket_output import BucketOutput, draw_turn
from skewless_lake.publication import readers_have, state_now
from skewless_leases import Turns, open_store
from tests.object_stores import ObjectServer, as_client, object_server
from tests.publication.days import DAY, seen_while_published, validated

STEPS = ("built", "claimed", "completed", "exchanged", "cleared", "finished", "recorded")
FILES = {f"{number}.txt": f"{number} of " for number in range(3)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("moto", tmp_path_factory.mktemp("moto")) as server, as_client(server.environment):
        yield server


class Bucket:
    """An output in the bucket, and runs of its day: the files of each say which run they are of."""

    def __init__(self, server: ObjectServer, folder: Path) -> None:
        self.server, self.folder, self.out = server, folder, f"s3://lake/{folder.name}/clicks"
        self.turns = Turns(open_store(f"s3://lake/{folder.name}/.clicks.skewless/turns"))

    def ready(self, turn: int) -> RunDirectory:
        parts = {name: f"{text}{turn}" * 100 for name, text in FILES.items()}
        return validated(self.folder / str(turn), self.out, parts, turn=turn, allow_gap=True)

    def steps(self, run: RunDirectory) -> Iterator[str]:
        return publishing(run, BucketOutput(run), self.turns)

    def published(self, run: RunDirectory) -> Publication:
        for _ in range(3):
            try:
                return publish(publishing(run, BucketOutput(run), self.turns))
            except LostRaceError:
                continue
        raise AssertionError("it is never done")

    def listed(self) -> list[str]:
        day = f"{self.folder.name}/clicks/{DAY}/"
        return [key.removeprefix(day) for key in self.server.keys(day)]

    def read(self) -> set[int]:
        """The versions of the files that ``_published`` names: again, where a file has gone in between."""
        while True:
            manifest = manifest_of(f"{self.out}/{DAY}")
            assert manifest is not None
            try:
                texts = [self.server.content(f"{self.folder.name}/clicks/{DAY}/{one.name}") for one in manifest.files]
            except FileNotFoundError:
                continue
            assert len(texts) == len(FILES)
            versions = {int(re.findall(rb"of (\d+)", text)[-1]) for text in texts}
            assert len(versions) == 1
            return versions

    def shows(self, turn: int) -> None:
        names = self.listed()
        assert names[0] == "_published"
        assert len(names) == 1 + len(FILES)
        assert {name.split("-")[2] for name in names[1:]} == {str(turn)}
        assert self.read() == {turn}


@pytest.fixture
def bucket(server: ObjectServer, tmp_path: Path) -> Bucket:
    return Bucket(server, tmp_path)


def test_a_day_is_replaced_and_nothing_is_left_of_the_version_before(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert draw_turn(bucket.out, bucket.turns) == 1
    first = bucket.ready(1)
    assert readers_have(first.job()) == "readers have no result of 2026-11-20"
    bucket.published(first)
    assert readers_have(first.job()) == f"readers see that of {first}"
    bucket.shows(1)
    assert "two versions" not in caplog.text
    assert tuple(bucket.steps(bucket.ready(2))) == STEPS
    bucket.shows(2)
    assert state_now(first).word == "superseded"
    assert re.search(r"who lists it has seen files of two versions for \d+ ms", caplog.text)


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_and_tried_again_it_is_published_once(bucket: Bucket, step: str) -> None:
    bucket.published(bucket.ready(1))
    run = bucket.ready(2)
    attempt = bucket.steps(run)
    while next(attempt) != step:
        pass
    del attempt
    assert bucket.read() == ({1} if STEPS.index(step) < STEPS.index("exchanged") else {2})
    bucket.published(run)
    bucket.shows(2)


@pytest.mark.parametrize("step", STEPS[:4])
def test_one_that_sleeps_while_a_later_run_publishes_changes_nothing_when_it_wakes(bucket: Bucket, step: str) -> None:
    bucket.published(bucket.ready(1))
    older, newer = bucket.ready(2), bucket.ready(3)
    asleep = bucket.steps(older)
    while next(asleep) != step:
        pass
    bucket.published(newer)
    list(asleep)
    bucket.published(older)
    bucket.shows(3)
    record = record_of(older)
    assert record is not None
    assert record.superseded is not None
    assert record.superseded.turn == 3


def test_an_object_that_went_is_published_again_and_one_of_others_is_refused(bucket: Bucket) -> None:
    run = bucket.ready(1)
    bucket.published(run)
    day = f"{bucket.folder.name}/clicks/{DAY}"
    bucket.server.delete(f"{day}/{bucket.listed()[1]}")
    bucket.published(run)
    bucket.shows(1)
    bucket.server.put(f"{day}/_SUCCESS", b"")
    bucket.published(bucket.ready(2))
    bucket.server.put(f"{day}/old.parquet", b"of others")
    with pytest.raises(SpecError, match=r"1 other objects, such as old\.parquet, which readers would count, too"):
        bucket.published(bucket.ready(3))


def test_a_store_that_lets_two_replace_one_object_is_refused(tmp_path: Path) -> None:
    with object_server("localbucket", tmp_path / "s3") as server, as_client(server.environment):
        turns = Turns(open_store("s3://lake/.clicks.skewless/turns"))
        with pytest.raises(RunDirectoryError, match="the store ignores the condition If-Match; choose a store"):
            draw_turn("s3://lake/clicks", turns)


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.long)])
def test_readers_by_the_manifest_see_one_version_whole_while_days_are_published(bucket: Bucket, count: int) -> None:
    bucket.published(bucket.ready(1))
    runs = [bucket.ready(turn) for turn in range(2, count + 2)]
    seen = seen_while_published(lambda: min(bucket.read()), bucket.published, runs)
    assert seen == sorted(seen)
    assert len(set(seen)) > count // 4
    bucket.shows(count + 1)


def test_the_files_of_a_version_are_those_that_were_validated(bucket: Bucket) -> None:
    run = bucket.ready(1)
    bucket.published(run)
    fs, root = open_location(f"{bucket.out}/{DAY}")
    manifest = manifest_of(f"{bucket.out}/{DAY}")
    assert manifest is not None
    for (name, text), file in zip(FILES.items(), manifest.files, strict=True):
        del name
        assert fs.cat_file(f"{root}/{file.name}") == (text + "1").encode() * 100
