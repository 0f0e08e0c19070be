"""Nights over a changing lake, without Spark: whatever was kept, the result is that of all rows as they were pinned."""

import datetime as dt
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Unit
from skewless.documents.window import JobWindow, PartVersion, SeenFile, WindowPart, WindowSpan
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.directory import RunDirectory
from skewless.run.storage import Storage
from skewless.spec.part import Part, parts_until
from skewless.standing.parts import (
    RANK_END,
    FoundFile,
    counted_files,
    keep_part,
    next_version,
    plan_part,
    ranks_between,
)
from skewless.standing.states_retention import StatesLimits, doomed_states, held_parts, pin, remove_states
from skewless.standing.states_store import Fingerprint, Numbered, StatesStore
from tests.tiers import mostly_long
from tests.unit.states import FILE, NOW, add, file_of, make_old, store_of, window_of

DAYS = [dt.date(2026, 11, 1) + dt.timedelta(days=day) for day in range(4)]
NAMES = ["a", "b", "c", "d"]
_roots = itertools.count()
_contents = itertools.count()

#: A row, so that no two are alike: its content and its position there.
Row = tuple[int, int]
Lake = dict[dt.date, dict[str, int]]
#: The fingerprint of the spec with an aggregate that sees rows in order.
ORDERED = "1"


def rows_of(content: int) -> list[Row]:
    return [(content, position) for position in range(1 + content % 4)]


def units_of(path: str, content: int) -> list[Unit]:
    rows, pieces = len(rows_of(content)), 1 + content % 3
    spans = [(rows * at // pieces, rows * (at + 1) // pieces) for at in range(pieces)]
    return [
        Unit(path=path, rows=end - start, size_bytes=rows, version=str(content), span=(start, end), first_row=start)
        for start, end in spans
    ]


class Pending(NamedTuple):
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

    def teardown(self) -> None:
        """Empty the file system in memory: it looks at all of its files in each listing."""
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]

    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES))
    def write(self, day: dt.date, name: str) -> None:
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

    @rule(last=st.sampled_from(DAYS), length=st.sampled_from([1, 4]), ignore=st.booleans())
    def night(self, last: dt.date, length: int, ignore: bool) -> None:
        self.begin(last, length, ignore)
        self.finish(len(self.pending) - 1)

    @rule(last=st.sampled_from(DAYS), length=st.sampled_from([1, 3, 4]), ignore=st.booleans())
    def begin(self, last: dt.date, length: int, ignore: bool) -> None:
        """A run of some day lists its input: the newest one, an old one, or one that ran before.

        If it ignores late data, it pins older parts as the kept states have them.
        """
        store = StatesStore(f"{self.root}/{self.spec}")
        pinned = {day: dict(files) for day, files in self.lake.items()}
        parts, units = [], list[Unit]()
        for part in parts_until(Part(last), length, "UTC"):
            files = pinned.get(part.date, {})
            known, faults = store.newest(part.name)
            assert not faults
            kept = known if ignore and part.date != last else None
            if not files and kept is None:
                continue
            found = [FoundFile(f"{part.name}/{name}", len(rows_of(one)), str(one)) for name, one in files.items()]

            def cut(paths: Sequence[str], files: dict[str, int] = files) -> list[Unit]:
                return [unit for path in paths for unit in units_of(path, files[path.rpartition("/")[2]])]

            def difference(seen: SeenFile, now: FoundFile) -> str:
                return "" if seen.version == now.version else "other content"

            newest = [store.newest(name)[0] for name in store.parts()]
            counted = counted_files(one.version for one in newest if one)
            in_order = str(self.spec) == ORDERED
            if kept is not None:
                planned, of_part = keep_part(part, found, kept, difference, cut, counted), tuple[Unit, ...]()
                planned = planned.model_copy(update={"units": (len(units), len(units))})
                before = {one.path.rpartition("/")[2]: int(one.version) for one in kept.version.files}
                changed = {name for name in {*files, *before} if files.get(name) != before.get(name)}
                assert planned.ignored_files == len(changed)
                assert planned.ignored_rows == sum(len(rows_of(files[name])) for name in changed if name in files)
                pinned[part.date] = before
            else:
                planned, of_part = plan_part(part, found, known, cut, difference, len(units), in_order=in_order)
            parts.append(planned)
            units += of_part
        window = JobWindow(
            store=str(store), fingerprint=str(self.spec), shapes={}, windows=(WindowSpan(),), parts=tuple(parts)
        )
        name = f"{self.root}/runs/{next(self._runs)}"
        store.begin(Fingerprint(shapes={"spec": str(self.spec)}))
        assert pin(window, RunDirectory(name))
        RunDirectory(name).fs.pipe_file(f"{RunDirectory(name).root}/job.json", b"{}")
        self.pending.append(Pending(name, pinned, window, tuple(units), store))

    @rule(parts=st.integers(1, 4), fresh=st.booleans())
    def prune(self, parts: int, fresh: bool) -> None:
        """What no run under way needs is removed, at once or where it is a week old: then nothing is."""
        limits = StatesLimits(parts=parts, grace=dt.timedelta(days=7 if fresh else -1))
        now = dt.datetime.now(tz=dt.UTC)
        remove_states(self.root, doomed_states(self.root, now, limits), now, limits)

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
        for version in versions:
            for file in version.states:
                assert run.store.exists(file.path), "a prune has removed what a run under way needed"
        RunDirectory(run.name).fs.pipe_file(f"{RunDirectory(run.name).root}/result/COMMIT.json", b"{}")
        held = [one for version in versions for file in version.states for one in self.files[file.path]]
        if run.window.fingerprint != ORDERED:
            held.sort()
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
        versions: list[PartVersion] = []
        for part in run.window.parts:
            held = []
            for unit, rank in zip(run.units[slice(*part.units)], part.ranks, strict=True):
                place = part.place * RANK_END + rank
                held += [(place, at, (int(unit.version), at)) for at in range(*(unit.span or (0, 0)))]
            states = [self._written(run.store, next(self._attempts), part.name, held)] if held else []
            if most is not None and len(versions) == most:
                break
            version = next_version(run.window, part, run.name, states, len(held))
            versions.append(run.store.commit_all([version])[0].version if part.changed else version)
        return versions

    def _written(self, store: StatesStore, attempt: int, part: str, held: list[tuple[int, int, Row]]) -> CommittedFile:
        path = f"states/attempts/{attempt}/{part}.parquet"
        store.fs.makedirs(f"{store.root}/states/attempts/{attempt}", exist_ok=True)
        store.fs.pipe_file(f"{store.root}/{path}", FILE)
        self.files[path] = held
        return file_of(path, len(held))


@pytest.mark.parametrize("sequences", mostly_long([15, 200, 2000], 15))
def test_the_result_is_that_of_all_rows_whatever_was_kept(sequences: int) -> None:
    run_state_machine_as_test(
        Nights,
        settings=settings(
            max_examples=sequences, stateful_step_count=25, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def test_late_changes_that_are_left_out_are_counted_and_change_nothing(tmp_path: Path) -> None:
    store = _store_with(tmp_path, 1, dt.timedelta(0))
    files = tuple(SeenFile(path=name, size_bytes=1, version=name, ranks=(at,)) for at, name in enumerate("abc"))
    known = store.newest("2026-11-01")[0]
    assert known is not None
    known = known._replace(version=known.version.model_copy(update={"files": files, "rows": 30}))
    found = [FoundFile("a", 1, "a"), FoundFile("b", 1, "other"), FoundFile("d", 1, "d")]

    def difference(seen: SeenFile, now: FoundFile) -> str:
        return "" if seen.version == now.version else "other content"

    opened = []

    def cut(paths: Sequence[str]) -> list[Unit]:
        opened.append(list(paths))
        return [Unit(path=path, rows=rows, size_bytes=1, counted=path != "z") for path in paths for rows in (3, 4)]

    part = keep_part(Part(DAYS[0]), found, known, difference, cut, {})
    assert (part.files, part.base_states, part.base_rows) == (files, known.version.states, 30)
    assert (part.reused, part.added, part.replaced, part.removed) == (3, 0, 0, 0)
    assert (part.ignored_files, part.ignored_rows) == (3, 14)
    assert not part.changed
    assert keep_part(Part(DAYS[0]), found, known, difference, lambda _: [], {}).ignored_rows is None
    rest = part.model_copy(update={"name": DAYS[1], "ignored_rows": None})
    assert [JobWindow.model_construct(parts=parts).ignored_rows for parts in ((part, part), (part, rest))] == [28, None]
    # The night after: only what came or was changed since is opened to be counted.
    own = WindowPart(name="2026-11-02", place=1)
    night = JobWindow(store="s", fingerprint="f", shapes={}, windows=(WindowSpan(),), parts=(part, own))
    assert not next_version(night, part, "run", (), 0).left_out
    counted = counted_files([next_version(night, own, "run", (), 0)])
    more = [*found[:2], FoundFile("d", 1, "changed"), FoundFile("z", 1, "z")]
    part = keep_part(Part(DAYS[0]), found, known, difference, cut, counted)
    assert (part.ignored_files, part.ignored_rows, part.left_out) == (3, 14, night.parts[0].left_out)
    assert keep_part(Part(DAYS[0]), more, known, difference, cut, counted).ignored_rows is None
    assert opened == [["b", "d"], ["d", "z"]]


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


@pytest.mark.parametrize("come", [["b"], ["b", "c"], ["a", "b"]], ids=["nothing", "a file behind", "a file before"])
def test_a_part_whose_rows_must_be_seen_in_order_is_made_anew_when_a_file_comes(come: list[str]) -> None:
    seen = SeenFile(path="b", size_bytes=1, ranks=(256,))
    known = Numbered(4, PartVersion(part="2026-11-01", fingerprint="f", run="r", files=(seen,), rows=9, states=()))
    found = [FoundFile(name, 1, "") for name in come]

    def cut(paths: Sequence[str]) -> list[Unit]:
        return [Unit(path=path, rows=1, size_bytes=1) for path in paths]

    planned, units = plan_part(Part(DAYS[0]), found, known, cut, lambda *_: "", in_order=True)
    anew = len(come) > 1
    assert [unit.path for unit in units] == (come if anew else [])
    assert (planned.base, planned.base_rows, planned.before_rows) == ((None, 0, 9) if anew else (4, 9, 9))
    assert planned.reasons == tuple(f"{one} was added, and rows must be seen in order" for one in come if one != "b")
    if anew:
        unordered, units = plan_part(Part(DAYS[0]), found, known, cut, lambda *_: "")
        assert (unordered.base, len(units)) == (4, 1)


def _store_with(folder: Path, days: int, age: dt.timedelta) -> StatesStore:
    """Two versions of each day, the first with a file of states, the second with that and one more."""
    store = store_of(folder)
    for day in range(days):
        part, files = f"2026-11-{day + 1:02d}", [f"states/attempts/{day}-{number}/x.parquet" for number in (1, 2)]
        add(store, "r1", part, files[0])
        add(store, "r2", part, *(files if day else files[1:]))  # the first day is reduced anew
        for path in files:
            Path(store.path(path)).with_name(".x.parquet.crc").write_bytes(b"y")
    make_old(store, age)
    return store


@pytest.mark.parametrize("parts", [2, None])
def test_a_prune_removes_what_was_followed_and_parts_before_the_window(tmp_path: Path, parts: int | None) -> None:
    store, limits = _store_with(tmp_path, 3, dt.timedelta(days=10)), StatesLimits(parts=parts)
    assert doomed_states(str(tmp_path), NOW - dt.timedelta(days=8), limits) == []
    doomed = doomed_states(str(tmp_path), NOW, limits)
    followed = {f"parts/2026-11-{day:02d}/versions/0001.json" for day in (1, 2, 3)}
    followed |= {f"states/attempts/0-1/{name}" for name in ("x.parquet", ".x.parquet.crc")}
    before = {f"states/attempts/0-2/{name}" for name in ("x.parquet", ".x.parquet.crc")}
    before.add("parts/2026-11-01/versions/0002.json")
    assert {one.path.removeprefix(f"{store.root}/") for one in doomed} == (followed | before if parts else followed)
    of_newer = f"the states of {parts} newer parts, or of another fingerprint, are kept"
    assert (of_newer in {one.reason for one in doomed}) == bool(parts)
    for _ in range(2):
        remove_states(str(tmp_path), doomed, NOW, limits)
    days = ["2026-11-01", "2026-11-02", "2026-11-03"][-(parts or 3) :]
    assert [(one.part, one.newest, one.versions) for one in held_parts(str(tmp_path))] == [(day, 2, 1) for day in days]
    assert [store.newest(day)[1] for day in days] == [()] * len(days)


def test_a_version_that_is_damaged_keeps_all_files(tmp_path: Path) -> None:
    store = _store_with(tmp_path, 1, dt.timedelta(days=10))
    assert any("states/" in one.path for one in doomed_states(str(tmp_path), NOW, StatesLimits(parts=1)))
    damaged = Path(store.path("parts/2026-11-01/versions/0002.json"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert all("states/" not in one.path for one in doomed_states(str(tmp_path), NOW, StatesLimits(parts=1)))


def _begun(folder: Path, name: str) -> Path:
    run = folder / "runs" / name
    run.mkdir(parents=True)
    (run / "job.json").write_text("{}")
    return run


def test_a_prune_and_a_run_that_begins_beside_it_find_each_other(tmp_path: Path) -> None:
    store, limits = _store_with(tmp_path / "states", 3, dt.timedelta(days=99)), StatesLimits(parts=1)
    location = str(tmp_path / "states")
    first, second = _begun(tmp_path, "first"), _begun(tmp_path, "second")
    window, doomed = window_of(store), doomed_states(location, NOW, limits)
    assert pin(window, RunDirectory(str(first)))  # after the prune has looked
    versions = [one for one in doomed if "/versions/" in one.path]
    remove_states(location, versions, NOW, limits)
    assert not pin(window, RunDirectory(str(second))), "the versions are gone: it has to choose anew"
    remove_states(location, doomed, NOW, limits)
    there = {str(path.relative_to(str(store))) for path in Path(str(store)).glob("states/attempts/*/x.parquet")}
    assert {file.path for part in window.parts for file in part.base_states} <= there


@pytest.mark.parametrize("how", ["is cut", "cannot be read"])
def test_nothing_is_removed_that_a_damaged_pin_may_have_named(tmp_path: Path, how: str) -> None:
    store = _store_with(tmp_path, 1, dt.timedelta(days=99))
    assert pin(window_of(store), RunDirectory(str(_begun(tmp_path, "run"))))
    (damaged,) = Path(store.path("pins")).iterdir()
    content = damaged.read_bytes()
    damaged.unlink()
    damaged.write_bytes(content[:-9]) if how == "is cut" else damaged.mkdir()
    limits = StatesLimits(parts=1)
    doomed = doomed_states(str(tmp_path), NOW, limits)
    assert [one.path.rpartition("/")[2] for one in doomed] == ["0001.json"]
    with pytest.raises((DocumentError, RunDirectoryError)):
        remove_states(str(tmp_path), doomed, NOW, limits)


@pytest.mark.long
def test_prunes_at_once_end_well_and_remove_together_what_one_would(tmp_path: Path) -> None:
    """A version, a pin or a file of states may be gone when a prune looks at what it has listed."""
    limits = StatesLimits(parts=2)
    alone, store = (_pinned_by_runs_that_are_gone(tmp_path / name) for name in ("alone", "states"))
    remove_states(alone.root, doomed_states(alone.root, NOW, limits), NOW, limits)
    doomed = doomed_states(store.root, NOW, limits)
    looked = []

    def look() -> None:
        while _files_below(store) & {one.path for one in doomed}:
            looked.append(doomed_states(store.root, NOW, limits))

    with ThreadPoolExecutor(3) as threads:
        looking = [threads.submit(look) for _ in range(3)]
        for one in doomed:
            remove_states(store.root, [one], NOW, limits)
        for done in looking:
            done.result()
    assert len(looked) > 3
    for late in looked:
        remove_states(store.root, late, NOW, limits)
    remove_states(store.root, doomed_states(store.root, NOW, limits), NOW, limits)
    assert {path.removeprefix(store.root) for path in _files_below(store)} == {
        path.removeprefix(alone.root) for path in _files_below(alone)
    }


def _pinned_by_runs_that_are_gone(folder: Path) -> Storage:
    store = _store_with(folder / "states", 20, dt.timedelta(days=99))
    for number in range(20):
        run = _begun(folder, str(number))
        assert pin(window_of(store), RunDirectory(str(run)))
        (run / "job.json").unlink()
    for path in Path(store.path("pins")).iterdir():
        os.utime(path, ((NOW - dt.timedelta(days=99)).timestamp(),) * 2)
    return Storage(str(folder / "states"))


def _files_below(storage: Storage) -> set[str]:
    return {str(path) for path in Path(storage.root).rglob("*") if path.is_file()}
