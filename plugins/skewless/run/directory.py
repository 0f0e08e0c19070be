"""The run directory and its commit protocol: the only way the faces talk to each other.

    RUN/job.json                     RUN/spec.json (of a job given in Python)
    RUN/plans/0000.json ...          RUN/decisions/0001.json ...
    RUN/stages/0000/attempts/ID/...  RUN/stages/0000/COMMIT.json
    RUN/result/attempts/ID/...       RUN/result/COMMIT.json
    RUN/quality/attempts/ID/...      RUN/quality/COMMIT.json

Every file outside ``attempts`` is written once; the first writer wins. An attempt writes
where nobody else does, and only a COMMIT makes its files count. Beside the attempts of a step are
records of who is at it (``Fence``), which are not read any more once it has its COMMIT.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skewless.document import Document
from skewless.documents.commit import CommittedFile, StepCommit
from skewless.documents.decision import Decision
from skewless.documents.job import Job
from skewless.documents.quality import QualityReport
from skewless.documents.stage_report import StageReport
from skewless.errors import DocumentError, LostRaceError, RunDirectoryError
from skewless.routing.plan import RoutingPlan
from skewless.run.file_checksum import content_checksum, file_checksum
from skewless.run.folder import make_run_folder
from skewless.run.written_path import as_written

Doc = TypeVar("Doc", bound=Document)

#: Decides about the next stage from the job, the plan and report of the last stage, and the reports before.
Planner = Callable[[Job, RoutingPlan, StageReport, Sequence[StageReport]], Decision]

#: The spec of a run that was given as a value and not as a file.
SPEC_DOCUMENT = "spec.json"
#: Kind of the committed files that are documents of ours.
DOCUMENT = "document"
STAGE_REPORT = "report.json"
QUALITY_REPORT = "result.json"

#: What an attempt would commit, in its own folder: there before the fence lets it through.
MANIFEST = "manifest.json"

RESULT_STEP = "result"
QUALITY_STEP = "quality"
PUBLISH_STEP = "publish"


def stage_step(stage: int) -> str:
    """The folder of a stage, below the run directory."""
    return f"stages/{stage:04d}"


class Fence(Protocol):
    """The right to commit a step, which ends when somebody else is granted it under a higher fencing number."""

    def admit(self, attempt: str) -> None:
        """Write down, if the right still holds at that very moment, that this attempt is the one that commits.

        Raises:
            SkewlessError: it does not hold any more; nothing was written.
        """


class RunDirectory:
    """One run's documents and commits, at a local path or any URL fsspec reads.

    Args:
        location: where it is, or will be made.
        group: who may enter it beside its owner, if it is made by this object; see ``make_run_folder``.
    """

    def __init__(self, location: str, group: str = "") -> None:
        try:
            self.fs, root = fsspec.core.url_to_fs(location)
        except (ImportError, ValueError) as err:
            raise RunDirectoryError(
                f"run directory {location}", "a path that fsspec can open", str(err), "install what it asks for"
            ) from None
        #: In ``fs``, where a scheme and a host have no place.
        self.root, self._group = str(root).rstrip("/"), group
        self._location = as_written(self.fs, location, self.root)

    def __str__(self) -> str:
        return self._location

    def path(self, name: str) -> str:
        """The full path of something below the run directory, as Spark and fsspec read it."""
        return f"{self._location}/{name}"

    def exists(self, name: str) -> bool:
        """Whether a document is there."""
        return bool(self.fs.exists(f"{self.root}/{name}"))

    def read(self, name: str, kind: type[Doc]) -> Doc:
        """Read a document.

        Raises:
            RunDirectoryError: it is not there.
            DocumentError: it cannot be read as ``kind``.
        """
        return kind.from_sealed(self._text(name), where=self.path(name))

    def fields(self, name: str, kind: type[Document]) -> dict[str, Any]:
        """Some field of a document, without a look at what the others hold (``Document.sealed_fields``)."""
        return kind.sealed_fields(self._text(name), where=self.path(name))

    def _text(self, name: str) -> bytes:
        try:
            text: bytes = self.fs.cat_file(f"{self.root}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            raise RunDirectoryError(
                f"run directory {self}",
                name,
                "no such file",
                "run the step before this one first, or check the path",
            ) from None
        except OSError as err:
            came = err.strerror or type(err).__name__
            raise RunDirectoryError(
                self.path(name), "a document that can be read", came, "mend that, and try again"
            ) from None
        return text

    def write_once(self, name: str, document: Document) -> bool:
        """Write a document unless it is there already, all of it or nothing.

        Returns:
            True if this call wrote it, False if somebody did before.
        """
        full = f"{self.root}/{name}"
        try:
            if isinstance(self.fs, LocalFileSystem):
                make_run_folder(self.root, self._group)
            self.fs.makedirs(full.rpartition("/")[0], exist_ok=True)
            if isinstance(self.fs, LocalFileSystem):
                return _link_once(full, document.sealed().encode())
        except OSError as err:
            reason = err.strerror or type(err).__name__
            raise RunDirectoryError(
                f"run directory {self}", "a folder that can be written", reason, "mend that, and try again"
            ) from None
        try:
            with self.fs.open(full, "xb") as out:
                out.write(document.sealed().encode())
        except FileExistsError:
            return False
        return True

    def write_same(self, name: str, document: Doc) -> Doc:
        """Write a document that any attempt would write alike, and return the one that counts.

        Raises:
            RunDirectoryError: another one was written before.
        """
        if self.write_once(name, document):
            return document
        found = self.read(name, type(document))
        if found != document:
            raise RunDirectoryError(
                self.path(name),
                "the document this step would write",
                "a different one",
                "use a new run directory, or run the step with the release that began this one",
            )
        return found

    def job(self) -> Job:
        """The frozen job."""
        return self.read("job.json", Job)

    def plan(self, epoch: int) -> RoutingPlan:
        """The routing plan of an epoch."""
        name = f"plans/{epoch:04d}.json"
        plan = self.read(name, RoutingPlan)
        self._require_its_own(name, f"the plan of stage {epoch}", plan.epoch == epoch, f"that of stage {plan.epoch}")
        return plan

    def decision(self, stage: int) -> Decision:
        """The decision about a stage."""
        name = f"decisions/{stage:04d}.json"
        found = self.read(name, Decision)
        about = found.stage == stage and (found.next_plan is None or found.next_plan.epoch == stage)
        self._require_its_own(name, f"the decision about stage {stage}", about, f"that about stage {found.stage}")
        return found

    def enact(self, decision: Decision) -> Decision:
        """Write a decision, and its plan before it, so that a decision's plan is always there."""
        if decision.next_plan is not None:
            self.write_same(f"plans/{decision.stage:04d}.json", decision.next_plan)
        return self.write_same(f"decisions/{decision.stage:04d}.json", decision)

    def decide(self, stage: int, planner: Planner) -> Decision:
        """Decide about a stage and write that down; what was decided before stands.

        Args:
            stage: the stage that the decision is about, at least 1.
            planner: ``skewless.planner.planner.plan_next_stage``: a run directory stores decisions and makes none.
        """
        name = f"decisions/{stage:04d}.json"
        if self.exists(name):
            return self.decision(stage)
        *earlier, last = [self.report(before) for before in range(stage)]
        return self.enact(planner(self.job(), self.plan(stage - 1), last, earlier))

    def commit_of(self, step: str) -> StepCommit | None:
        """The commit of a step, if there is one."""
        return self.committed(step) if self.exists(f"{step}/COMMIT.json") else None

    def committed(self, step: str) -> StepCommit:
        """The commit of a step that must have one.

        Raises:
            RunDirectoryError: the step has not committed.
        """
        name = f"{step}/COMMIT.json"
        commit = self.read(name, StepCommit)
        self._require_its_own(name, f"the commit of {step}", commit.step == step, f"that of {commit.step[:120]!r}")
        return commit

    def _require_its_own(self, name: str, required: str, alike: bool, came: str) -> None:
        """Refuse a document that lies in the place of another: whole, and not about what it is taken for.

        Raises:
            DocumentError: says which one it is.
        """
        if not alike:
            hint = "restore the file from a copy, or begin a new run directory"
            raise DocumentError(self.path(name), required, came, hint)

    def committed_stages(self) -> int:
        """How many stages have committed, from 0 without a gap."""
        stage = 0
        while self.exists(f"{stage_step(stage)}/COMMIT.json"):
            stage += 1
        return stage

    def reports(self) -> list[StageReport]:
        """The reports of all committed stages, by stage."""
        return [self.report(stage) for stage in range(self.committed_stages())]

    def report(self, stage: int) -> StageReport:
        """The report of a committed stage."""
        commit = self.committed(stage_step(stage))
        report = self.committed_document(commit, STAGE_REPORT, StageReport)
        name = f"{commit.step}/attempts/{commit.attempt}/{STAGE_REPORT}"
        self._require_its_own(name, f"the report of stage {stage}", report.stage == stage, f"that of {report.stage}")
        return report

    def quality(self) -> QualityReport | None:
        """The committed verdict on the result, if there is one."""
        commit = self.commit_of(QUALITY_STEP)
        return self.committed_document(commit, QUALITY_REPORT, QualityReport) if commit else None

    def committed_document(self, commit: StepCommit, name: str, kind: type[Doc]) -> Doc:
        """Read a document that a commit lists.

        Raises:
            RunDirectoryError: the commit does not list it, or lists another one.
        """
        for file in commit.of_kind(DOCUMENT):
            if file.path.endswith(f"/{name}"):
                text = self._text(file.path)
                if hashlib.sha256(text).hexdigest() != file.checksum:
                    raise self._not_committed(file, f"other content, of {len(text):,} bytes")
                return kind.from_sealed(text, where=self.path(file.path))
        raise RunDirectoryError(self.path(f"{commit.step}/COMMIT.json"), name, "no such document in it")

    def verify(self, file: CommittedFile) -> None:
        """Hold a committed file to what its commit says of it.

        Raises:
            RunDirectoryError: it is gone, was cut, or is another one.
        """
        path = f"{self.root}/{file.path}"
        try:
            size = int(self.fs.size(path))
            came = f"{size:,} bytes" if size != file.size_bytes else ""
            came = came or ("other content" if file_checksum(self.fs, path) != file.checksum else "")
        except OSError as err:
            came = "no such file" if isinstance(err, FileNotFoundError) else str(err)
        if came:
            raise self._not_committed(file, came)

    def verify_copy(self, file: CommittedFile, copy: str) -> None:
        """Hold a local copy of a committed file to all of what was committed.

        Raises:
            RunDirectoryError: it is another one.
        """
        if file.content and content_checksum(LocalFileSystem(), copy) != file.content:
            raise self._not_committed(file, "other content")

    def _not_committed(self, file: CommittedFile, came: str) -> RunDirectoryError:
        return RunDirectoryError(
            self.path(file.path), f"the file of {file.size_bytes:,} bytes that was committed", came,
            "restore it from a copy, or begin a new run directory",
        )  # fmt: skip

    def finish_admitted(self, step: str, attempt: str) -> None:
        """Commit a step for an attempt that its fence let through, and that ended before it could.

        If its manifest has been removed since, by somebody who wants the step done anew, nothing is committed.

        Raises:
            DocumentError: the manifest cannot be read, or is of another attempt.
        """
        name = f"{step}/attempts/{attempt}/{MANIFEST}"
        if self.exists(f"{step}/COMMIT.json") or not self.exists(name):
            return
        manifest = self.read(name, StepCommit)
        alike = (manifest.step, manifest.attempt) == (step, attempt)
        self._require_its_own(name, f"attempt {attempt} of {step}", alike, f"another one of {manifest.step[:120]!r}")
        self.write_once(f"{step}/COMMIT.json", manifest)

    def new_attempt(self, step: str, fence: Fence | None = None) -> Attempt:
        """A place of its own for one attempt of a step.

        Args:
            step: the step.
            fence: asked before the attempt commits; without one the first to commit wins.
        """
        return Attempt(self, step, secrets.token_hex(8), fence)


class Attempt:
    """One try at a step. Nothing it writes counts until ``commit``."""

    def __init__(self, run: RunDirectory, step: str, ident: str, fence: Fence | None = None) -> None:
        self.run, self.step, self.ident, self._fence = run, step, ident, fence
        self.folder = f"{step}/attempts/{ident}"
        self._documents: list[CommittedFile] = []

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

    def listed(self, folder: str, ending: str = ".parquet") -> list[str]:
        """The data files below a folder that this attempt has written, sorted.

        Only the writer lists, and only its own attempt.
        """
        found = self.run.fs.find(f"{self.run.root}/{self.folder}/{folder}")
        return sorted(path for path in found if path.endswith(ending))

    def relative(self, path: str) -> str:
        """A listed path, relative to the run directory."""
        return path[len(self.run.root) + 1 :]

    def described(self, kind: str, path: str, rows: int, *, copied: bool = False) -> CommittedFile:
        """A listed path as a commit names it, with its length and checksum as they are now.

        Args:
            kind: what it holds.
            path: as it was listed.
            rows: as its writer counted them.
            copied: whether it will be copied without being read, and so needs a checksum of all of it.
        """
        fs = self.run.fs
        return CommittedFile(
            kind=kind, path=self.relative(path), rows=rows, size_bytes=int(fs.size(path)),
            checksum=file_checksum(fs, path), content=content_checksum(fs, path) if copied else "",
        )  # fmt: skip

    def manifest(self, files: Sequence[CommittedFile], counts: dict[str, int]) -> StepCommit:
        """The documents that this attempt wrote, and these data files: what a commit lists."""
        return StepCommit(step=self.step, attempt=self.ident, files=(*files, *self._documents), counts=counts)

    def commit(self, files: Sequence[CommittedFile], counts: dict[str, int]) -> StepCommit:
        """Make this attempt the one that counts, with the documents it wrote and these data files.

        Raises:
            LostRaceError: another attempt was first; it counts, and this one does not.
            SkewlessError: the fence does not let this attempt through, and no other one has committed yet.
        """
        commit = self.manifest(files, counts)
        if self._fence is not None:
            # In this order: whoever comes after an attempt that was let through can commit for it.
            self.run.write_same(f"{self.folder}/{MANIFEST}", commit)
            self._fence.admit(self.ident)
        if self.run.write_once(f"{self.step}/COMMIT.json", commit):
            return commit
        winner = self.run.committed(self.step)
        if winner == commit:  # an object store's client that lost the answer to its first try
            return winner
        raise LostRaceError(
            self.run.path(self.step),
            "to be the first attempt to commit",
            f"attempt {winner.attempt}'s commit",
            "its files count and this attempt's do not; go on from there",
        )


def _link_once(path: str, content: bytes) -> bool:
    """Create a local file whole, or not at all if it exists: a crash leaves no torn document."""
    draft = Path(f"{path}.{secrets.token_hex(8)}.draft")
    try:
        with draft.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
