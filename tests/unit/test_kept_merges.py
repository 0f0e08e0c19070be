"""Running merges in a real store: what was kept, lost, damaged or pruned, the result is that of all parts."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Algebra
from skewless.documents.window import PartVersion, SeenFile, WindowSpan
from skewless.errors import DocumentError
from skewless.run.directory import Attempt
from skewless.run.storage import file_checksum
from skewless.standing.fingerprint import Fingerprint
from skewless.standing.kept_merges import NightPlan, kept_merge, plan_night, unsettled
from skewless.standing.retention import StatesLimits, doomed_states, remove_states
from skewless.standing.store import (
    STATES_STEP,
    Numbered,
    StatesStore,
    borrow_states,
    dropped_path,
    merge_path,
    open_states,
    version_path,
)
from skewless.standing.window_choice import name_of
from tests.object_stores import BUCKET, as_client, object_server
from tests.tiers import mostly_long
from tests.unit.states import Counts, follow, merged

EXACT = {"n": Algebra(mergeable=True, ordered=False, invertible=True)}
FLOATS = {"mean": Algebra(mergeable=True, ordered=False)}
WAYS = ["merge all", "running merges", "subtract", "touched keys"]
LIMITS = StatesLimits(parts=9)


class Nights:
    """Nights with a window of five parts, and the files of their states, which are written and read."""

    def __init__(self, folder: Path, algebra: Mapping[str, Algebra] = EXACT) -> None:
        self.folder, self.algebra = folder, algebra
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

    def change(self, day: int, keys: Sequence[int], *, add: bool = False) -> Numbered:
        """A part comes, is reduced anew, or is added to."""
        content = f"{day}-{next(self._attempts)}"
        seen = [SeenFile(path=content, size_bytes=1, ranks=(next(self._attempts),))]
        files = self.write({str(key): Counter([content]) for key in keys})
        before = self.store.newest(part(day))[0] if add else None
        if before is not None:
            seen, files = [*before.version.files, *seen], (*before.version.states, *files)
        rows = sum(file.rows for file in files)
        return self.store.commit(
            PartVersion(part=part(day), fingerprint="f", run=content, files=tuple(seen), rows=rows, states=files)
        )

    def plan(self, last: int, preferred: str = "", held_parts: int = 9) -> NightPlan | None:
        found = [self.store.newest(part(day))[0] for day in range(last - 4, last + 1)]
        self.parts = [one for one in found if one is not None]
        if not self.parts or self.parts[-1].version.part != part(last):
            return None
        windows = [WindowSpan(length=1, first=len(self.parts) - 1), WindowSpan(length=5)]
        return plan_night(
            self.store, self.parts, windows, self.algebra,
            held_parts=held_parts, now=dt.datetime.now(tz=dt.UTC), preferred=preferred,
        )  # fmt: skip

    def follow(self, plan: NightPlan) -> None:
        """Do what the plan says; the result is that of all parts."""
        found = dict(plan.files)
        for step in plan.choice.steps:
            files = self.write(follow(step, lambda name: self.read(found[name])))
            found[step.makes] = files
            if step.keep:
                self.store.keep_merge(kept_merge(plan.choice, step, self.parts, files, "run"))
        whole = [self.read(one.version.states) for one in self.parts]
        assert self.read(found[plan.choice.results["5"]]) == merged(whole)
        assert self.read(found[plan.choice.results["1"]]) == whole[-1]
        for name in plan.choice.dropped:
            self.store.drop_merge(name, "run")

    def night(self, last: int, preferred: str = "") -> NightPlan:
        plan = self.plan(last, preferred)
        assert plan is not None
        self.follow(plan)
        return plan

    def prune(self, days: int) -> list[str]:
        """What a prune removes so many days from now."""
        now = dt.datetime.now(tz=dt.UTC) + dt.timedelta(days=days)
        doomed = doomed_states(str(self.folder), now, LIMITS)
        remove_states(str(self.folder), doomed, now, LIMITS)
        return [one.path.removeprefix(f"{self.store.root}/") for one in doomed]


def part(day: int) -> str:
    return f"2026-10-{day:02}"


def chosen(plan: NightPlan, window: str = "5") -> str:
    (action,) = (one.action for one in plan.choice.candidates if one.chosen and one.window == window)
    return action


KEYS = st.lists(st.integers(0, 5), max_size=4, unique=True)
EVENTS = st.one_of(
    st.tuples(st.just("night"), KEYS),
    st.tuples(st.just("night"), KEYS),
    st.tuples(st.sampled_from(["change", "add"]), KEYS, st.integers(0, 6)),
    st.tuples(st.just("backfill"), KEYS, st.integers(1, 6)),
    st.tuples(st.just("again"), KEYS),
    st.tuples(st.just("cut a document"), KEYS, st.integers(0, 5)),
    st.tuples(st.just("lose states"), KEYS, st.integers(0, 5)),
    st.tuples(st.just("prune"), KEYS, st.sampled_from([0, 8])),
)


def harm(nights: Nights, how: str, merge: str) -> None:
    """Damage a running merge that is not damaged yet."""
    with suppress(DocumentError):
        for file in nights.store.merge(merge).states if how == "lose states" else ():
            Path(nights.store.path(file.path)).unlink(missing_ok=True)
    if how == "cut a document":
        document = Path(nights.store.path(merge_path(merge)))
        document.write_bytes(document.read_bytes()[:-9])


@pytest.mark.parametrize("nights", [5, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("algebra", [EXACT, FLOATS], ids=["invertible", "not invertible"])
def test_whatever_became_of_running_merges_the_result_is_that_of_all_parts(
    algebra: Mapping[str, Algebra], nights: int
) -> None:
    ways: Counter[str] = Counter()

    @settings(max_examples=nights, phases=[Phase.generate], deadline=None)
    @given(preferred=st.sampled_from(["", *WAYS]), events=st.lists(EVENTS, min_size=8, max_size=20))
    def check(preferred: str, events: list[tuple[object, ...]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            nights, today = Nights(Path(folder), algebra), 5
            nights.change(today, [0])
            for event, keys, *number in events:
                assert isinstance(keys, list)
                back = number[0] if number else 0
                assert isinstance(back, int)
                if event == "night":
                    today += 1
                    nights.change(today, keys)
                    ways[chosen(nights.night(today, preferred))] += 1
                elif event == "again":
                    nights.night(today, preferred)
                elif event in {"change", "add"} and nights.store.newest(part(today - back))[0]:
                    nights.change(today - back, keys, add=event == "add")
                elif event == "backfill" and (plan := nights.plan(today - back, preferred)):
                    assert not any(step.keep for step in plan.choice.steps)
                    assert not plan.choice.dropped
                    nights.follow(plan)
                elif event == "prune":
                    nights.prune(back)
                elif event in {"cut a document", "lose states"} and (names := nights.store.merges()):
                    harm(nights, event, names[back % len(names)])
            nights.night(today, preferred)

    check()
    possible = set(WAYS) if algebra is EXACT else set(WAYS) - {"subtract"}
    assert nights < 60 or all(ways[way] > 5 for way in possible), ways


def three_nights(folder: Path, preferred: str = "subtract") -> Nights:
    """Nights of which the last one has a part that left."""
    nights = Nights(folder)
    for day in range(1, 7):
        nights.change(day, [day % 3, 7])
        if day > 3:
            nights.night(day, preferred)
    return nights


def test_a_running_merge_that_is_damaged_is_passed_over_with_a_sentence(tmp_path: Path) -> None:
    nights = three_nights(tmp_path)
    (name,) = nights.store.merges()
    nights.change(7, [1])
    plan = nights.plan(7, "subtract")
    assert plan is not None
    assert name in plan.choice.steps[0].add
    (file,) = nights.store.merge(name).states
    states = Path(nights.store.path(file.path))
    states.write_bytes(states.read_bytes().replace(b"1", b"2"))  # as long as it was
    plan = nights.night(7, "subtract")
    assert plan.choice.steps[0].add[0] == f"{part(3)}@1"
    assert plan.choice.passed_over[0].startswith(f"{name} (")
    assert "other content" in plan.choice.passed_over[0]


def test_states_that_a_prune_may_remove_at_any_time_are_not_subtracted(tmp_path: Path) -> None:
    nights = three_nights(tmp_path)
    nights.change(7, [1])
    few, enough = nights.plan(7, "subtract", held_parts=5), nights.plan(7, "subtract", held_parts=6)
    assert few is not None
    assert enough is not None
    assert not few.choice.steps[0].subtract
    assert enough.choice.steps[0].subtract == (f"{part(2)}@1",)
    nights.change(3, [1, 2])
    both = nights.plan(7, "subtract")
    assert both is not None
    assert both.choice.steps[0].subtract == (f"{part(2)}@1", f"{part(3)}@1")
    aged(nights, version_path(part(3), 2), 6)
    old = nights.plan(7, "subtract")
    assert old is not None
    assert not old.choice.steps[0].subtract


def test_a_number_that_a_version_is_given_again_is_another_version(tmp_path: Path) -> None:
    """All versions of a part were removed, and it was reduced anew: its first version is not the one in the merges."""
    nights = three_nights(tmp_path)
    Path(nights.store.path(f"parts/{part(4)}/versions/0001.json")).unlink()
    assert nights.change(4, [0, 1, 2]).number == 1
    nights.change(7, [1])
    plan = nights.night(7, "subtract")
    assert not plan.choice.steps[0].subtract


def aged(nights: Nights, path: str, days: float) -> None:
    moment = (dt.datetime.now(tz=dt.UTC) - dt.timedelta(days=days)).timestamp()
    os.utime(nights.store.path(path), (moment, moment))


def test_a_dropped_merge_stays_as_long_as_a_run_may_read_it(tmp_path: Path) -> None:
    nights = three_nights(tmp_path)
    dropped = sorted(set(nights.store.held_merges()) - set(nights.store.merges()))
    assert len(dropped) == 2
    for name in dropped:
        aged(nights, merge_path(name), 30)
    aged(nights, dropped_path(dropped[0]), 8)
    states = nights.store.merge(dropped[0]).states[0].path
    aged(nights, states, 30)
    (kept,) = nights.store.merges()
    aged(nights, merge_path(kept), 30)
    assert nights.prune(0) == [merge_path(dropped[0]), dropped_path(dropped[0]), states]
    assert nights.store.held_merges() == sorted({*dropped[1:], kept})
    nights.read(nights.store.merge(kept).states)


def test_a_damaged_merge_keeps_all_files_for_a_while_and_then_goes(tmp_path: Path) -> None:
    nights = three_nights(tmp_path)
    (name,) = nights.store.merges()
    document = Path(nights.store.path(merge_path(name)))
    document.write_bytes(document.read_bytes()[:-9])
    unnamed = nights.write({})[0].path
    aged(nights, unnamed, 30)
    assert nights.prune(0) == []
    aged(nights, merge_path(name), 8)
    assert nights.prune(0)[:1] == [merge_path(name)]
    assert not Path(nights.store.path(unnamed)).exists()


def test_merges_go_with_the_parts_that_are_kept(tmp_path: Path) -> None:
    """Nobody dropped them: the job has been given a shorter window, or its last night was killed."""
    nights = three_nights(tmp_path)
    (name,) = nights.store.merges()
    for day in range(7, 16):
        nights.change(day, [1])
    assert merge_path(name) in nights.prune(8)


def test_a_run_of_a_day_that_is_to_come_changes_nothing_for_the_nights_after_it(tmp_path: Path) -> None:
    """Somebody has written 2099 for 2026."""
    nights = three_nights(tmp_path)
    kept, now = nights.store.merges(), dt.datetime.now(tz=dt.UTC)
    files = nights.write({"7": Counter(["typo"])})
    nights.store.commit(
        PartVersion(part="2099-01-01", fingerprint="f", run="typo", files=(), rows=1, states=files)
    )  # fmt: skip
    (Path(nights.store.root) / "parts" / ".DS_Store").touch()
    typo, _ = nights.store.newest("2099-01-01")
    assert typo is not None
    plan = plan_night(nights.store, [typo], [WindowSpan(length=5)], EXACT, held_parts=9, now=now)
    assert not plan.choice.dropped
    nights.change(7, [1])
    plan = nights.night(7, "subtract")
    assert plan.choice.steps[0].subtract == (f"{part(2)}@1",)
    assert [one for one in nights.store.merges() if one not in kept] == [plan.choice.results["5"]]
    assert plan.choice.dropped == tuple(kept)
    assert not nights.store.newer_parts(part(7), now)
    assert nights.store.newer_parts("2098-12-31", now) == ["2099-01-01"]
    for day in range(8, 11):
        nights.change(day, [1])
    gone = {path for path in nights.prune(8) if path.startswith("parts/")}
    assert gone == {version_path(part(1), 1)}, "nine that have come are kept, and the one to come is not one of them"


def test_late_rows_are_expected_where_the_last_parts_had_some() -> None:
    def parts(*numbers: int) -> list[Numbered]:
        version = PartVersion(part="p", fingerprint="f", run="r", files=(), rows=0, states=())
        return [Numbered(number, version) for number in numbers]

    assert unsettled(parts(1)) == 0
    assert unsettled(parts(1, 1, 4, 1, 1)) == 0, "one late file"
    assert unsettled(parts(9, 9, 3, 3, 3, 3, 3, 2, 1)) == 3, "every part changes twice, on the two nights after its own"


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
    """Two files of states, as an attempt has written them."""
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
    older, newer = (store.commit(version_of(store, run, run)) for run in ("r1", "r2"))
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
            again = store.commit(version_of(store, "r2", f"again-{kind}"))
            assert again.number == 3, (path, kind)
            assert store.newest(PART) == (again, ())
            store.fs.rm(f"{store.root}/{version_path(PART, 3)}")
            with store.fs.open(f"{store.root}/{path}", "wb") as out:
                out.write(whole)
    assert store.commit(version_of(store, "r2", "late")) == newer
    # A run that has read a damaged page says so.
    store.drop_merge(name_of(((PART, 2),)), "r3")
    assert store.newest(PART)[0] == older
    assert store.commit(version_of(store, "r2", "anew")).number == 3


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
    number = store.commit(version).number
    counts = done.index(f"link {store.path(version_path(PART, number))}")
    files = [noted, *(Path(store.path(file.path)) for file in version.states)]
    folders = [path for path in files[0].parents if path.is_relative_to(str(store))]
    assert {str(path) for path in (*files, *folders)} <= set(done[:counts])
    assert str(Path(store.path(version_path(PART, number))).parent) in done[counts:]


def test_borrowed_states_are_the_users_own_and_follow_no_link_of_others(tmp_path: Path) -> None:
    kept = StatesStore(str(tmp_path / "kept" / "f"))
    kept.commit(version_of(kept, "r", "x"))
    document = Path(kept.path(version_path(PART, 1)))
    document.chmod(0o640)
    borrowed = tmp_path / "of a user" / "borrowed"
    borrow_states(str(tmp_path / "kept"), borrowed)
    assert stat.S_IMODE(borrowed.stat().st_mode) == 0o700
    assert stat.S_IMODE((borrowed / document.relative_to(tmp_path / "kept")).stat().st_mode) == 0o640
    mine = StatesStore(str(borrowed / "f"))
    mine.commit(version_of(mine, "s", "y"))
    assert (kept.numbers(PART), mine.numbers(PART)) == ([1], [1, 2]), (
        "what is added there is not added to the kept ones"
    )
    of_others = tmp_path / "of others"
    of_others.mkdir()
    planted = tmp_path / "planted"
    planted.symlink_to(of_others)
    with pytest.raises(FileExistsError):
        borrow_states(str(tmp_path / "kept"), planted)
    assert not list(of_others.iterdir())
