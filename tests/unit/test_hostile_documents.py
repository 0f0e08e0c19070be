"""Stored documents that were cut, changed or made up, odd paths and keys: each is read as what it says, or refused."""

import datetime as dt
import html
import json
import re
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skewless.document import LARGEST_COUNT, Document
from skewless.documents.commit import StepCommit, inner_path
from skewless.documents.job import Job
from skewless.documents.ledger import balance
from skewless.documents.stage_report import LONGEST_HEAD_KEY, Decision, ReportWithoutTails, StageReport
from skewless.errors import DocumentError, SkewlessError, SpecError
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.publication.records import Publication
from skewless.replay import replay
from skewless.routing.plan import RoutingPlan
from skewless.spec.part import Part, resolve_path
from skewless_airflow.web.rendering import LONGEST_KEY, shown_key
from skewless_airflow.web.rendering import key as in_html
from tests.unit import synthetic
from tests.unit.hostile import as_json, fuzz, miscounted, mutated, refused, require_sentence
from tests.unit.test_documents import samples

SAMPLES = samples()
KINDS: dict[str, type[Document]] = {name: type(document) for name, document in SAMPLES.items()}


def small(tree: Any) -> Any:
    """The tails cut to few slots, or every example would be a page of zeros; and no key of ten thousand letters."""
    if isinstance(tree, dict):
        return {name[:20]: small(value) for name, value in tree.items()}
    return [small(one) for one in tree[:8]] if isinstance(tree, list) else tree


RAW = {name: small(json.loads(document.to_json())) for name, document in SAMPLES.items()}


def read(kind: type[Document], text: bytes) -> Document | None:
    try:
        found = kind.from_json(text, where="run/x.json")
    except DocumentError as err:
        require_sentence(err)
        return None
    assert kind.from_json(found.to_json()) == found
    assert kind.from_json(found.to_json()).to_json() == found.to_json()
    assert kind.from_sealed(found.sealed().encode()) == found
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_document_goes_both_ways_or_is_refused_in_one_sentence(name: str) -> None:
    @fuzz()
    @given(mutated(RAW[name]))
    def changed(tree: Any) -> None:
        found = read(KINDS[name], as_json(tree))
        if isinstance(found, RoutingPlan):
            _use(found)

    changed()


def _use(plan: RoutingPlan) -> None:
    tasks = len(plan.tasks)
    for key, origin in ((None, 7), ("", 2**62), ("a", 0), (next(iter(plan.head), "b"), 12345)):
        assert 0 <= plan.task_of(key, origin) < tasks
    assert len(plan.slot_tasks) == len(plan.slot_factors) == 1 << plan.ring.ring_bits


@fuzz()
@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=60))
@example("Job", b"\xff\xfe{\x00}\x00")
@example("Job", b"[" * 100_000)
@example("Job", b'{"a":' * 100_000)
@example("Decision", b'{"stage":' + b"9" * 5_000 + b"}")
@example("Decision", b'{"version":' + b"9" * 5_000 + b"}")
@example("StageReport", b'{"\\ud800":1}')
def test_any_bytes_are_refused_in_one_sentence(name: str, text: bytes) -> None:
    assert read(KINDS[name], text) is None
    with pytest.raises(DocumentError) as raised:
        KINDS[name].from_sealed(text, where="run/x.json")
    require_sentence(raised.value)


@pytest.mark.parametrize("name", KINDS)
def test_a_field_that_is_given_twice_counts_once(name: str) -> None:
    """As every reader of JSON has it, the last one; a stored document with one has lost its seal."""
    text = SAMPLES[name].to_json().rstrip("\n").removesuffix("}") + ',"version":1,"version":1}'
    assert KINDS[name].from_json(text) == SAMPLES[name]
    refused(DocumentError, lambda: KINDS[name].from_sealed(text.encode()))


def edited(name: str, **fields: Any) -> bytes:
    return json.dumps({**json.loads(SAMPLES[name].to_json()), **fields}).encode()


RING = {"ring_bits": 12, "tokens": {"0": 64, "1": 64}}


def files_of(*files: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [file[name] for file in files] for name in ("kind", "path", "rows", "size_bytes", "checksum")}


FILE = {"kind": "native", "path": "stages/0000/attempts/a/0.parquet", "rows": 1, "size_bytes": 1, "checksum": "0" * 64}


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("RoutingPlan", {"ring": {**RING, "tokens": {"0": 10**12}}}, "at most 8,388,608 tokens together, but got"),
        ("RoutingPlan", {"ring": {**RING, "tokens": {"999999999999": 1}}}, "reducers below 1,048,576"),
        ("RoutingPlan", {"ring": {**RING, "ring_bits": 60}}, "at most 20, but got 60"),
        ("RoutingPlan", {"factors": {"0": 2**60}, "expected_rows": []}, "at most 1,048,576 tasks"),
        ("RoutingPlan", {"share_salt": 2**31}, "field share_salt: expected less than 2147483648"),
        ("RoutingPlan", {"budget_rows": 2**63}, "field budget_rows: expected at most"),
        ("RoutingPlan", {"waves": [0, 10**12]}, "expected a range of waves"),
        ("RoutingPlan", {"waves": [2, 1]}, "expected a range of waves"),
        ("StageReport", {"processed_rows": 2**63}, "field processed_rows: expected at most"),
        ("StageReport", {"waves": [-1, 1]}, "expected a range of waves"),
        ("StageReport", {"stage": 10_000}, "field stage: expected at most 9999"),
        ("StepCommit", {"files": files_of(FILE, FILE)}, "expected different files of stages/0000/attempts/"),
        ("StepCommit", {"files": files_of({**FILE, "path": "../../../etc/passwd"})}, "a path below the run directory"),
        ("StepCommit", {"files": files_of({**FILE, "path": "/etc/passwd"})}, "a path below the run directory"),
        ("StepCommit", {"files": files_of({**FILE, "path": "stages/0001/attempts/a/0.parquet"})}, "different files of"),
        ("StepCommit", {"files": files_of({**FILE, "checksum": "x" + "0" * 64})}, "checksum.0: expected a string"),
        ("StepCommit", {"counts": {"rows": -1}}, "field counts.rows: expected at least 0"),
        ("StepCommit", {"attempt": "../b", "files": files_of()}, "names of folders"),
        ("StepCommit", {"step": "../stages/0000", "files": files_of()}, "names of folders"),
        ("Publication", {"rows": 1e300}, "field rows: expected"),
        ("Job", {"key_types": {}}, "expected a type of each key column, ['key'], but got []"),
        ("Job", {"algebra": {}}, "expected the algebra of each aggregate, ['occurrences'], but got []"),
        ("Job", {"x" * 10_000: 1}, "there is no such field"),
        ("Job", {"a\nb": 1}, "field a\\nb: there is no such field"),
        ("Job", {"version": [1] * 10_000}, "expected Job version 1, but got version [1, 1,"),
    ],
)  # fmt: skip
def test_what_would_take_all_memory_or_lead_elsewhere_is_refused(name: str, fields: Any, said: str) -> None:
    tracemalloc.start()
    try:
        assert said in refused(DocumentError, lambda: KINDS[name].from_json(edited(name, **fields)))
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_the_largest_count_is_a_number_that_every_reader_of_json_can_hold() -> None:
    assert float(LARGEST_COUNT) == LARGEST_COUNT
    found = read(Publication, edited("Publication", rows=LARGEST_COUNT))
    assert isinstance(found, Publication)
    assert found.rows == LARGEST_COUNT
    assert read(Publication, edited("Publication", rows=LARGEST_COUNT + 1)) is None


# Documents that are right one by one, and not of one run.

#: Most are wrong in one of the three alone, so that somebody sees it who holds them to one another.
_GOOD = st.sampled_from([{0, 1}, {0, 2}, {1, 2}, {0}, {1}, {2}, set()])

_JOB, _REPORT = SAMPLES["Job"], SAMPLES["StageReport"]
assert isinstance(_JOB, Job)
_FIRST_PLAN = first_plan(_JOB)
_PLAN = small(json.loads(_FIRST_PLAN.to_json()))
_ANY_JOB = mutated(RAW["Job"], 2) | miscounted(RAW["Job"])
_ANY_REPORT = mutated(RAW["StageReport"], 2) | miscounted(RAW["StageReport"])
_ANY_PLAN = mutated(_PLAN, 2) | miscounted(_PLAN)


@fuzz(25)
@given(_ANY_JOB, _ANY_REPORT, _ANY_PLAN, _GOOD)
def test_the_planner_decides_or_refuses_whatever_it_is_given(job: Any, report: Any, plan: Any, good: set[int]) -> None:
    """What is edited by hand may be whole, and the seal made right again."""
    tails = {"seen_tail": [0] * 4096, "backlog_tail": [0] * 4096}
    if isinstance(report.get("histogram"), dict):
        report["histogram"] |= tails
    texts = [as_json(job), as_json(report), as_json(plan)]
    kinds: list[type[Document]] = [Job, StageReport, RoutingPlan]
    unharmed: list[Document] = [_JOB, _REPORT, _FIRST_PLAN]
    found = [unharmed[at] if at in good else read(kind, texts[at]) for at, kind in enumerate(kinds)]
    if None in found:
        return
    of, seen, by = found
    assert isinstance(of, Job)
    assert isinstance(seen, StageReport)
    assert isinstance(by, RoutingPlan)
    try:
        decision = plan_next_stage(of, by, seen)
    except SkewlessError as err:
        require_sentence(err)
    else:
        read(Decision, decision.to_json().encode())
    with suppress(SkewlessError):
        assert balance(of, [seen], 500).balanced in {True, False}
    with suppress(SkewlessError):
        replay(of, [seen], "static", by)


def test_a_count_that_a_commit_lacks_is_asked_for_in_a_sentence() -> None:
    commit = StepCommit(step="stages/0000", attempt="a", files=(), counts={"rows": 3})
    assert commit.count("rows") == 3
    said = refused(DocumentError, lambda: commit.count("backlog"))
    assert said == "commit of stages/0000: expected a count of backlog, but got none; run the step again."


# Paths and keys by somebody who means no good: nothing leads out of where it belongs, and keys are data.

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
    columns = f"{len(key.encode())}:{key},~,"
    assert in_html(columns, several=True) == f"{in_html(key)}, <bdi>null</bdi>"
    assert in_html(columns[:-1], several=True) == in_html(columns[:-1]), "what is cut stays as it is"


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
