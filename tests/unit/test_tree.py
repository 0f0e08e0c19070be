"""The tree of merged states over the parts of a window: whatever was kept or lost, a result is that of all parts."""

import datetime as dt
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.documents.commit import CommittedFile
from skewless.documents.window import PartVersion, SeenFile, WindowSpan
from skewless.run.directory import Attempt
from skewless.run.storage import file_checksum
from skewless.standing.states_retention import StatesLimits, doomed_states, remove_states
from skewless.standing.states_store import (
    STATES_STEP,
    Fingerprint,
    MergedPart,
    MergedParts,
    Numbered,
    StatesStore,
    merge_path,
    open_states,
    states_checksum,
    version_path,
)
from skewless.standing.tree import NightPlan, aligned_spans, cover, made_tonight, pieces_of, plan_night, spans_to_make
from tests.object_stores import BUCKET, as_client, object_server
from tests.tiers import mostly_long

#: Of each key, how often each file is in its state.
Counts = dict[str, Counter[str]]
LIMITS = StatesLimits(parts=9)


@given(first=st.integers(-50, 5000), length=st.integers(1, 1000))
def test_a_window_is_a_merge_of_at_most_twice_the_logarithm_of_its_parts(first: int, length: int) -> None:
    nodes = list(aligned_spans(range(first, first + length)))
    spans = cover((0, length), nodes)
    assert [at for span in spans for at in range(*span)] == list(range(length))
    assert len(spans) <= max(1, 2 * math.log2(length))
    assert len(nodes) <= length / 2, "they are half as many as the parts, at most"


@given(first=st.integers(0, 5000), length=st.integers(2, 1000), late=st.integers(0, 999))
def test_a_late_file_spoils_the_logarithm_of_the_parts_and_little_is_read_for_it(
    first: int, length: int, late: int
) -> None:
    at = late % length
    nodes = list(aligned_spans(range(first, first + length)))
    kept = {span for span in nodes if not span[0] <= at < span[1]}
    made = spans_to_make(nodes, kept, grows=True)
    assert len(made) <= math.log2(length)
    pieces = pieces_of(made, kept)
    assert len(pieces) <= (math.log2(length) + 1) * (math.log2(length) + 2) / 2
    assert pieces.get((at, at + 1), ()) == tuple(range(len(made)))


@given(places=st.sets(st.integers(0, 300), min_size=1, max_size=60), kept=st.sets(st.integers(0, 60)))
def test_nodes_are_made_of_pieces_that_are_read_once(places: set[int], kept: set[int]) -> None:
    nodes = list(aligned_spans(sorted(places)))
    known = {span for at, span in enumerate(nodes) if at in kept}
    made = spans_to_make(nodes, known, grows=True)
    pieces = pieces_of(made, known)
    assert all(one in known or one[1] - one[0] == 1 for one in pieces)
    for number, node in enumerate(made):
        own = sorted(piece for piece, within in pieces.items() if number in within)
        assert [at for span in own for at in range(*span)] == list(range(*node))
    read = [at for span in pieces for at in range(*span)]
    assert len(read) == len(set(read))


def test_nodes_that_leave_with_the_oldest_part_are_made_only_while_the_window_grows() -> None:
    nodes = list(aligned_spans(range(8)))
    assert spans_to_make(nodes, set(), grows=False) == [(2, 4), (6, 8), (4, 8)]
    assert spans_to_make(list(aligned_spans(range(1, 7))), set(), grows=False) == [(1, 3), (3, 5)]
    assert spans_to_make(nodes, {(4, 8)}, grows=True) == [(2, 4), (6, 8), (0, 8)]


def test_a_first_night_makes_what_windows_need_and_later_ones_the_rest() -> None:
    kept, made = set[tuple[int, int]](), list[list[tuple[int, int]]]()
    for night in range(40):
        held = {(first - night, end - night) for first, end in kept if first >= night}
        missing = spans_to_make(aligned_spans(range(night, night + 200)), held, grows=False)
        made.append(made_tonight(missing, held, [WindowSpan(length=200)], 200, grows=False))
        kept |= {(first + night, end + night) for first, end in made[-1]}
    assert sum(end - first for first, end in made[0]) < 1.2 * 200, "a state is merged into little more than one node"
    assert made[-1] == missing, "all others are there"


def merged(many: Sequence[Counts]) -> Counts:
    total: Counts = {}
    for states in many:
        for key, seen in states.items():
            total.setdefault(key, Counter()).update(seen)
    return total


class Nights:
    """Nights with a window of five parts, and the files of their states, which are written and read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        fingerprint = Fingerprint(shapes={})
        self.store: StatesStore = open_states(str(folder), fingerprint)
        self.store.begin(fingerprint)
        self._attempts = itertools.count()

    def write(self, states: Counts) -> tuple[CommittedFile, ...]:
        path = f"states/attempts/{next(self._attempts)}/states.json"
        full = Path(self.store.path(path))
        full.parent.mkdir(parents=True)
        full.write_text(json.dumps(states))
        size = full.stat().st_size
        checksum = file_checksum(self.store.fs, str(full))
        return (CommittedFile(kind="standing", path=path, rows=len(states), size_bytes=size, checksum=checksum),)

    def read(self, files: Sequence[CommittedFile]) -> Counts:
        for file in files:
            self.store.verify(file)
        loaded = [json.loads(Path(self.store.path(file.path)).read_text()) for file in files]
        return merged([{key: Counter(seen) for key, seen in one.items()} for one in loaded])

    def change(self, day: int, keys: Sequence[int], *, add: bool = False, states: bool = True) -> Numbered:
        """A part comes, is reduced anew, or is added to; without ``states`` only its files are other ones."""
        content = f"{day}-{next(self._attempts)}"
        seen = [SeenFile(path=content, size_bytes=1, ranks=(next(self._attempts),))]
        before = self.store.newest(part(day))[0]
        files = self.write({str(key): Counter([content]) for key in keys}) if states else ()
        if before is not None and (add or not states):
            seen, files = [*before.version.files, *seen], (*before.version.states, *files)
        rows = sum(file.rows for file in files)
        version = PartVersion(part=part(day), fingerprint="f", run=content, files=tuple(seen), rows=rows, states=files)
        return self.store.commit_all([version])[0]

    def plan(self, last: int) -> NightPlan | None:
        newest = {day: self.store.newest(part(day))[0] for day in range(last - 4, last + 1)}
        self.parts = [one for one in newest.values() if one is not None]
        if newest[last] is None:
            return None
        windows = [WindowSpan(length=1, first=len(self.parts) - 1), WindowSpan(length=5)]
        return plan_night(self.store, self.parts, [day for day, one in newest.items() if one], windows)

    def night(self, last: int) -> NightPlan | None:
        """Make what is planned, and keep it; the results are those of all parts."""
        plan = self.plan(last)
        if plan is None:
            return None
        files, whole = dict(plan.files), [self.read(one.version.states) for one in self.parts]
        for number, (name, span) in enumerate(plan.document.made.items()):
            pieces = [piece for piece, nodes in plan.pieces.items() if number in nodes]
            states = merged([self.read(plan.files[piece]) for piece in pieces])
            assert states == merged(whole[slice(*span)])
            files[name] = self.write(states)
            parts = tuple(
                MergedPart(part=one.version.part, states=states_checksum(one.version))
                for one in self.parts[slice(*span)]
            )
            self.store.keep_merges([MergedParts(fingerprint="f", run="r", parts=parts, rows=0, states=files[name])])
            assert name in self.store.merges()
        for window, names in plan.document.results.items():
            wanted = whole[-1:] if window == "1" else whole
            assert merged([self.read(files[name]) for name in names]) == merged(wanted)
        return plan

    def prune(self, days: int) -> list[str]:
        now = dt.datetime.now(tz=dt.UTC) + dt.timedelta(days=days)
        doomed = doomed_states(str(self.folder), now, LIMITS)
        remove_states(str(self.folder), doomed, now, LIMITS)
        return [one.path.removeprefix(f"{self.store.root}/") for one in doomed]


def part(day: int) -> str:
    return f"2026-10-{day:02}"


def some_nights(folder: Path) -> Nights:
    nights = Nights(folder)
    for day in range(1, 7):
        nights.change(day, [day % 3, 7])
        plan = nights.night(day)
        assert plan is not None
        assert not plan.document.passed_over, "nothing is damaged"
    return nights


def test_a_node_that_is_damaged_is_passed_over_with_a_sentence_and_made_anew(tmp_path: Path) -> None:
    nights = some_nights(tmp_path)
    plan = nights.night(6)
    assert plan is not None
    assert not plan.document.made, "all nodes of the night are kept"
    name = next(one for one in plan.document.results["5"][1:] if "+" in one)
    (file,) = nights.store.merge(name).states
    states = Path(nights.store.path(file.path))
    states.write_bytes(states.read_bytes().replace(b"1", b"2"))  # as long as it was
    plan = nights.night(6)
    assert plan is not None
    assert name in plan.document.made
    assert plan.document.passed_over[0].startswith(f"{name} (")
    assert "other content" in plan.document.passed_over[0]
    again = nights.plan(6)
    assert again is not None
    assert not again.document.made


def test_a_node_stands_for_states_and_not_for_the_number_of_a_version(tmp_path: Path) -> None:
    """Numbers begin anew if all versions of a part were removed; and compaction makes a version of the same states."""
    nights = some_nights(tmp_path)
    nights.change(5, [], states=False)
    plan = nights.night(6)
    assert plan is not None
    assert not plan.document.made
    for number in (1, 2):
        Path(nights.store.path(version_path(part(5), number))).unlink()
    assert nights.change(5, [0, 1, 2]).number == 1
    plan = nights.night(6)
    assert plan is not None
    assert all(first <= 3 < end for first, end in plan.document.made.values())
    assert plan.document.made


def aged(nights: Nights, path: str, days: float) -> None:
    moment = (dt.datetime.now(tz=dt.UTC) - dt.timedelta(days=days)).timestamp()
    os.utime(nights.store.path(path), (moment, moment))


def test_a_node_goes_when_the_states_that_it_is_of_are_not_kept_any_more(tmp_path: Path) -> None:
    nights = some_nights(tmp_path)
    before = nights.store.merges()
    nights.change(4, [1])
    nights.night(6)
    assert nights.prune(0) == [], "a run may read what was replaced"
    spoiled = {name for name in before if part(4) in {one.part for one in nights.store.merge(name).parts}}
    assert spoiled
    files = [file.path for name in spoiled for file in nights.store.merge(name).states]
    gone = nights.prune(8)
    assert {merge_path(name) for name in spoiled} <= set(gone)
    assert set(files) <= set(gone)
    assert spoiled.isdisjoint(nights.store.merges())
    plan = nights.plan(6)
    assert plan is not None
    assert not plan.document.made, "those of the newest states stay"
    for day in range(7, 16):
        nights.change(day, [1])
    assert not set(nights.prune(30)) & {merge_path(name) for name in before & spoiled}
    assert nights.store.merges() == set(), "nine newer parts are kept"


def test_a_node_goes_when_it_is_the_first_half_of_another(tmp_path: Path) -> None:
    nights = some_nights(tmp_path)
    for day in range(7, 10):
        nights.change(day, [1])
        nights.night(day)
    gone = {path.rpartition("-")[0] for path in nights.prune(8) if path.startswith("merges/")}
    assert gone == {f"merges/{part(4)}+1"}


def test_a_damaged_node_keeps_all_files_for_a_while_and_then_goes(tmp_path: Path) -> None:
    nights = some_nights(tmp_path)
    name = min(nights.store.merges())
    document = Path(nights.store.path(merge_path(name)))
    document.write_bytes(document.read_bytes()[:-9])
    unnamed = nights.write({})[0].path
    aged(nights, unnamed, 30)
    assert nights.prune(0) == []
    aged(nights, merge_path(name), 8)
    assert nights.prune(0)[:1] == [merge_path(name)]
    assert not Path(nights.store.path(unnamed)).exists()


def test_a_day_that_is_to_come_takes_no_place_of_those_that_are_kept(tmp_path: Path) -> None:
    nights = some_nights(tmp_path)
    files = nights.write({"7": Counter(["typo"])})
    nights.store.commit_all([
        PartVersion(part="2099-01-01", fingerprint="f", run="typo", files=(), rows=1, states=files)
    ])  # fmt: skip
    (Path(nights.store.root) / "parts" / f"{part(10)} copy").touch()
    for day in range(7, 11):
        nights.change(day, [1])
    gone = {path for path in nights.prune(8) if path.startswith("parts/")}
    assert gone == {version_path(part(1), 1)}, "nine that have come are kept, and the one to come is not one of them"


# Kept states that are damaged are passed over, whatever befell which file; they are on the disk before they count.

PART = "2026-11-20"
#: What may befall a file; a bit that turns within a page is found by who reads the page.
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "cut": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "flipped": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "empty": lambda _: b"",
}


@pytest.fixture(params=mostly_long(["disk", "object store"], "disk"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StatesStore]:
    if request.param == "disk":
        yield StatesStore(str(tmp_path / "kept" / "f"))
        return
    with object_server("localbucket", tmp_path / "server") as server, as_client(server.environment):
        yield StatesStore(f"s3://{BUCKET}/kept/f")


def files_of(store: StatesStore, ident: str) -> tuple[CommittedFile, ...]:
    attempt, names = Attempt(store, STATES_STEP, ident), ("data/a.parquet", "data/b.parquet")
    for name in names:
        path = f"{store.root}/{attempt.folder}/{name}"
        store.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with store.fs.open(path, "wb") as out:
            pq.write_table(pa.table({"c0": ["a", "b"], "rows": [1, 2]}), out)
    return tuple(attempt.described("standing", path, 2) for path in attempt.listed("data"))


def version_of(store: StatesStore, run: str, ident: str) -> PartVersion:
    seen = SeenFile(path="in", size_bytes=1, version=run, ranks=(0,))
    return PartVersion(part=PART, fingerprint="f", run=run, files=(seen,), rows=6, states=files_of(store, ident))


def test_a_version_of_which_any_file_is_damaged_is_passed_over(store: StatesStore) -> None:
    older, newer = (store.commit_all([version_of(store, run, run)])[0] for run in ("r1", "r2"))
    assert store.newest(PART) == (newer, ())
    for path in (version_path(PART, 2), *(file.path for file in newer.version.states)):
        whole = store.fs.cat_file(f"{store.root}/{path}")
        for kind, damaged in DAMAGES.items():
            if (path, kind) == (version_path(PART, 2), "missing"):
                continue  # such a version never was
            store.fs.rm(f"{store.root}/{path}")
            if (content := damaged(whole)) is not None:
                with store.fs.open(f"{store.root}/{path}", "wb") as out:
                    out.write(content)
            found, faults = store.newest(PART)
            assert found == older, (path, kind)
            assert len(faults) == 1, (path, kind)
            assert faults[0].startswith("version 2 cannot be used ("), (path, kind)
            # The run that made it begins again: a version that nobody can use does not count.
            again = store.commit_all([version_of(store, "r2", f"again-{kind}")])[0]
            assert again.number == 3, (path, kind)
            assert store.newest(PART) == (again, ())
            store.fs.rm(f"{store.root}/{version_path(PART, 3)}")
            with store.fs.open(f"{store.root}/{path}", "wb") as out:
                out.write(whole)
    assert store.commit_all([version_of(store, "r2", "late")])[0] == newer
    # A run that has read a damaged page says so.
    store.set_aside(PART, 2, "r3")
    assert store.newest(PART)[0] == older
    assert store.commit_all([version_of(store, "r2", "anew")])[0].number == 3


def test_states_and_their_names_are_on_the_disk_before_a_version_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StatesStore(str(tmp_path / "f"))
    version = version_of(store, "r", "x")
    noted = Path(store.path(version.states[0].path)).with_name(".a.parquet.crc")
    noted.write_bytes(b"by Hadoop")
    done, sync, link = list[str](), os.fsync, os.link

    def synced(handle: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        sync(handle)

    def linked(draft: Path, path: str) -> None:
        done.append(f"link {path}")
        link(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    number = store.commit_all([version])[0].number
    counts = done.index(f"link {store.path(version_path(PART, number))}")
    files = [noted, *(Path(store.path(file.path)) for file in version.states)]
    folders = [path for path in files[0].parents if path.is_relative_to(str(store))]
    assert {str(path) for path in (*files, *folders)} <= set(done[:counts])
    assert str(Path(store.path(version_path(PART, number))).parent) in done[counts:]
