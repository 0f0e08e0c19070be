"""The run directory, its attempts and commits: the only way in which the faces talk to each other.

    RUN/job.json                     RUN/spec.json (of a job given in Python)
    RUN/plans/0000.json ...          RUN/decisions/0001.json ...
    RUN/stages/0000/attempts/ID/...  RUN/stages/0000/COMMIT.json
    RUN/result/attempts/ID/...       RUN/result/COMMIT.json
    RUN/quality/attempts/ID/...      RUN/quality/COMMIT.json
    RUN/comparison/attempts/ID/...   RUN/comparison/COMMIT.json (of a job in the shadow of another one)
    RUN/times/stage-0.json ...       for people, not part of any commit, as are
    RUN/times/again/stage-0-ID.json  of tries beside it, and
    RUN/savings.json   RUN/replays/  RUN/finality.json (of a job with a window)

Every file outside ``attempts`` is written once; the first writer wins. An attempt writes where nobody else does, and
only a COMMIT makes its files count. Beside the attempts of a step lie the records of its fence, which nobody reads once
the step has committed.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from skewless.document import Document, without_collector
from skewless.documents.commit import CommittedFile, StepCommit
from skewless.documents.job import Job
from skewless.documents.ledger import NO_PARTS, PartLines
from skewless.documents.nights import Finality
from skewless.documents.quality import Comparison, QualityReport
from skewless.documents.stage_report import Decision, ReportWithoutTails, StageReport
from skewless.documents.step_documents import Replayed, Savings
from skewless.errors import LostRaceError, RunDirectoryError
from skewless.routing.plan import RoutingPlan
from skewless.run.step_names import (
    COMPARISON_REPORT,
    COMPARISON_STEP,
    QUALITY_REPORT,
    QUALITY_STEP,
    RESULT_STEP,
    SPEC_DOCUMENT,
    stage_step,
)
from skewless.run.storage import Doc, Storage, content_checksum, file_checksum

#: What steps are called is part of what a run directory is.
__all__ = [
    "COMPARISON_REPORT", "COMPARISON_STEP", "QUALITY_REPORT", "QUALITY_STEP", "RESULT_STEP", "SPEC_DOCUMENT",
    "stage_step",
]  # fmt: skip

DOCUMENT = "document"
#: What an attempt would commit, in its own folder: it is there before the fence admits the attempt.
MANIFEST = "manifest.json"


def commit_path(step: str) -> str:
    """Where a step's commit is, below the run directory."""
    return f"{step}/COMMIT.json"


class Fence(Protocol):
    """The right to commit a step. It ends when somebody else is granted it under a higher fencing number."""

    def admit(self, attempt: str) -> None:
        """Record that this attempt commits, if the right still holds; else it is a ``SkewlessError``."""


class Attempt:
    """One attempt at a step. Nothing that it writes counts before ``commit``."""

    def __init__(self, run: Storage, step: str, ident: str, fence: Fence | None = None) -> None:
        self.run, self.step, self.ident, self._fence = run, step, ident, fence
        self.folder = f"{step}/attempts/{ident}"
        self._documents: list[CommittedFile] = []
        self._reported: list[str] = []

    def path(self, name: str) -> str:
        """The full path of a file or folder of this attempt."""
        return self.run.path(f"{self.folder}/{name}")

    def write(self, name: str, document: Document) -> None:
        """Write a document into this attempt; the commit will list it."""
        path = f"{self.folder}/{name}"
        self.run.write_same(path, document)
        content = document.sealed().encode()
        checksum = hashlib.sha256(content).hexdigest()
        self._documents.append(
            CommittedFile(kind=DOCUMENT, path=path, rows=0, size_bytes=len(content), checksum=checksum)
        )

    def report(self, paths: Sequence[str]) -> None:
        """Take note of the data files that tasks have written: those of tasks that were repeated are not among them."""
        self._reported += [f"{self.run.root}/{path[len(self.run.path('')) :]}" for path in paths]

    def listed(self, folder: str, ending: str = ".parquet") -> list[str]:
        """The data files below a folder that this attempt has written, sorted: as reported, or as they lie there."""
        below = f"{self.run.root}/{self.folder}/{folder}".rstrip("/") + "/"
        found = [path for path in self._reported if path.startswith(below)] or self.run.fs.find(below.rstrip("/"))
        return sorted(path for path in found if path.endswith(ending))

    def relative(self, path: str) -> str:
        """A listed path, relative to the run directory."""
        return path[len(self.run.root) + 1 :]

    def described(self, kind: str, path: str, rows: int, *, copied: bool = False) -> CommittedFile:
        """A listed path as a commit names it now; with a checksum of all of it if it will be copied unread."""
        fs = self.run.fs
        return CommittedFile(
            kind=kind, path=self.relative(path), rows=rows, size_bytes=int(fs.size(path)),
            checksum=file_checksum(fs, path), content=content_checksum(fs, path) if copied else "",
        )  # fmt: skip

    def manifest(self, files: Sequence[CommittedFile], counts: dict[str, int]) -> StepCommit:
        """The documents that this attempt wrote, and these data files: what a commit lists."""
        return StepCommit(step=self.step, attempt=self.ident, files=(*files, *self._documents), counts=counts)

    def commit(self, files: Sequence[CommittedFile], counts: dict[str, int]) -> StepCommit:
        """Make this attempt the one that counts, with the documents that it wrote and these data files.

        Raises:
            LostRaceError: another attempt committed first; that one counts.
            SkewlessError: the fence does not admit this attempt, and no other one has committed yet.
        """
        commit = self.manifest(files, counts)
        if self._fence is not None:
            # In this order: whoever comes after an attempt that was admitted can commit for it.
            self.run.write_same(f"{self.folder}/{MANIFEST}", commit)
            self._fence.admit(self.ident)
        if self.run.write_once(commit_path(self.step), commit):
            return commit
        winner = self.run.read(commit_path(self.step), StepCommit)
        if winner == commit:  # an object store's client that lost the answer to its first try
            return winner
        raise LostRaceError.saying(
            self.run.path(self.step),
            f"attempt {winner.attempt} committed first",
            "its files count and those of this attempt do not; go on from there",
        )


#: Decides about the next stage from the job, the plan and report of the last stage, and the reports before.
Planner = Callable[[Job, RoutingPlan, StageReport, Sequence[StageReport]], Decision]

STAGE_REPORT = "report.json"
PART_LINES = "parts.json"
WINDOW_PLAN = "windows.json"
SAVINGS = "savings.json"
INPUT_CHECKS = "input.json"
FINALITY = "finality.json"

PUBLISH_STEP = "publish"


def replay_document(policy: str) -> str:
    """Where the replay under a policy is written, below the run directory."""
    return f"replays/{policy.replace(' ', '_')}.json"


class RunDirectory(Storage):
    """The documents and commits of one run. See ``Storage`` for its arguments."""

    _parsed: tuple[bytes, Job] | None = None

    def __init__(self, location: str, group: str = "") -> None:
        super().__init__(location, group)
        #: The idents of the attempts that were begun by this object, in order.
        self.begun: list[str] = []

    def job(self) -> Job:
        """The frozen job; read at each call, but parsed once: an input of 100,000 files takes seconds to parse."""
        text = self.text_of("job.json")
        if self._parsed is None or self._parsed[0] != text:
            self._parsed = text, Job.from_sealed(text, where=self.path("job.json"))
        return self._parsed[1]

    def begin(self, job: Job) -> Job:
        """Write the frozen job, unless another process was first; the one that counts."""
        if self.write_once("job.json", job):
            self._parsed = self.text_of("job.json"), job
        return self.job()

    def plan(self, epoch: int) -> RoutingPlan:
        """The routing plan of an epoch."""
        name = f"plans/{epoch:04d}.json"
        plan = self.read(name, RoutingPlan)
        self.require_its_own(name, f"the plan of stage {epoch}", plan.epoch == epoch, f"that of stage {plan.epoch}")
        return plan

    def decision(self, stage: int) -> Decision:
        """The decision about a stage."""
        name = f"decisions/{stage:04d}.json"
        found = self.read(name, Decision)
        about = found.stage == stage and (found.next_plan is None or found.next_plan.epoch == stage)
        self.require_its_own(name, f"the decision about stage {stage}", about, f"that about stage {found.stage}")
        return found

    def enact(self, decision: Decision) -> Decision:
        """Write a decision, and before it its plan, so that the plan of a decision is always there."""
        if decision.next_plan is not None:
            self.write_same(f"plans/{decision.stage:04d}.json", decision.next_plan)
        return self.write_same(f"decisions/{decision.stage:04d}.json", decision)

    @without_collector()
    def decide(self, stage: int, planner: Planner) -> Decision:
        """Decide about a stage, at least 1, by a planner, and write the decision; an earlier decision stands."""
        name = f"decisions/{stage:04d}.json"
        if self.exists(name):
            return self.decision(stage)
        job = self.job()
        # Counts by slot of earlier stages are weighed against each other only where waves come in order.
        earlier = [self.report(before, tails=job.in_order) for before in range(stage - 1)]
        return self.enact(planner(job, self.plan(stage - 1), self.report(stage - 1), earlier))

    def commit_of(self, step: str) -> StepCommit | None:
        """The commit of a step, if there is one."""
        return self.committed(step) if self.exists(commit_path(step)) else None

    def committed(self, step: str) -> StepCommit:
        """The commit of a step that must have one; without it, a ``RunDirectoryError``."""
        name = commit_path(step)
        commit = self.read(name, StepCommit)
        self.require_its_own(name, f"the commit of {step}", commit.step == step, f"that of {commit.step[:120]!r}")
        return commit

    def committed_stages(self) -> int:
        """How many stages have committed, from 0 without a gap."""
        stage = 0
        while self.exists(commit_path(stage_step(stage))):
            stage += 1
        return stage

    def reports(self) -> list[StageReport]:
        """The reports of all committed stages, by stage."""
        return [self.report(stage) for stage in range(self.committed_stages())]

    def report(self, stage: int, *, tails: bool = True) -> StageReport:
        """The report of a committed stage; with its counts by slot, which may be millions, if they are wanted."""
        commit = self.committed(stage_step(stage))
        report = self.committed_document(commit, STAGE_REPORT, StageReport if tails else ReportWithoutTails)
        name = f"{commit.step}/attempts/{commit.attempt}/{STAGE_REPORT}"
        self.require_its_own(name, f"the report of stage {stage}", report.stage == stage, f"that of {report.stage}")
        return report

    def quality(self) -> QualityReport | None:
        """The committed verdict on the result, if there is one."""
        commit = self.commit_of(QUALITY_STEP)
        return self.committed_document(commit, QUALITY_REPORT, QualityReport) if commit else None

    def comparison(self) -> Comparison | None:
        """The committed comparison with another job's result, if there is one."""
        commit = self.commit_of(COMPARISON_STEP)
        return self.committed_document(commit, COMPARISON_REPORT, Comparison) if commit else None

    def savings(self) -> Savings | None:
        """What the run has saved; None before it is published or compared."""
        return self.read(SAVINGS, Savings) if self.exists(SAVINGS) else None

    def replayed(self, policy: str) -> Replayed | None:
        """The run under a policy, or ``AS_IT_RAN``, if that was written down."""
        name = replay_document(policy)
        return self.read(name, Replayed) if self.exists(name) else None

    def finality(self) -> Finality | None:
        """What its publication has told of finality; None without a window, or before it."""
        return self.read(FINALITY, Finality) if self.exists(FINALITY) else None

    def part_lines(self) -> PartLines:
        """The ledger lines of a window and of its parts; none without a window, or before the result is committed."""
        if not self.job().spec.covered.lengths or (commit := self.commit_of(RESULT_STEP)) is None:
            return NO_PARTS
        return self.committed_document(commit, PART_LINES, PartLines)

    def committed_document(self, commit: StepCommit, name: str, kind: type[Doc]) -> Doc:
        """Read a document; a ``RunDirectoryError`` if the commit does not list it, or lists other content."""
        for file in commit.of_kind(DOCUMENT):
            if file.path.endswith(f"/{name}"):
                text = self.text_of(file.path)
                if hashlib.sha256(text).hexdigest() != file.checksum:
                    raise self.differs_from_commit(file, f"other content, of {len(text):,} bytes")
                return kind.from_sealed(text, where=self.path(file.path))
        raise RunDirectoryError(self.path(commit_path(commit.step)), f"a commit of {name}", "one without it")

    def finish_admitted(self, step: str, attempt: str) -> None:
        """Commit a step for an attempt that its fence admitted, and that ended before it could commit.

        Nothing is committed if somebody has removed its manifest since, to have the step done anew.
        """
        name = f"{step}/attempts/{attempt}/{MANIFEST}"
        if self.exists(commit_path(step)) or not self.exists(name):
            return
        manifest = self.read(name, StepCommit)
        alike = (manifest.step, manifest.attempt) == (step, attempt)
        self.require_its_own(name, f"attempt {attempt} of {step}", alike, f"another one of {manifest.step[:120]!r}")
        self.write_once(commit_path(step), manifest)

    def new_attempt(self, step: str, fence: Fence | None = None) -> Attempt:
        """A place of its own for one attempt of a step. Without a fence, the first attempt to commit wins."""
        ident = secrets.token_hex(8)
        self.begun.append(ident)
        return Attempt(self, step, ident, fence)
