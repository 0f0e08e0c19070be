"""Runs with a window, which build on states that other runs have kept: the faults that only they can have."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from skewless.documents.window import PartVersion
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.standing.retention import StatesLimits, doomed_states, remove_states
from skewless.standing.store import StatesStore
from tests.faults.attempt import Attempt
from tests.faults.damage import KINDS, damage
from tests.faults.damaged import result_of_going_on
from tests.faults.harness import Harness, Outcome
from tests.faults.killed import Point, When, named
from tests.faults.kills import BOTH, kill_at
from tests.faults.races import pause_at, run_twice
from tests.faults.steps import MERGE, Step, whole_night
from tests.faults.trial import Trial
from tests.faults.world import DAY, DAY_BEFORE, World, chance_of, some_rows

#: The days of the window: that of the run, and the one before, of which states are kept.
_DATE, _BEFORE = DAY.removeprefix("date="), DAY_BEFORE.removeprefix("date=")
_LATE_ROWS, _FILES, _ROWS_OF_FILE = 100, 3, 200
_OLD_SECONDS = 30 * 24 * 3600


class NightsWorld(World):
    """Two days of input. States of the first one are kept, and then a late file has come for it."""

    stages = ("stage-0",)
    rows = _FILES * _ROWS_OF_FILE + _LATE_ROWS

    def write_input(self) -> None:
        for at, day in enumerate((DAY_BEFORE, DAY)):
            for number in range(_FILES):
                self._file(day, f"part-{number}", _ROWS_OF_FILE, 10 * at + number)

    def be_late(self) -> None:
        """The late file comes."""
        self._file(DAY_BEFORE, "part-1-late", _LATE_ROWS, 99)
        self.keep_input()

    def _file(self, day: str, name: str, rows: int, seed: int) -> None:
        folder = self.input / day
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(some_rows(rows, seed), folder / f"{name}.parquet")

    def spec_fields(self) -> dict[str, Any]:
        fields = super().spec_fields()
        # One stage: what is tried is the merge.
        one = {"engine": "combine", "routing": {"reducers": 2}}
        return {**fields, **one, "input": {"path": "input/date={date}"}, "window": 2}

    @property
    def store(self) -> StatesStore:
        (folder,) = (self.beside / "states" / "scenario").iterdir()
        return StatesStore(str(folder))

    def newest(self) -> dict[str, PartVersion]:
        found = {part: self.store.newest(part) for part in self.store.parts()}
        return {part: newest.version for part, (newest, _) in found.items() if newest}

    def check_result(self) -> None:
        """See ``World``; and each version stands for just the rows of the files that it names."""
        super().check_result()
        for part in self.store.parts():
            for number in self.store.numbers(part):
                version = self.store.version(part, number)
                self._check_version(version)
        assert set(self.newest()) == {_BEFORE, _DATE}

    def _check_version(self, version: PartVersion) -> None:
        held: Counter[str] = Counter()
        for file in version.states:
            for row in pq.ParquetFile(self.store.path(file.path)).read(["c0", "rows"]).to_pylist():
                held[row["c0"]] += row["rows"]
        right: Counter[str] = Counter()
        for seen in version.files:
            right.update(pq.ParquetFile(seen.path).read(["key"])["key"].to_pylist())
        assert held == right, f"a version of {version.part} does not stand for its files"
        assert version.rows == right.total()


class NightsHarness(Harness):
    """A harness whose run goes on from the states of another one."""

    world: NightsWorld

    def __init__(self, place: Path) -> None:
        super().__init__(place, spark=True, kind=NightsWorld)

    def before_the_run(self) -> None:
        ended = self.other_run("r0", _BEFORE).ended()
        assert ended.code == 0, ended.said
        self.world.be_late()

    def other_run(self, name: str, date: str) -> Attempt:
        jvm = self.jvm

        def act() -> int:
            jvm.attach()
            return whole_night(self.world, name, date)

        return Attempt(act, self.new_log(MERGE))


def trials(h: NightsHarness) -> Iterator[Trial]:
    seeds = h.seeds(50_000)
    for point in _points(h):
        for when in BOTH:
            yield _trial("kill", MERGE, f"{when} {point.name}", seeds, partial(_killed, point, when))
        if point.action == "link":
            fault = f"paused before {point.name}, woken after its successor"
            yield _trial("pause", MERGE, fault, seeds, partial(_paused, point))
    for _ in range(2):
        yield _trial("twice", MERGE, "two attempts at once", seeds, partial(run_twice, MERGE))
    for date, fault in ((_DATE, "another run of the day"), (_BEFORE, "a backfill of the day before")):
        for _ in range(2):
            yield _trial("beside", MERGE, f"{fault} at once", seeds, partial(_beside, date))
    for _ in range(2):
        yield _trial("beside", MERGE, "a prune of all that is old at once", seeds, _pruned)
    yield from _damages(h, seeds)


def _damages(h: NightsHarness, seeds: Iterator[int]) -> Iterator[Trial]:
    for slug in ("prepare", "merge"):
        step = h.step(slug)
        h.world.restore(slug)
        for name, path in _kept_files(h.world).items():
            for kind in KINDS:
                yield _trial("damage", step, f"{name} {kind}", seeds, partial(_damaged, step, path, kind))


def _trial(kind: str, step: Step, fault: str, seeds: Iterator[int], act: Any) -> Trial:
    return Trial(kind, f"{step.name}, window", fault, next(seeds), act, spark=True)


def _points(h: NightsHarness) -> list[Point]:
    points = [point for point in h.points["merge"] if point.action != "read" and point.nth == 1]
    return [point for point in points if point.path.startswith("states/") or point.action == "link"]


def _killed(point: Point, when: When, h: NightsHarness, seed: int) -> Outcome:
    outcome = kill_at(MERGE, point, when, h, seed)
    numbers = [len(h.world.store.numbers(part)) for part in (_BEFORE, _DATE)]
    assert numbers == [2, 1], f"versions were added twice: {numbers}"
    return outcome


def _paused(point: Point, h: NightsHarness, seed: int) -> Outcome:
    outcome = pause_at(MERGE, point, h, seed)
    h.world.check_result()
    return outcome


def _beside(date: str, h: NightsHarness, seed: int) -> Outcome:
    """Another run goes on from the same states at the same time: both results are right."""
    h.begin(MERGE)
    other = h.other_run("r2", date)
    time.sleep(chance_of(seed).uniform(0, 3))
    ours = h.attempt(MERGE)
    h.check_failure(MERGE, ours.ended())
    ended = other.ended()
    assert ended.code == 0, ended.said[-3000:]
    run = RunDirectory(str(h.world.folder.with_name("r2")))
    window = run.job().window
    assert window is not None
    listed = sum(pq.read_metadata(file.path).num_rows for part in window.parts for file in part.files)
    assert run.committed(RESULT_STEP).counts["rows"] == listed
    return h.must_recover(MERGE, seed)


def _pruned(h: NightsHarness, seed: int) -> Outcome:
    """What the run goes on from is old, and of a part that is not kept: only the run's pin keeps it."""
    h.begin(MERGE)
    location, then = str(h.world.beside / "states" / "scenario"), time.time() - _OLD_SECONDS
    for path in Path(location).rglob("*"):
        os.utime(path, (then, then))
    time.sleep(chance_of(seed).uniform(0, 0.2))
    ours, removed = h.attempt(MERGE), 0
    while ours.running():
        now, limits = dt.datetime.now(tz=dt.UTC), StatesLimits(parts=1)
        doomed = doomed_states(location, now, limits)
        remove_states(location, doomed, now, limits)
        removed += len(doomed)
    assert removed > 0, "or the prune had nothing to do"
    h.check_failure(MERGE, ours.ended())
    return h.must_recover(MERGE, seed)


def _kept_files(world: NightsWorld) -> dict[str, Path]:
    found = sorted(path for path in Path(str(world.store)).rglob("*") if path.is_file())
    shown = [path for path in found if not path.name.startswith((".", "_"))]
    return {named(str(path.relative_to(str(world.store)))): path for path in shown}


def _damaged(step: Step, path: Path, kind: Any, h: NightsHarness, seed: int) -> Outcome:
    """The part is reduced anew, or the run stops before it has published anything."""
    h.begin(step)
    damage(path, kind, seed)
    return result_of_going_on(step, h)
