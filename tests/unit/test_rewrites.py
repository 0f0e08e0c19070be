"""Compaction: states of old files stand for the new ones, just where these hold the same rows."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from skewless.standing.changes import FileName, Rewrite, standing_for


def files(names: str) -> frozenset[FileName]:
    return frozenset(FileName(name, "") for name in names)


def names(found: frozenset[FileName]) -> str:
    return "".join(sorted(one.path for one in found))


def followed(known: str, *rewrites: tuple[str, str]) -> tuple[str, str]:
    found = standing_for(files(known), [Rewrite(files(before), files(after)) for before, after in rewrites])
    return names(found.covered), names(found.lost)


def test_a_rewrite_of_known_files_alone_is_followed() -> None:
    assert followed("abc", ("abc", "xc")) == ("cx", "")
    assert followed("abc", ("abcn", "xn")) == ("x", "")
    assert followed("abc", ("abc", "xc"), ("xcn", "yn")) == ("y", "")


def test_a_rewrite_of_new_files_alone_leaves_the_known_ones() -> None:
    assert followed("a", ("amn", "ax")) == ("a", "")


def test_a_rewrite_that_mixes_known_and_new_files_cannot_be_followed() -> None:
    assert followed("ab", ("abn", "x")) == ("", "ab")
    assert followed("ab", ("abn", "bx")) == ("b", "a")


def test_a_file_that_was_removed_before_a_rewrite_is_lost() -> None:
    assert followed("abc", ("bc", "x")) == ("x", "a")


def test_new_files_for_none_are_new_rows() -> None:
    assert followed("a", ("a", "ax")) == ("a", "")


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
