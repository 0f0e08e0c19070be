"""Keys are data: whatever their text, they are hashed, named and shown, and do nothing."""

from __future__ import annotations

import html
import json

import mmh3
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skewless.documents.stage_report import LONGEST_HEAD_KEY, ReportWithoutTails, StageReport
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.routing.hashing import KEY_SEED, bucket_hash, encode_columns, key_hash
from skewless_airflow.web.rendering.words import LONGEST_KEY, shown_key
from tests.unit import synthetic
from tests.unit.hostile import fuzz

#: All text that UTF-8 can hold, of odd characters more than of others.
KEYS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\n\r\t\\'\"<>&~:,{}%\u202e\ufeff\u2028"))


@fuzz(80)
@given(KEYS)
@example("")
@example("\0")
@example("abc")
@example("abcd")
@example("<img src=x onerror=alert(1)>")
def test_a_key_hashes_as_its_bytes_filled_to_four(key: str) -> None:
    raw = key.encode()
    filled = raw.ljust(-(-len(raw) // 4) * 4, b"\0")
    assert len(filled) % 4 == 0
    assert len(filled) - len(raw) < 4
    assert key_hash(key) == mmh3.hash(filled, KEY_SEED, signed=False)
    assert 0 <= bucket_hash(key) < 1 << 32


@fuzz(80)
@given(st.lists(st.none() | KEYS, min_size=1, max_size=4), st.lists(st.none() | KEYS, min_size=1, max_size=4))
@example(["a,1:b"], ["a", "b"])
@example([None], ["~"])
@example(["~,"], [None, None])
def test_keys_of_several_columns_are_never_taken_for_one_another(
    left: list[str | None], right: list[str | None]
) -> None:
    assert (encode_columns(left) == encode_columns(right)) == (left == right)
    assert encode_columns(left) + encode_columns(right) == encode_columns([*left, *right])


@fuzz(80)
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


@fuzz(30)
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
