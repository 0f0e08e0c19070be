"""Publishing a validated result: into place in one move, the day's old result until then."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import secrets
import shutil
from pathlib import Path

from skewless.document import Count, Document
from skewless.errors import LostRaceError, QualityError, RunDirectoryError
from skewless.job import Job
from skewless.quality_report import QualityReport
from skewless.run_directory import PUBLISH_STEP, QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.step_commit import StepCommit

#: The record of a publication, in the run directory.
PUBLISHED = f"{PUBLISH_STEP}/published.json"
_WITHDRAWN = ".withdrawn"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Publication(Document):
    """The record that a run's result was published.

    Attributes:
        path: the published folder.
        rows: rows of the input that it accounts for.
        keys: rows of the result.
    """

    path: str
    rows: Count
    keys: Count


def published_path(job: Job) -> str:
    """The folder the result of a job is published in."""
    return f"{job.output_path}/{job.part.folder}"


def publish(run: RunDirectory) -> Publication:
    """Move a validated result into place, once per run.

    Readers see the old folder or the new one, whole. A run that has published before says so
    and touches nothing, so that clearing an old run's task cannot undo a newer run's result;
    nor can an attempt that was paused and wakes, as the one that went ahead took its draft away.

    Raises:
        QualityError: the result failed validation.
        RunDirectoryError: a step before this has not committed, or the folder cannot be written.
        LostRaceError: another attempt went ahead, and has not published yet.
    """
    job, result = run.job(), run.committed(RESULT_STEP)
    require_passed(run, run.committed_document(run.committed(QUALITY_STEP), QUALITY_REPORT, QualityReport))
    before = publication_of(run)
    if before is not None:
        return before
    target = published_path(job)
    if "://" in target:
        raise RunDirectoryError("output.path", "a path of a local or shared file system", repr(target))
    try:
        _move_in(run, result, Path(target))
    except OSError as err:
        came = err.strerror or type(err).__name__
        raise RunDirectoryError(target, "a folder that can be written", came, "mend that, and publish again") from None
    record = run.write_same(PUBLISHED, _record(target, result))
    # Once more: a draft that an attempt made since has not seen the record yet.
    _withdraw_drafts(run, Path(target))
    return record


def _record(target: str, result: StepCommit) -> Publication:
    return Publication(path=target, rows=result.count("rows"), keys=result.count("keys"))


def publication_of(run: RunDirectory) -> Publication | None:
    """The record of the publication, if the run was published."""
    return run.read(PUBLISHED, Publication) if run.exists(PUBLISHED) else None


def require_passed(run: RunDirectory, report: QualityReport) -> None:
    """Refuse a result whose validation failed.

    Raises:
        QualityError: names the failed expectations and their numbers.
    """
    if not report.success:
        failed = [check.sentence for check in report.checks if not check.success]
        raise QualityError(
            f"data quality of {run}",
            f"all {len(report.checks)} expectations to hold",
            f"{len(failed)} that failed: {'; '.join(failed)}",
            "the published result of the day is untouched",
        )


def _move_in(run: RunDirectory, result: StepCommit, target: Path) -> None:
    """Copy the committed files beside the target under plain names, then exchange the folders.

    The draft's name begins with a dot: Spark and pyarrow skip it, also if a crash leaves it behind; the run's
    next attempt takes it away. An attempt without a draft cannot publish: that is the fence for those that wake late.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f"{_drafts_of(run, target)}{secrets.token_hex(8)}"
    draft.mkdir()
    try:
        if publication_of(run) is not None:  # by an attempt that was under way when this one looked first
            return
        _copy(run, result, draft)
        _withdraw_drafts(run, target, but=draft)
        _exchange(draft, target)
    except FileNotFoundError:
        if draft.exists():
            raise
        if publication_of(run) is None:
            raise LostRaceError(
                str(target), "to be the only attempt to publish this run", "another one that went ahead",
                "try again, to find what it has published",
            ) from None  # fmt: skip
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy(run: RunDirectory, result: StepCommit, draft: Path) -> None:
    """The committed files, under plain names."""
    ending = run.job().spec.output.format
    for number, file in enumerate(result.of_kind("published") or result.of_kind("result")):
        run.verify(file)
        copy = str(draft / f"part-{number:05d}.{ending}")
        run.fs.get_file(f"{run.root}/{file.path}", copy)
        run.verify_copy(file, copy)


def _drafts_of(run: RunDirectory, target: Path) -> str:
    """How the names of all drafts of a run begin."""
    return f".{target.name}.{hashlib.sha256(run.root.encode()).hexdigest()[:16]}."


def _withdraw_drafts(run: RunDirectory, target: Path, but: Path | None = None) -> None:
    """Take away what other attempts of the run have drafted: they were killed, or are late.

    A draft that is half removed must not be published, so it loses its name first.
    """
    for other in target.parent.iterdir():
        if not other.name.startswith(_drafts_of(run, target)) or other == but:
            continue
        withdrawn = other if other.name.endswith(_WITHDRAWN) else other.with_name(f"{other.name}{_WITHDRAWN}")
        try:
            other.rename(withdrawn)
        except FileNotFoundError:
            continue  # its owner was faster
        shutil.rmtree(withdrawn, ignore_errors=True)


def _exchange(draft: Path, target: Path) -> None:
    """Put ``draft`` in the place of ``target`` at once; what was there ends up at ``draft``."""
    if not target.exists():
        try:
            draft.rename(target)
        except OSError as err:
            # Another run that publishes the day for the first time too may come in between.
            if err.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
        else:
            return
    if _renamed_across(draft, target):
        return
    # A file system without exchange (NFS): two renames, and for an instant no result.
    aside = draft.with_name(f"{draft.name}.old")
    target.rename(aside)
    draft.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _renamed_across(draft: Path, target: Path) -> bool:
    """Exchange two folders by Linux's ``renameat2``; False where that is not to be had."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code), str(target))
