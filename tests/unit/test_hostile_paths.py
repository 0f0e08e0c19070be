"""Paths, run ids and dates by somebody who means no good: nothing leads out of where it belongs."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skewless.documents.commit import inner_path
from skewless.errors import SpecError
from skewless.spec.part import Part, resolve_path
from skewless_airflow.run_store import safe_run_id
from tests.unit.hostile import fuzz, refused, require_sentence

DAY = dt.date(2026, 1, 31)
_PIECES = st.sampled_from([
    "..", ".", "/", "\\", "~", "%", "{", "}", "{date}", "{date:%Y}", "{date:..}", "{date:.}", "{date:%s}", "{date!r}",
    "{date.__class__}", "{0}", "$HOME", "*", "[", "]", "file:", "://", "\0", "\n", " ", "x", "\u202e", "\U0001f642",
])  # fmt: skip
PATHS = st.lists(_PIECES | st.text(max_size=3), max_size=8).map("".join)


@fuzz(80)
@given(PATHS, st.dates())
@example("{date:..}/x", DAY)
@example(".{date:.}/x", DAY)
@example("x/{date:%Y%}", DAY)
def test_a_dated_path_never_steps_up_and_is_refused_in_one_sentence(path: str, date: dt.date) -> None:
    if "\0" in path or not path.isprintable():
        return  # the spec's model has refused it
    try:
        found = resolve_path(path, Part(date), "spec, field input.path")
    except SpecError as err:
        require_sentence(err)
        return
    assert ".." not in re.split(r"[/\\]", found)
    assert "{date" not in found or "{date" in re.sub(r"\{\s*date[^{}]*\}", "", path)


@pytest.mark.parametrize("path", ["{date:..}/x", ".{date:.}/x", "a/{date:..}", "a\\{date:..}\\b"])
def test_a_form_of_dots_is_no_step_up(path: str) -> None:
    assert "a path without a step up" in refused(SpecError, lambda: resolve_path(path, Part(DAY), "spec"))


@fuzz(80)
@given(st.text(max_size=300) | PATHS)
@example("")
@example(".")
@example("..")
@example("../../etc/passwd")
@example("_hidden")
@example("a" * 1_000)
@example("manual__2026-11-20T02:00:00+00:00")
def test_a_run_id_is_one_folder_that_no_reader_passes_over(run_id: str) -> None:
    folder = safe_run_id(run_id)
    assert re.fullmatch(r"[A-Za-z0-9=-][A-Za-z0-9_.=-]{0,254}", folder)
    assert inner_path(folder)
    assert safe_run_id(folder) == folder, "a page takes the name of a folder for a run id"


@fuzz(80)
@given(PATHS, PATHS)
@example("a/b", "a-b")
@example("", "run-")
@example("a" * 300, "a" * 301)
def test_run_ids_that_differ_have_folders_that_differ(one: str, other: str) -> None:
    assert (safe_run_id(one) == safe_run_id(other)) == (one == other)


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("a", True), ("a/b.parquet", True), ("a/..b/c", True), ("kind=native/part-0.parquet", True), ("", False),
        ("/a", False), ("a/", False), ("a//b", False), (".", False), ("a/./b", False), ("..", False), ("a/../b", False),
        ("a\0", False), ("s3://a/b", False),
    ],
)  # fmt: skip
def test_what_leads_from_a_folder_to_something_in_it(path: str, inner: bool) -> None:
    assert inner_path(path) == inner
