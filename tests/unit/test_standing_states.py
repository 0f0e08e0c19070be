"""Nights over a changing lake, without Spark: whatever was kept, the result is that of all rows as they were pinned."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Unit
from skewless.documents.window import JobWindow, PartVersion, SeenFile
from skewless.spec.part import Part, parts_until
from skewless.standing.changes import RANK_END, FoundFile, rank_runs, ranks_between
from skewless.standing.parts import next_version, plan_part
from skewless.standing.store import StatesStore

DAYS = [dt.date(2026, 11, 1) + dt.timedelta(days=day) for day in range(4)]
NAMES = ["a", "b", "c", "d"]
_roots = itertools.count()
_contents = itertools.count()

#: A row, so that no two are alike: its content and its position there.
Row = tuple[int, int]
Lake = dict[dt.date, dict[str, int]]


def rows_of(content: int) -> list[Row]:
    return [(content, position) for position in range(1 + content % 4)]


def units_of(path: str, content: int) -> list[Unit]:
    """A file in one to three units."""
    rows, pieces = len(rows_of(content)), 1 + content % 3
    spans = [(rows * at // pieces, rows * (at + 1) // pieces) for at in range(pieces)]
    return [
        Unit(path=path, rows=end - start, size_bytes=rows, version=str(content), span=(start, end), first_row=start)
        for start, end in spans
    ]


class Pending(NamedTuple):
    """A run that has pinned its input."""

    name: str
    pinned: Lake
    window: JobWindow
    units: tuple[Unit, ...]
    store: StatesStore


class Nights(RuleBasedStateMachine):
    """Files come late, change and vanish; runs of any day begin, end, are killed and begin again."""

    def __init__(self) -> None:
        super().__init__()
        self.root = f"memory://nights{next(_roots)}"
        # Files that are named neither first nor last, so that others can come before and after them.
        self.lake: Lake = {day: {"b": next(_contents), "c": next(_contents)} for day in DAYS}
        self.spec = 0
        self.pending: list[Pending] = []
        #: What the files with states hold: places and rows.
        self.files: dict[str, list[tuple[int, int, Row]]] = {}
        self._runs = itertools.count()
        self._attempts = itertools.count()

    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES))
    def write(self, day: dt.date, name: str) -> None:
        """A file comes, or comes with other content."""
        self.lake[day][name] = next(_contents)

    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES))
    def remove(self, day: dt.date, name: str) -> None:
        self.lake[day].pop(name, None)

    @rule(day=st.sampled_from(DAYS))
    def remove_day(self, day: dt.date) -> None:
        self.lake[day].clear()

    @rule(spec=st.integers(0, 1))
    def change_spec(self, spec: int) -> None:
        self.spec = spec

    @rule(last=st.sampled_from(DAYS), length=st.sampled_from([1, 4]))
    def night(self, last: dt.date, length: int) -> None:
        """A run from its beginning to its end."""
        self.begin(last, length)
        self.finish(len(self.pending) - 1)

    @rule(last=st.sampled_from(DAYS), length=st.sampled_from([1, 3, 4]))
    def begin(self, last: dt.date, length: int) -> None:
        """A run of some day lists its input: the newest one, an old one, or one that ran before."""
        store = StatesStore(f"{self.root}/{self.spec}")
        pinned = {day: dict(files) for day, files in self.lake.items()}
        parts, units = [], list[Unit]()
        for part in parts_until(Part(last), length, "UTC"):
            files = pinned.get(part.date, {})
            if not files:
                continue
            found = [FoundFile(f"{part.name}/{name}", len(rows_of(one)), str(one)) for name, one in files.items()]

            def cut(paths: Sequence[str], files: dict[str, int] = files) -> list[Unit]:
                return [unit for path in paths for unit in units_of(path, files[path.rpartition("/")[2]])]

            def difference(seen: SeenFile, now: FoundFile) -> str:
                return "" if seen.version == now.version else "other content"

            known, faults = store.newest(part.name)
            assert not faults
            planned, of_part = plan_part(part, found, known, cut, difference, len(units))
            parts.append(planned)
            units += of_part
        window = JobWindow(store=str(store), fingerprint=str(self.spec), parts=tuple(parts))
        self.pending.append(Pending(f"run{next(self._runs)}", pinned, window, tuple(units), store))

    @precondition(lambda self: self.pending)
    @rule(at=st.integers(0, 99), versions=st.integers(0, 3), written=st.booleans())
    def kill(self, at: int, versions: int, written: bool) -> None:
        """A merge is killed: before it has written its states, or after some versions. It may be tried again."""
        self._merge(self.pending[at % len(self.pending)], versions if written else 0)

    @precondition(lambda self: self.pending)
    @rule(at=st.integers(0, 99))
    def finish(self, at: int) -> None:
        """A merge goes to its end: its result is that of one run over all rows as they were pinned."""
        run = self.pending.pop(at % len(self.pending))
        versions = self._merge(run, None)
        held = sorted(one for version in versions for file in version.states for one in self.files[file.path])
        assert [row for _, _, row in held] == self._plain(run)
        assert sum(version.rows for version in versions) == len(held)
        assert len(held) == run.window.unchanged_rows + sum(unit.rows for unit in run.units)

    @invariant()
    def versions_stand_for_their_files(self) -> None:
        """Each version, of whatever run, holds just the rows of the files that it names."""
        for spec in (0, 1):
            store = StatesStore(f"{self.root}/{spec}")
            for part in store.parts():
                for number in store.numbers(part)[-2:]:
                    version = store.version(part, number)
                    held = sorted(row for file in version.states for _, _, row in self.files[file.path])
                    assert held == sorted(row for file in version.files for row in rows_of(int(file.version)))

    def _plain(self, run: Pending) -> list[Row]:
        days = [dt.date.fromisoformat(part.name) for part in run.window.parts]
        return [row for day in days for _, content in sorted(run.pinned[day].items()) for row in rows_of(content)]

    def _merge(self, run: Pending, most: int | None) -> list[PartVersion]:
        attempt, runs = next(self._attempts), rank_runs(run.window)
        versions: list[PartVersion] = []
        for part in run.window.parts:
            held = []
            for ordinal in range(*part.units):
                unit = run.units[ordinal]
                base = next(one for one in reversed(runs) if ordinal >= one.first)
                place = base.base + base.step * (ordinal - base.first)
                span = unit.span or (0, 0)
                held += [(place, offset, (int(unit.version), offset)) for offset in range(*span)]
            states = [self._written(run.store, attempt, part.name, held)] if held else []
            version = next_version(run.window, part, run.name, states, len(held))
            if most is not None and len(versions) == most:
                break
            versions.append(run.store.commit(version).version if part.changed else version)
        return versions

    def _written(self, store: StatesStore, attempt: int, part: str, held: list[tuple[int, int, Row]]) -> CommittedFile:
        path = f"states/attempts/{attempt}/{part}.parquet"
        store.fs.makedirs(f"{store.root}/states/attempts/{attempt}", exist_ok=True)
        store.fs.pipe_file(f"{store.root}/{path}", b"x")
        self.files[path] = held
        return CommittedFile(kind="standing", path=path, rows=len(held), size_bytes=1, checksum="0" * 64)


@pytest.mark.parametrize("sequences", [200, pytest.param(2000, marks=pytest.mark.long)])
def test_the_result_is_that_of_all_rows_whatever_was_kept(sequences: int) -> None:
    run_state_machine_as_test(
        Nights,
        settings=settings(
            max_examples=sequences, stateful_step_count=25, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def test_a_late_file_is_placed_between_its_neighbours_until_there_is_no_room() -> None:
    known = [SeenFile(path="a", size_bytes=1, ranks=(256,)), SeenFile(path="z", size_bytes=1, ranks=(512,))]
    late = 0
    while (ranks := ranks_between(known, [(f"b{late:03d}", 1)])) is not None:
        (rank,) = ranks[f"b{late:03d}"]
        before = max(one.ranks[-1] for one in known if one.path < f"b{late:03d}")
        assert before < rank < 512
        known.append(SeenFile(path=f"b{late:03d}", size_bytes=1, ranks=(rank,)))
        late += 1
    assert late == 8
    assert ranks_between(known, [("zz", 3)]) == {"zz": (768, 1024, 1280)}
    full = SeenFile(path="a", size_bytes=1, ranks=(RANK_END - 1,))
    assert ranks_between([full], [("b", 1)]) is None
