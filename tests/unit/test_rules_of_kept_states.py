"""Rules of kept states one by one, as tables: each row is a case that a wrong line would get wrong."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from skewless.documents.job import STATE_FORM, Unit
from skewless.documents.window import CountedFile, JobWindow, PartVersion, SeenFile, WindowPart, WindowSpan
from skewless.errors import DocumentError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part
from skewless.spec.reading import parse_spec
from skewless.standing.parts import FileName, FoundFile, Rewrite, follow_rewrites, next_version, plan_part, standing_for
from skewless.standing.states_retention import StatesLimits, doomed_states, pin, pins, remove_states
from skewless.standing.states_store import (
    Fingerprint,
    MergedPart,
    MergedParts,
    Numbered,
    StatesStore,
    code_alone,
    fingerprint_of,
    is_to_come,
    merge_path,
    node_name,
    open_states,
    version_path,
    why_anew,
)
from tests.unit.states import NOW, add, make_old, store_of, window_of

PART = "2026-11-20"
DAY, WEEK = dt.timedelta(days=1), dt.timedelta(days=7)
# What shapes a state.

SPEC: dict[str, Any] = {
    "name": "visits",
    "input": {
        "path": "/lake/date={date}",
        "format": "csv",
        "options": {"header": False},
        "columns": {"page": "string", "ms": "int"},
    },
    "window": 7,
    "key": "page",
    "aggregates": {"n": "count", "shape": {"function": "streaming_histogram", "column": "ms", "bins": 8}},
    "output": {"path": "marts/visits"},
}
HOURLY = {"input": {**SPEC["input"], "path": "/lake/date={date}/hour={hour}"}, "schedule": {"part": "hour"}}
SHAPES: dict[str, dict[str, Any]] = {
    "the key": {"key": "ms"},
    "a key of two columns": {"key": ["page", "ms"]},
    "the order of a key": {"key": ["ms", "page"]},
    "no text": {"input": {"path": SPEC["input"]["path"]}},
    "the format": {"input": {"path": SPEC["input"]["path"], "format": "orc"}},
    "the header": {"input": {**SPEC["input"], "options": {"header": True}}},
    "the delimiter": {"input": {**SPEC["input"], "options": {"header": False, "sep": ";"}}},
    "the columns of a file": {"input": {**SPEC["input"], "columns": {"before": "int", "page": "string", "ms": "int"}}},
    "the order of columns": {"input": {**SPEC["input"], "columns": {"ms": "int", "page": "string"}}},
    "an option": {"aggregates": {**SPEC["aggregates"], "shape": {**SPEC["aggregates"]["shape"], "bins": 9}}},
    "the column of an aggregate": {
        "aggregates": {"n": {"function": "count", "column": "ms"}, **dict([*SPEC["aggregates"].items()][1:])}
    },
    "the order of aggregates": {"aggregates": dict(reversed(SPEC["aggregates"].items()))},
    "a map": {"map": {"select": ["page", "ms"], "where": "ms > 0"}},
    "the condition of a map": {"map": {"select": ["page", "ms"], "where": "ms > 1"}},
    "the unit of parts": HOURLY,
}


def fingerprint(
    changed: dict[str, Any] | None = None, types: str = "string", code: str = "0",
    fields: dict[str, str] | None = None, inputs: dict[str, str] | None = None,
) -> Fingerprint:  # fmt: skip
    spec = parse_spec(yaml.safe_dump({**SPEC, **(changed or {})}, sort_keys=False))
    return fingerprint_of(spec, {"page": types}, {"count": code}, fields, inputs)


def test_everything_that_shapes_a_state_is_in_its_fingerprint() -> None:
    found = {what: fingerprint(changed) for what, changed in SHAPES.items()}
    found |= {"nothing": fingerprint(), "a type": fingerprint(types="int"), "code": fingerprint(code="1")}
    found |= {"a column of the table": fingerprint(fields={"ms": "2"})}
    assert len({one.name for one in found.values()}) == len(found), found
    assert fingerprint() == found["nothing"]


def test_a_changed_fingerprint_says_what_changed(tmp_path: Path) -> None:
    first = fingerprint()
    assert first.shapes["the form of states"] == str(STATE_FORM)
    assert why_anew(str(tmp_path), first) == "no states were kept before"
    for one in (first, fingerprint(types="date", code="9", inputs={"z": "int"})):  # the nearest one is told
        open_states(str(tmp_path), one).begin(one)
    changes = {
        "aggregate 'n'": fingerprint({"aggregates": {**SPEC["aggregates"], "n": {"function": "sum", "column": "ms"}}}),
        "the type of column 'page'": fingerprint(types="int"),
        "the code of 'count'": fingerprint(code="1"),
        "the type of input column 'ms'": fingerprint(inputs={"ms": "int"}),
        "the names and order of aggregates": fingerprint(SHAPES["the order of aggregates"]),
    }
    for what, other in changes.items():
        assert why_anew(str(tmp_path), other) == f"its states begin anew, as this changed: {what}"
    # What shapes no state: where the result goes, how rows are routed, how many parts there are.
    alike = {"window": 9, "output": {"path": "elsewhere"}, "routing": {"reducers": 9}, "quality": {}}
    assert fingerprint(alike) == first
    assert len({Fingerprint(shapes={"n": str(number)}).name for number in range(3_000)}) == 3_000
    assert changes["the type of input column 'ms'"].types_of_input == {"ms": "int"}
    assert first.types_of_input == {"page": "string"}
    assert [what for what, other in changes.items() if first.is_like(other)] == [
        "the type of column 'page'", "the type of input column 'ms'",
    ]  # fmt: skip


CODE = """'A page.'
def total(rows):
    'How many.'
    text = '''a  # no comment

b'''
    return sum(
        rows
    ), text
"""
WORDY = "# A licence.\n\n" + CODE.replace("rows):", "rows):  # of a day").replace("How many.", "How many: \\\n    all.")
WORDY = WORDY.replace("    return", "\n    # All of them.\n    return")


def test_words_about_code_shape_no_state_and_every_change_of_code_does() -> None:
    alone = code_alone(CODE.encode())
    assert alone == code_alone(WORDY.encode()) == code_alone(CODE.replace("\n", "\r\n").encode())
    changes = {
        "sum": "max", "        rows\n": "        rows[1:]\n",
        "a  # no comment": "a  # a comment", "comment\n\nb": "comment\nb", "    return": "\treturn",
        "'How many.'": "'How many.'; rows = rows[1:]", "    'How": "    f'How",
    }  # fmt: skip
    changed = {code_alone(CODE.replace(before, after).encode()) for before, after in changes.items()}
    assert len(changed - {alone}) == len(changes)
    assert code_alone(b"print 1\xff  # 2") == "print 1\\xff  # 2", "what cannot be parsed counts as it is"


def test_a_version_has_a_number_above_all_that_were_given(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    assert [add(store, f"r{number}", PART).number for number in (1, 2, 3)] == [1, 2, 3]
    for number in (1, 2):  # a prune has removed them
        Path(store.path(version_path(PART, number))).unlink()
    assert add(store, "r4", PART).number == 4
    assert add(store, "r4", PART).number == 4
    assert add(store, "r4", "2026-11-21").number == 1

    class Slow(StatesStore):
        def numbers(self, part: str) -> list[int]:
            return super().numbers(part)[:1]

    assert add(Slow(str(store)), "r5", PART).number == 5
    assert (newest := store.newest(PART)[0]) is not None
    assert (newest.number, newest.version.run) == (5, "r5")


def test_a_version_or_node_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, "r", PART)
    Path(store.path("parts/2026-11-21/versions")).mkdir(parents=True)
    Path(store.path(version_path(PART, 1))).rename(store.path(version_path("2026-11-21", 1)))
    with pytest.raises(DocumentError, match="a version of part 2026-11-21"):
        store.version("2026-11-21", 1)
    assert store.newest("2026-11-21")[0] is None
    merged = [MergedPart(part=day, states="0" * 64) for day in ("2026-11-19", PART, "2026-11-21")]
    one, other = (
        MergedParts(fingerprint="f", run="r", parts=tuple(parts), rows=2, states=())
        for parts in (merged[:2], merged[1:])
    )
    store.keep_merges([one])
    names = [node_name(node.parts) for node in (one, other)]
    Path(store.path(merge_path(names[0]))).rename(store.path(merge_path(names[1])))
    with pytest.raises(DocumentError, match=r"merged states 2026-11-20\+1"):
        store.merge(names[1])


@pytest.mark.parametrize(
    ("part", "now", "to_come"),
    [
        ("2026-11-21", "2026-11-20T00:00+00:00", False),  # somewhere it is the 21st already
        ("2026-11-22", "2026-11-20T23:59+00:00", True),
        ("2026-11-21T23", "2026-11-20T00:00+00:00", False),
        ("2026-11-22", "2026-11-21T01:00+14:00", True),  # in UTC it is the 20th
        ("2026-11-22", "2026-11-20T20:00-10:00", False),  # in UTC it is the 21st
    ],
)
def test_a_part_is_to_come_if_it_is_in_every_zone(part: str, now: str, to_come: bool) -> None:
    assert is_to_come(part, dt.datetime.fromisoformat(now)) is to_come


def version_with(*names: str, rows: int = 30) -> Numbered:
    files = tuple(SeenFile(path=name, size_bytes=1, version=name, ranks=(at * 256,)) for at, name in enumerate(names))
    return Numbered(4, PartVersion(part=PART, fingerprint="f", run="r", files=files, rows=rows, states=()))


def planned(known: Numbered | None, found: str, *, uncounted: str = "", changed: str = "") -> WindowPart:
    part, _ = plan_part(
        Part.named(PART),
        [FoundFile(name, 1, name) for name in found],
        known,
        lambda paths: [Unit(path=path, rows=10, size_bytes=1, counted=path not in uncounted) for path in paths],
        lambda _, now: "other content" if now.path in changed else "",
    )
    return part


@pytest.mark.parametrize(
    ("known", "found", "more", "late_rows", "before", "base", "reread", "way"),
    [
        (None, "ab", {}, 0, 0, 0, 0, "new"),
        ("ab", "ab", {}, 0, 30, 30, 0, "reused"),
        ("ab", "abc", {}, 10, 30, 30, 0, "added to"),
        ("ab", "abcd", {"uncounted": "d"}, None, 30, 30, 0, "added to"),
        ("ab", "abc", {"changed": "a"}, 20, 30, 0, 1, "reduced anew"),  # b is read, too, and was not late
        ("ab", "a", {}, 0, 30, 0, 1, "reduced anew"),
    ],
    ids=["new", "unchanged", "added", "added, not counted", "replaced and added", "removed"],
)
def test_rows_of_a_part_are_late_if_their_files_came_or_changed(
    known: str | None, found: str, more: dict[str, str], late_rows: int | None, before: int, base: int, reread: int,
    way: str,
) -> None:  # fmt: skip
    part = planned(version_with(*known) if known else None, found, **more)
    assert (part.late_rows, part.before_rows, part.base_rows) == (late_rows, before, base)
    assert (part.reread, part.way) == (reread, way)


def test_a_part_without_room_between_its_files_is_made_anew_and_says_so() -> None:
    full = version_with("a", "c")
    close = full.version.model_copy(
        update={"files": tuple(one.model_copy(update={"ranks": (at,)}) for at, one in enumerate(full.version.files))}
    )
    part = planned(full._replace(version=close), "abc")
    assert (part.base, part.base_rows, len(part.ranks)) == (None, 0, 3)
    assert part.reasons[-1] == "there was no place left between the files before and after them"


@pytest.mark.parametrize(
    ("rewrite", "cut", "files", "came"),
    [
        (("ab", "x"), "x", "x", 1),
        (("ab", "bx"), "x", "bx", 1),
        (("b", "x"), "x", "ax", 1),  # a was removed before: it stays in the version, and the part is made anew
        (("ab", "x"), "", "ab", 0),  # the new file cannot be opened
    ],
)
def test_states_follow_their_rows_into_other_files(rewrite: tuple[str, str], cut: str, files: str, came: int) -> None:
    known = version_with("a", "b")
    before, after = (frozenset(FileName(name, name) for name in names) for names in rewrite)
    followed, count = follow_rewrites(
        known, [Rewrite(before, after)],
        lambda paths: [Unit(path=path, rows=1, size_bytes=7, version=path) for path in paths if path in cut],
    )  # fmt: skip
    assert ("".join(file.path for file in followed.version.files), count) == (files, came)
    assert {file.size_bytes for file in followed.version.files if file.path == "x"} <= {7}


def test_the_version_of_the_runs_own_part_says_which_late_files_were_left_out() -> None:
    def left(name: str) -> tuple[CountedFile, ...]:
        return (CountedFile(path=name, size_bytes=1, version="v", rows=3),)

    parts = [WindowPart(name=name, place=at, left_out=left(name)) for at, name in enumerate(("2026-11-19", PART))]
    window = JobWindow(store="s", fingerprint="f", shapes={}, windows=(WindowSpan(),), parts=tuple(parts))
    versions = [next_version(window, part, "r", (), 0) for part in parts]
    assert [[file.path for file in one.left_out] for one in versions] == [[], ["2026-11-19", PART]]


def test_a_pin_names_its_run_wherever_a_prune_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path / "states")
    add(store, "r", PART, "states/attempts/1/x.parquet")
    (tmp_path / "here" / "run").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here" / "run" / "job.json").write_text("{}")
    monkeypatch.chdir(tmp_path / "here")
    assert pin(window_of(store), RunDirectory("run"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pins(store, NOW + WEEK * 9, WEEK) == ({"states/attempts/1/x.parquet"}, [])


@pytest.mark.parametrize(
    ("has", "age", "needed"),
    [
        ((), WEEK, True), ((), WEEK + DAY, False),
        (("job.json",), WEEK * 9, True), (("job.json", "result/COMMIT.json"), DAY, False),
    ],
    ids=["about to begin", "never begun", "under way", "has its result"],
)  # fmt: skip
def test_a_pin_holds_while_its_run_may_read_the_states(
    tmp_path: Path, has: Sequence[str], age: dt.timedelta, needed: bool
) -> None:
    store = store_of(tmp_path / "states")
    add(store, "r", PART, "states/attempts/1/x.parquet")
    assert pin(window_of(store), RunDirectory(str(tmp_path / "run")))
    for name in has:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("{}")
    (pinned,) = Path(store.path("pins")).iterdir()
    pinned.with_name(".DS_Store").touch()
    make_old(store, age, str(pinned.relative_to(str(store))))
    files, released = pins(store, NOW, WEEK)
    assert (bool(files), bool(released)) == (needed, not needed)


def test_a_run_has_pinned_nothing_if_one_version_is_gone_or_is_another(tmp_path: Path) -> None:
    store = store_of(tmp_path / "states")
    for day in ("2026-11-19", PART):
        add(store, "r", day, f"states/attempts/{day}/x.parquet")
    window = window_of(store)
    assert pin(window, RunDirectory(str(tmp_path / "a")))
    Path(store.path(version_path(PART, 1))).unlink()
    assert not pin(window, RunDirectory(str(tmp_path / "b")))
    assert add(store, "other", PART, "states/attempts/other/x.parquet").number == 1
    assert not pin(window, RunDirectory(str(tmp_path / "c")))


#: What is removed of two versions of a day, each with a file, and of a file that no version names.
LIMITS = StatesLimits(parts=1)


def scene(folder: Path, age: dt.timedelta = WEEK * 9) -> StatesStore:
    store = store_of(folder)
    for number in (1, 2):
        add(store, f"r{number}", PART, f"states/attempts/{number}/x.parquet")
    for name in ("3/x.parquet", "2/.x.parquet.crc"):
        path = Path(store.path(f"states/attempts/{name}"))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"four")
    make_old(store, age)
    return store


def removed(folder: Path, limits: StatesLimits = LIMITS) -> list[str]:
    doomed = doomed_states(str(folder), NOW, limits)
    return [one.path.partition("/states/" if "/states/" in one.path else "/parts/")[2] for one in doomed]


def test_a_prune_removes_versions_before_the_files_that_they_name(tmp_path: Path) -> None:
    store = scene(tmp_path)
    assert removed(tmp_path) == [f"{PART}/versions/0001.json", "attempts/1/x.parquet", "attempts/3/x.parquet"]
    assert [one.size_bytes for one in doomed_states(str(tmp_path), NOW, LIMITS)][1:] == [12, 4]
    remove_states(str(tmp_path), doomed_states(str(tmp_path), NOW, LIMITS)[::-1], NOW, LIMITS)
    assert store.numbers(PART) == [2]
    assert not Path(store.path("states/attempts/1/x.parquet")).exists()


@pytest.mark.parametrize(
    ("young", "left"),
    [
        (["states/attempts/3/x.parquet"], {"attempts/3/x.parquet"}),
        ([version_path(PART, 2)], {f"{PART}/versions/0001.json", "attempts/1/x.parquet"}),
    ],
    ids=["a file of a merge under way", "a version that came lately"],
)
def test_what_came_lately_keeps_what_somebody_may_read(tmp_path: Path, young: list[str], left: set[str]) -> None:
    store = scene(tmp_path)
    whole = set(removed(tmp_path))
    make_old(store, WEEK, *young)
    assert whole - set(removed(tmp_path)) == left


def test_what_says_that_states_are_damaged_goes_when_it_is_old(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, "r", PART)
    store.set_aside(PART, 1, "r")
    for age, gone in ((WEEK, 0), (WEEK + DAY, 1)):
        make_old(store, age)
        doomed = doomed_states(str(tmp_path), NOW, LIMITS)
        assert [one.reason for one in doomed] == ["the damage was found long ago"] * gone


@pytest.mark.parametrize(
    ("ages", "goes"),
    [((31, 1), ["old"]), ((30, 1), []), ((90, 40), ["old"]), ((40, 40), [])],
    ids=["unused for a month", "unused for less", "both old, one older", "both as old"],
)
def test_states_of_another_fingerprint_go_if_others_were_added_to_since(
    tmp_path: Path, ages: tuple[int, int], goes: list[str]
) -> None:
    for name, age in zip(("old", "new"), ages, strict=True):
        add(store_of(tmp_path, name), "r", PART)
        make_old(store_of(tmp_path, name), age * DAY)
    doomed = [one.path for one in doomed_states(str(tmp_path), NOW, StatesLimits(parts=None))]
    assert [name for name in ("old", "new") if any(str(store_of(tmp_path, name)) in path for path in doomed)] == goes


# Compaction: states of old files stand for the new ones, just where these hold the same rows.


def files(names: str) -> frozenset[FileName]:
    return frozenset(FileName(name, "") for name in names)


def names(found: frozenset[FileName]) -> str:
    return "".join(sorted(one.path for one in found))


@pytest.mark.parametrize(
    ("known", "rewrites", "covered", "lost"),
    [
        pytest.param("abc", [("abc", "xc")], "cx", "", id="of known files alone"),
        pytest.param("abc", [("abcn", "xn")], "x", "", id="beside a new file"),
        pytest.param("abc", [("abc", "xc"), ("xcn", "yn")], "y", "", id="twice"),
        pytest.param("a", [("amn", "ax")], "a", "", id="of new files alone"),
        pytest.param("ab", [("abn", "x")], "", "ab", id="of known and new files"),
        pytest.param("ab", [("abn", "bx")], "b", "a", id="of a known and a new file"),
        pytest.param("abc", [("bc", "x")], "x", "a", id="after a file was removed"),
        pytest.param("a", [("a", "ax")], "a", "", id="new rows"),
    ],
)
def test_a_rewrite_is_followed_unless_it_mixes_known_and_new_files(
    known: str, rewrites: list[tuple[str, str]], covered: str, lost: str
) -> None:
    found = standing_for(files(known), [Rewrite(files(before), files(after)) for before, after in rewrites])
    assert (names(found.covered), names(found.lost)) == (covered, lost)


def test_more_deletes_in_a_file_are_another_file() -> None:
    known = frozenset({FileName("a", "table:")})
    now = frozenset({FileName("a", "table:1")})
    assert standing_for(known, [Rewrite(now, files("x"))]).lost == known


@given(st.data())
def test_what_is_covered_and_not_lost_has_just_the_known_rows(data: st.DataObject) -> None:
    """A table whose files are sets of rows, and commits of all kinds, of which some rewrites are forgotten."""
    contents: dict[FileName, frozenset[int]] = {}
    rows = 0

    def new(content: frozenset[int]) -> FileName:
        name = FileName(f"f{len(contents)}", "")
        contents[name] = content
        return name

    def some(table: set[FileName]) -> set[FileName]:
        return set(data.draw(st.lists(st.sampled_from(sorted(table)), unique=True))) if table else set()

    table: set[FileName] = set()
    known: frozenset[FileName] | None = None
    rewrites = []
    for step in range(data.draw(st.integers(1, 12))):
        if step == 3:
            known = frozenset(table)
        before = frozenset(table)
        what = data.draw(st.sampled_from(["append", "remove", "rewrite", "rewrite"]))
        if what == "append":
            table.add(new(frozenset({rows, rows + 1})))
            rows += 2
        elif what == "remove":
            table -= some(table)
        else:
            old = some(table)
            table -= old
            table |= {new(frozenset().union(*(contents[one] for one in old)))} if old else set()
            if known is not None and data.draw(st.integers(0, 4)):
                rewrites.append(Rewrite(before, frozenset(table)))
    found = standing_for(known or frozenset(), rewrites)
    if not found.lost and known is not None and found.covered <= table:
        kept = [row for one in found.covered for row in contents[one]]
        assert sorted(kept) == sorted(row for one in known for row in contents[one])
    assert not found.covered & found.lost
