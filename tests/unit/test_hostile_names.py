"""Paths and keys by somebody who means no good: nothing leads out of where it belongs, and keys are data."""

from __future__ import annotations

import datetime as dt
import html
import json
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skewless.documents.commit import inner_path
from skewless.documents.stage_report import LONGEST_HEAD_KEY, ReportWithoutTails, StageReport
from skewless.errors import SpecError
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.spec.part import Part, resolve_path
from skewless_airflow.web.rendering.words import LONGEST_KEY, shown_key
from tests.unit import synthetic
from tests.unit.hostile import fuzz, refused, require_sentence

DAY = dt.date(2026, 1, 31)
_PIECES = st.sampled_from([
    "..", ".", "/", "\\", "~", "%", "{", "}", "{date}", "{date:%Y}", "{date:..}", "{date:.}", "{date:%s}", "{date!r}",
    "{date.__class__}", "{0}", "$HOME", "*", "[", "]", "file:", "://", "\0", "\n", " ", "x", "\u202e", "\U0001f642",
])  # fmt: skip
#: All text that UTF-8 can hold, of odd characters more than of others.
KEYS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\n\r\t\\'\"<>&~:,{}%\u202e\ufeff\u2028"))
PATHS = st.lists(_PIECES | st.text(max_size=3), max_size=8).map("".join)


@fuzz(20)
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


@fuzz(20)
@given(KEYS)
@example("a" * 100_000)
@example("\U0001f642" * 200)
@example("\u202e" + "txt.exe")
@example("\n" * 200)
def test_a_shown_key_is_one_line_of_bounded_length_that_a_page_can_escape(key: str) -> None:
    shown = shown_key(key)
    assert shown
    assert shown.isprintable()
    assert len(shown) <= 10 * LONGEST_KEY + 10
    assert html.unescape(html.escape(shown)) == html.unescape(html.escape(shown, quote=False))
    if key and key.isprintable() and len(key) <= LONGEST_KEY:
        assert shown == key


@fuzz(10)
@given(st.dictionaries(KEYS, st.integers(1, 10_000), min_size=1, max_size=6))
@example({'","seen_tail":[1],"': 7})
def test_a_plan_routes_any_key_and_says_so_in_a_document(rows: dict[str, int]) -> None:
    assume(all(len(key) <= LONGEST_HEAD_KEY for key in rows))
    job = synthetic.job([sum(rows.values()), 1_000], waves=(1, 4), reducers=4)
    plan = first_plan(job)
    report = synthetic.report(plan, rows, {next(iter(rows)): 1})
    text = report.sealed().encode()
    assert StageReport.from_sealed(text) == report
    fields = report.model_dump() | {"histogram": report.histogram.model_dump() | {"seen_tail": (), "backlog_tail": ()}}
    assert ReportWithoutTails.from_sealed(text) == ReportWithoutTails(**fields)
    decision = plan_next_stage(job, plan, report)
    assert decision.next_plan is not None
    for key in rows:
        assert 0 <= decision.next_plan.task_of(key, 7) < len(decision.next_plan.tasks)
    assert json.loads(decision.to_json()) == json.loads(decision.model_dump_json())
    assert "\n" not in decision.sentence
