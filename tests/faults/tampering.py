"""A run directory that was changed by somebody: clumsily, or with every checksum made right again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from skewless.document import Document
from skewless.documents.commit import CommittedFile, StepCommit
from skewless.run.directory import DOCUMENT, STAGE_REPORT, RunDirectory, stage_step


class Case(NamedTuple):
    """A change, and before which step it is made.

    Attributes:
        words: what is done.
        before: the step that it is done before.
        tamper: does it; with True all lengths, checksums and seals are made right again.
        checksum: how the sentence goes that notices it by a length or a checksum, as a regular expression.
        ledger: how that of the ledger goes, where there is none that tells.
    """

    words: str
    before: str
    tamper: Callable[[RunDirectory, bool], None]
    checksum: str
    ledger: str


def _lost_backlog(run: RunDirectory, resealed: bool) -> None:
    lost = run.committed(stage_step(0)).of_kind("backlog")[0]
    Path(run.path(lost.path)).unlink()
    if resealed:
        _commit(run, 0, lambda commit: _without(commit, lost))


def _lost_backlog_in_all_counts(run: RunDirectory, resealed: bool) -> None:
    lost = run.committed(stage_step(0)).of_kind("backlog")[0]
    Path(run.path(lost.path)).unlink()
    if resealed:
        report = run.report(0)
        _report(run, 0, {"backlog_rows": report.backlog_rows - lost.rows})
        _commit(
            run, 0, lambda one: _without(one, lost).model_copy(
                update={"counts": one.counts | {"backlog": one.counts["backlog"] - lost.rows}}
            )
        )  # fmt: skip


def _doubled_states(run: RunDirectory, resealed: bool) -> None:
    state = run.committed(stage_step(0)).of_kind("native")[0]
    if not resealed:  # listed twice, in the commit as it lies there
        path = Path(run.path(f"{stage_step(0)}/COMMIT.json"))
        told = json.loads(path.read_text(encoding="utf-8"))
        at = told["files"]["path"].index(state.path)
        told["files"] = {name: [*column, column[at]] for name, column in told["files"].items()}
        path.write_text(json.dumps(told), encoding="utf-8")
        return
    twin = f"{state.path.removesuffix('.parquet')}-again.parquet"
    shutil.copy(run.path(state.path), run.path(twin))
    _commit(run, 0, lambda one: one.model_copy(update={"files": (*one.files, state.model_copy(update={"path": twin}))}))


def _changed_count(run: RunDirectory, resealed: bool) -> None:
    report = run.report(0)
    if resealed:
        _report(run, 0, {"processed_rows": report.processed_rows - 1})
        return
    path = Path(run.path(_report_file(run, 0).path))
    text = path.read_text(encoding="utf-8")
    before, after = f'"processed_rows":{report.processed_rows}', f'"processed_rows":{report.processed_rows - 1}'
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


#: What a file that was committed has to be; what a sealed document has to be.
_FILE = r"^\S+: expected the file of [\d,]+ bytes that was committed, but got "
_SEALED = r"^\S+: the document was cut or changed since it was written; "

#: Each is noticed by a checksum, and by the ledger where there is none that tells.
CASES = (
    Case(
        "a backlog file is lost", "stage-1", _lost_backlog, _FILE + "no such file; ",
        r"^stage 1: not every row is counted once: stage 1 took in [\d,]+ backlog rows of the [\d,]+ left "
        r"over; nothing was committed\.$",
    ),
    Case(
        "a backlog file is lost and its rows taken off the counts", "stage-1", _lost_backlog_in_all_counts,
        _FILE + "no such file; ",
        r"^merge of \S+: [\d,]+ of 2,000 rows are processed after \d stages; ",
    ),
    Case(
        "a file of states counts twice", "merge", _doubled_states, _SEALED,
        r"^\d+ of \d+ checks failed: .*the ledger balances \(the states account for [\d,]+ rows of the 2,000 "
        r"processed.*\).*; the published result of the day is untouched; run \S+\.$",
    ),
    Case(
        "a count in the report of a stage is changed", "merge", _changed_count, _FILE + "other content, ",
        r"^merge of \S+: 1,999 of 2,000 rows are processed after 3 stages; ",
    ),
)  # fmt: skip


def _without(commit: StepCommit, file: CommittedFile) -> StepCommit:
    return commit.model_copy(update={"files": tuple(one for one in commit.files if one != file)})


def _report_file(run: RunDirectory, stage: int) -> CommittedFile:
    commit = run.committed(stage_step(stage))
    return next(file for file in commit.of_kind(DOCUMENT) if file.path.endswith(STAGE_REPORT))


def _report(run: RunDirectory, stage: int, update: dict[str, int]) -> None:
    file = _report_file(run, stage)
    content = _seal(run, file.path, run.report(stage).model_copy(update=update))
    told = file.model_copy(update={"size_bytes": len(content), "checksum": hashlib.sha256(content).hexdigest()})
    _commit(run, stage, lambda one: one.model_copy(update={"files": (*_without(one, file).files, told)}))


def _commit(run: RunDirectory, stage: int, change: Callable[[StepCommit], StepCommit]) -> None:
    _seal(run, f"{stage_step(stage)}/COMMIT.json", change(run.committed(stage_step(stage))))


def _seal(run: RunDirectory, name: str, document: Document) -> bytes:
    content = document.sealed().encode()
    Path(run.path(name)).write_bytes(content)
    return content
