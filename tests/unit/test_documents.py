import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.columns import column, exact_sum, numbers
from skewless.document import LARGEST_COUNT, Document
from skewless.documents.commit import CommittedFile, RoutedRows, SharedTask, StageShares, StepCommit, TaskShare
from skewless.documents.job import Job, SentSpec, Unit
from skewless.documents.ledger import balance
from skewless.documents.quality import Check, FailingKey, QualityReport
from skewless.documents.stage_report import StageReport
from skewless.documents.step_documents import Failure, Replayed, Savings, Span, StepTimes
from skewless.documents.window import NO_WINDOW, WindowPart
from skewless.errors import DocumentError
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.publication.records import Identity, Overtaken, Publication, PublishedFile, VersionManifest
from skewless.routing.hashing import BUCKET_SEED, bucket_hash, hashes_of, key_hash
from tests.unit import synthetic

HOSTILE = {"": 40, "\0": 30, 'a"b\n': 20, "日本🙂": 10, "<img src=x onerror=alert(1)>": 5, "x" * 10_000: 3}


def samples() -> dict[str, Document]:
    by = Identity(job="0" * 64, run="/runs/clicks/two")
    job = synthetic.job([100, 400], waves=(1, 4))
    plan = first_plan(job)
    report = synthetic.report(plan, HOSTILE, {"": 7})
    decision = plan_next_stage(job, plan, report)
    ledger = balance(job, [report], 500)
    check = Check(subject="result", expectation="expect_x", column="", success=False, observed="3", found="3")
    file = CommittedFile(
        kind="states", path="stages/0000/attempts/a/0.parquet", rows=3, size_bytes=9, checksum="0" * 64
    )
    assert decision.next_plan is not None
    return {
        "SentSpec": SentSpec(spec=job.spec),
        "Job": job,
        "RoutingPlan": decision.next_plan,
        "StageReport": report,
        "Decision": decision,
        "Ledger": ledger,
        "StepCommit": StepCommit(step="stages/0000", attempt="a", files=(file,), counts={"rows": 3}),
        "QualityReport": QualityReport(success=False, keys=5, checks=(check,), ledger=ledger),
        "Publication": Publication(
            path="/out/date=2026-11-20", rows=3, keys=2, turn=1, superseded=Overtaken(by=by, turn=2)
        ),
        "VersionManifest": VersionManifest(
            by=by, turn=2, name="2-ab", files=(PublishedFile(name="part-0", size_bytes=3, sha256="0" * 64),)
        ),
        "StepTimes": StepTimes(
            step="stage 0", started=1.5, seconds=2.0, spans=(Span(name="Spark job", start=0.5, seconds=1.0, tasks=3),)
        ),
        "Failure": Failure(exit_code=2, sentence="no"),
        "Savings": Savings(sentence="1.5 times as long", policy="adaptive", over_bound=1.04),
        "Replayed": Replayed(
            policy="static",
            makespan_over_bound=1.5,
            error=0.2,
            s=0.1,
            imbalance_final=0.1,
            imbalance_fraction=0.2,
            rows_forwarded=3,
            states=None,
            stages=1,
            decisions=("no further stage",),
        ),
        "RoutedRows": RoutedRows(stage=0, cluster="east", tasks={3: (file,), 7: (file,)}, source_rows=6, given_rows=6),
        "SharedTask": SharedTask(task=3, cluster="east", seconds=0.5, files=(file,)),
        "StageShares": StageShares(stage=0, routed_by="east", tasks={"3-0-1": TaskShare(cluster="west", seconds=0.5)}),
    }


@pytest.fixture(params=list(samples()))
def document(request: pytest.FixtureRequest) -> Document:
    return samples()[request.param]


def test_json_goes_both_ways(document: Document) -> None:
    again = type(document).from_json(document.to_json())
    assert again == document
    assert again.to_json() == document.to_json()
    assert again.digest() == document.digest()
    assert type(document).from_json(document.to_json().encode()) == document
    assert type(document).from_sealed(document.sealed().encode()) == document


def test_another_version_is_refused_by_name(document: Document) -> None:
    text = json.dumps({**json.loads(document.to_json()), "version": 2})
    with pytest.raises(
        DocumentError, match=f"^some.json: expected {type(document).__name__} version 1, but got version 2;"
    ):
        type(document).from_json(text, where="some.json")


def test_an_unknown_field_is_refused_and_the_nearest_named(document: Document) -> None:
    raw = json.loads(document.to_json())
    known = min(raw)
    text = json.dumps({**raw, known + "s": 1})
    with pytest.raises(DocumentError, match=f"field .*{known}s: there is no such field; did you mean '{known}'"):
        type(document).from_json(text)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DocumentError, match=r"^x, field attempt: this field is missing"):
        StepCommit.from_json('{"version":1,"step":"a","files":[]}', where="x")


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    text = samples()["StageReport"].to_json().replace('"stage_seconds":1.0', f'"stage_seconds":{number}')
    with pytest.raises(DocumentError, match="stage_seconds"):
        StageReport.from_json(text)


@given(st.data())
def test_a_stored_document_that_was_cut_or_changed_anywhere_is_refused(data: st.DataObject) -> None:
    stored = samples()["StageReport"].sealed().encode()
    at = data.draw(st.integers(0, len(stored) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    for damaged in (stored[:at], stored[:at] + bytes([stored[at] ^ bit]) + stored[at + 1 :]):
        with pytest.raises(DocumentError, match=r"^run/x\.json: (the document was cut|expected) "):
            StageReport.from_sealed(damaged, where="run/x.json")


def test_a_stored_document_of_another_version_is_refused_by_its_version() -> None:
    with pytest.raises(DocumentError, match="expected StageReport version 1, but got version 99"):
        StageReport.from_sealed(b'{"version":99,"seal":"of tomorrow"}', where="run/x.json")


def test_a_job_whose_waves_admit_a_unit_twice_is_refused() -> None:
    raw = json.loads(samples()["Job"].to_json())
    raw["waves"] = [[0], [0]]
    with pytest.raises(DocumentError, match="expected waves of different ones of the 2 units"):
        Job.from_json(json.dumps(raw))


def test_json_field_names_are_what_others_code_against() -> None:
    assert set(json.loads(samples()["Ledger"].to_json())) == {
        "input_rows", "lines", "parts", "problems", "state_rows", "unchanged_rows", "version", "windows",
    }  # fmt: skip
    assert set(json.loads(samples()["Decision"].to_json())) == {
        "candidates", "certificate", "engine", "next_plan", "policy", "queued_rows", "sentence", "stage",
        "version",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("held", "success"),
    [((True, True), False), ((False, False), True), ((True, False), True), ((False, True), True), ((), False)],
    ids=["all held", "none held", "the last failed", "the first failed", "no check"],
)
def test_a_verdict_that_does_not_follow_from_its_checks_is_refused(held: tuple[bool, ...], success: bool) -> None:
    report = samples()["QualityReport"]
    assert isinstance(report, QualityReport)
    checks = tuple(report.checks[0].model_copy(update={"success": one}) for one in held)
    text = report.model_copy(update={"checks": checks, "success": success}).to_json()
    failed = held.count(False)
    with pytest.raises(
        DocumentError, match=f"expected a verdict that follows from its checks, of which {failed} failed"
    ):
        QualityReport.from_json(text)
    right = report.model_copy(update={"checks": checks, "success": not success})
    assert QualityReport.from_json(right.to_json()) == right


def test_a_failed_report_names_its_checks_in_words_with_the_keys_that_fail() -> None:
    report = samples()["QualityReport"]
    assert isinstance(report, QualityReport)
    built_in, own = (
        Check(
            subject="result", expectation="expect_column_values_to_not_be_null", column="page", success=False,
            required="mostly=0.9", observed="", found="2 of 9 values unexpected, for example x", keys=keys,
        )
        for keys in ((), (FailingKey(key="/page/1", found="60,000"), FailingKey(key="/page/2")))
    )  # fmt: skip
    some = report.model_copy(update={"checks": (built_in, own)})
    assert some.failed_words(own=1) == (
        "2 of 2 checks failed",
        (
            "every key has a value of page (2 of 9 values unexpected, for example x); "
            "page: values not null, mostly=0.9 (2 of 9 values unexpected; in /page/1: 60,000; /page/2)"
        ),
    )
    count, words = report.model_copy(update={"checks": (own,) * 30}).failed_words(own=30)
    assert (count, words.count("values not null")) == ("30 of 30 checks failed", 20)
    assert words.endswith("; and 10 more")
    assert own.sentence.endswith("_to_not_be_null(page, mostly=0.9): 2 of 9 values unexpected, for example x")


# Of a stage that several clusters share, and what a spec may say of it.

SPEC: dict[str, Any] = {
    "name": "small",
    "input": {"path": "rows"},
    "key": "k",
    "aggregates": {"n": "count"},
    "output": {"path": "out"},
}


def routed(rows: dict[int, int]) -> RoutedRows:
    def file(task: int, count: int) -> CommittedFile:
        path = f"stages/0000/attempts/a/routed/routed_to={task}/part.parquet"
        return CommittedFile(kind="routed", path=path, rows=count, size_bytes=9, checksum="0" * 64)

    return RoutedRows(stage=0, cluster="a", tasks={task: (file(task, count),) for task, count in rows.items()})


def test_the_largest_task_is_leased_first_and_each_has_one_name() -> None:
    names = routed({3: 10, 0: 500, 7: 500, 1: 2}).partitions
    assert [names[name] for name in sorted(names)] == [0, 7, 3, 1]


def test_shares_are_counted_by_cluster() -> None:
    tasks = {f"{n}-0-1": TaskShare(cluster="ab"[n % 3 == 0], seconds=1) for n in range(7)}
    assert StageShares(stage=0, routed_by="a", tasks=tasks).done == {"a": 4, "b": 3}


def test_files_that_are_read_again_are_counted() -> None:
    files = [{"path": f"/in/{name}", "size_bytes": 1, "version": "1", "ranks": (0,)} for name in "abc"]
    part = WindowPart.model_validate({"name": "2026-11-19", "place": 0, "files": files, "removed": 1, "replaced": 1})
    window = NO_WINDOW.model_copy(update={"parts": (part,)})
    assert window.counts() == {"reused": 0, "reread": 2, "added": 0, "replaced": 1, "removed": 1}


def job_of(files: int) -> Job:
    units = tuple(Unit(path=f"/lake/part-{n:06d}.parquet", rows=n, size_bytes=n + 1) for n in range(files))
    return synthetic.job([1]).model_copy(update={"units": units, "waves": (tuple(range(files)),)})


def test_a_file_more_is_a_value_more_in_each_column_that_differs() -> None:
    few, many = (len(job_of(files).sealed()) for files in (1_000, 2_000))
    assert (many - few) / 1_000 <= 45, "the path, two counts and the ordinal; no name of a field, no default"


def test_a_job_of_many_files_is_read_into_few_bytes_for_each() -> None:
    text = job_of(20_000).sealed().encode()
    tracemalloc.start()
    job = Job.from_sealed(text)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held / len(job.units) <= 300, "as objects each took two kilobytes"


def test_columns_are_a_sequence_of_rows_and_go_both_ways() -> None:
    job = job_of(7)
    again = Job.from_sealed(job.sealed().encode())
    assert again == job
    assert hash(again) == hash(job)
    assert again.units == tuple(job.units) != tuple(job.units)[:-1]
    assert again.units[1:3] == tuple(again.units)[1:3]
    assert again.units[-1].rows == 6
    assert type(again.units[2].rows) is int
    assert again.units[2].model_copy(update={"rows": 5}).rows == 5
    assert column(again.units, "counted") == [True] * 7
    assert numbers(again.units, "rows").sum() == job.rows == 21
    assert column(tuple(job.units), "rows") == numbers(tuple(job.units), "rows").tolist() == list(range(7))
    assert Job.model_validate(job.model_dump()) == job


def test_columns_of_different_lengths_are_refused() -> None:
    text = StepCommit(step="a", attempt="b", files=()).to_json().replace('"rows":[]', '"rows":[1]')
    with pytest.raises(DocumentError, match=r"field files: expected columns of one length, but got 0 and 1"):
        StepCommit.from_json(text)
    with pytest.raises(DocumentError, match=r"field files.more: there is no such field"):
        StepCommit.from_json(text.replace('"kind"', '"more":[],"kind"'))


def test_sums_beyond_64_bits_are_exact() -> None:
    assert exact_sum(np.full(1 << 12, LARGEST_COUNT)) == LARGEST_COUNT << 12


@given(st.lists(st.text(max_size=300), max_size=40))
def test_many_keys_are_hashed_as_one_is(keys: list[str]) -> None:
    assert hashes_of(keys).tolist() == [key_hash(key) for key in keys]
    assert hashes_of(keys, BUCKET_SEED).tolist() == [bucket_hash(key) for key in keys]
