"""Runs of one day that are stopped, killed and woken at any step: the day is whole, and ends up the last turn's."""

import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from skewless.errors import LostRaceError, RunDirectoryError
from skewless.publication.folder_output import FolderOutput
from skewless.publication.publish import publishing
from skewless.publication.records import Publication, publication_of, superseded_by
from skewless.run.directory import RunDirectory
from skewless_leases import Turns
from tests.publication.days import DAY, NOW, beside, kept, left_over, published, texts, turns_of, validated

STEPS = ("built", "claimed", "cleared", "exchanged", "made durable", "finished", "recorded")


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory where there is one: these tests wait for a disk some thousand times else."""
    memory = Path("/dev/shm")  # a real file system, which exchanges folders too
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


class Attempt:
    """An attempt to publish, step by step."""

    def __init__(self, run: RunDirectory, turns: Turns) -> None:
        self.steps: Generator[str, None, Publication] = publishing(run, FolderOutput(run, NOW), turns)
        self.done: list[str] = []
        self.record: Publication | None = None
        self.lost = False

    def go(self, steps: int | None = None) -> None:
        while steps is None or steps:
            try:
                self.done.append(next(self.steps))
            except StopIteration as ended:
                self.record = ended.value
                return
            except LostRaceError:
                self.lost = True
                return
            if steps is not None:
                steps -= 1


class World(NamedTuple):
    """A day that was published, and two runs that publish it again."""

    out: Path
    turns: Turns
    older: RunDirectory
    newer: RunDirectory

    def seen(self) -> str:
        found = texts(self.out / DAY)
        assert len(found) == 2, found
        assert len(set(found)) == 1, found
        return found[0]

    def end(self, run: RunDirectory) -> None:
        for _ in range(3):
            attempt = Attempt(run, self.turns)
            attempt.go()
            if not attempt.lost:
                return
        raise AssertionError("it is never done")

    def check_end(self) -> None:
        """The day is the newer run's, and nothing is left over but the versions that were published before."""
        assert self.seen() == "newer"
        assert publication_of(self.newer) is not None
        assert (publication_of(self.older) is None) != (superseded_by(self.older) is None)
        assert left_over(self.out) == []
        versions = [version[0] for version in kept(self.out)]
        assert set(versions) <= {"first", "older", "newer"}
        assert "first" in versions
        assert [path.name for path in self.out.iterdir()] == [DAY]


def a_world(folder: Path) -> World:
    out = folder / "out"
    parts = {"a.txt": "{}", "b.txt": "{}"}
    runs = {
        name: validated(folder / name, out, dict.fromkeys(parts, name), turn=turn)
        for turn, name in enumerate(("first", "older", "newer"), start=1)
    }
    published(runs["first"])
    return World(out, turns_of(out), runs["older"], runs["newer"])


def test_these_are_the_steps(fast: Path) -> None:
    world = a_world(fast)
    attempt = Attempt(world.newer, world.turns)
    attempt.go()
    assert tuple(attempt.done) == STEPS


def test_a_claimant_that_sleeps_before_its_exchange_has_no_draft_when_it_wakes(fast: Path) -> None:
    world = a_world(fast)
    late, newer = Attempt(world.older, world.turns), Attempt(world.newer, world.turns)
    late.go(STEPS.index("exchanged"))
    newer.go(STEPS.index("exchanged"))  # claimed, and not exchanged yet
    late.go()
    assert late.lost
    assert world.seen() == "first"
    with pytest.raises(
        LostRaceError, match=r"turn 2 to be the last one claimed, but got turn 3 of .*newer, which has not"
    ):
        published(world.older)


@pytest.mark.parametrize("superseded", [False, True])
def test_the_draft_of_a_second_attempt_that_was_killed_goes_when_its_run_is_called_again(
    fast: Path, superseded: bool
) -> None:
    world = a_world(fast)
    run = world.older if superseded else world.newer
    for each in (world.newer, world.older):
        world.end(each)
    assert (superseded_by(run) is not None) == superseded
    # An attempt that was paused when it found nothing published, and was killed while it built.
    (beside(world.out) / "drafts" / DAY / f"{run.job().turn}-0123456789ab.building").mkdir()
    world.end(run)
    world.check_end()


def test_an_earlier_turn_leaves_the_draft_of_a_later_one(fast: Path) -> None:
    world = a_world(fast)
    older, newer = Attempt(world.older, world.turns), Attempt(world.newer, world.turns)
    newer.go(STEPS.index("built") + 1)
    older.go()
    newer.go()
    assert not newer.lost
    world.check_end()


def test_where_the_store_of_turns_was_lost_the_published_folder_knows_the_turn(fast: Path) -> None:
    world = a_world(fast)
    world.end(world.newer)
    shutil.rmtree(beside(world.out) / "turns")
    again = World(world.out, turns_of(world.out), world.older, world.newer)
    again.end(again.older)
    assert again.seen() == "newer"
    assert superseded_by(again.older) is not None
    assert again.turns.look(DAY).finished == 3


def test_one_turn_of_two_runs_is_refused(fast: Path) -> None:
    """The store was lost between their draws, and put back."""
    world = a_world(fast)
    twin = validated(fast / "twin", world.out, {"a.txt": "twin"}, turn=3, grace_hours=1)
    world.end(world.newer)
    with pytest.raises(RunDirectoryError, match=r"turn 3 of .*: it belongs to .*newer, not to this run"):
        published(twin)
    assert world.seen() == "newer"
