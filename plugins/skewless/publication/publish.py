"""A publication from top to bottom: turn, stage, exchange or commit, record. A kill after any step does no harm."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

from skewless.documents.commit import CommittedFile, StepCommit
from skewless.documents.quality import QualityReport
from skewless.errors import LostRaceError, QualityError, RunDirectoryError
from skewless.publication.records import (
    PUBLISHED,
    QUARANTINE,
    Identity,
    Overtaken,
    Publication,
    PublishedFile,
    VersionManifest,
    identity_of,
    manifest_of,
    published_path,
    record_of,
)
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory


class Standing(Protocol):
    """Who has claimed and finished the latest turns of a day; see ``skewless_leases.fence``."""

    @property
    def claimed(self) -> int:
        """The highest turn that may be exchanged."""

    @property
    def claimant(self) -> str:
        """Who claimed it."""

    @property
    def finished(self) -> int:
        """The highest turn that was published."""

    @property
    def finisher(self) -> str:
        """Who published in it."""


class Turns(Protocol):
    """The turns of the days of an output; the caller brings them (``skewless_leases.Turns``)."""

    def draw(self, above: int = 0) -> int:
        """The next turn, higher than ``above``."""

    def look(self, name: str) -> Standing:
        """The standing of a day."""

    def claim(self, name: str, turn: int, who: str) -> Standing:
        """Claim a turn, unless a later one is claimed; the standing after that."""

    def finish(self, name: str, turn: int, who: str) -> Standing:
        """Finish a turn, unless a later one is finished; the standing after that."""


class Commit(NamedTuple):
    """What became of an exchange or a commit."""

    number: int | None = None
    """Of a table, the snapshot or version in which the run's result is published."""
    over: Overtaken | None = None
    """By whom the run was superseded; None if it was published."""


@contextmanager
def in_a_sentence(path: str) -> Iterator[None]:
    """Errors of the file system or store of a day in one sentence."""
    try:
        yield
    except OSError as err:
        reason = err.strerror or type(err).__name__
        raise RunDirectoryError.saying(
            path, f"the day cannot be published ({reason})", "mend that, and publish again"
        ) from None


class Shown(NamedTuple):
    """What readers of a day have: where that is, in which turn it was published, and which run's result it is."""

    location: str
    turn: int
    by: Identity


class Target(ABC):
    """What one publication of a run replaces: the folder of a day, or a part of a table."""

    day: str
    """Its name in the store of turns."""
    where: str
    """Its name in messages."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.job, self.me = run, run.job(), identity_of(run)

    def plainly(self) -> AbstractContextManager[None]:
        """Errors of its file system, store or library in one sentence."""
        return in_a_sentence(self.where)

    def shown(self) -> Shown | VersionManifest | None:
        """What its readers have, as it says itself; None also where its history is looked up with each commit."""
        return manifest_of(self.where)

    def standing(self, turns: Turns) -> Standing:
        """The standing of its day: of a turn that the store of turns does not know, as it was lost, what it shows."""
        shown, standing = self.shown(), turns.look(self.day)
        if shown is None or shown.turn <= standing.claimed:
            return standing
        return turns.finish(self.day, shown.turn, str(shown.by))

    @abstractmethod
    def stands(self) -> bool:
        """Whether what the run has recorded as published, or what came after it, needs no repair."""

    @abstractmethod
    def replace(self, turns: Turns) -> Generator[str, None, Commit]:
        """Stage the committed result, and exchange or commit it, unless that was done; yields each step that is done.

        Raises:
            LostRaceError: another attempt or a later run is publishing, and is not done.
        """

    @abstractmethod
    def settle(self) -> None:
        """Remove what this run's attempts have left, and versions past their grace."""

    def claim(self, turns: Turns) -> Generator[str, None, Standing]:
        """Claim the run's turn once its version is built; the standing after that."""
        yield "built"
        standing = turns.claim(self.day, self.job.turn, str(self.me))
        yield "claimed"
        if standing.claimed == self.job.turn:
            self.require_mine(standing.claimant)
        return standing

    def overtaken(self, standing: Standing) -> Overtaken | None:
        """By whom the run's turn was overtaken, if a later one is finished."""
        if standing.finished <= self.job.turn:
            return None
        return Overtaken(by=Identity.parse(standing.finisher, f"turns of {self.day}"), turn=standing.finished)

    def superseded(self, standing: Standing, winner: str = "") -> Commit:
        """By whom the run is superseded; a ``LostRaceError`` if whoever has claimed the day has not published yet."""
        if (over := self.overtaken(standing)) is not None:
            return Commit(over=over)
        later = f"turn {standing.claimed} of {standing.claimant.partition(' ')[2]}, which has not published yet"
        raise LostRaceError(
            self.where, f"turn {self.job.turn} to be the last one claimed", winner or later,
            "try again, to find what that has published; if it was given up, clear its publish task or begin a new run",
        )  # fmt: skip

    def require_mine(self, who: str) -> None:
        """Refuse a turn that two runs have drawn: the store of turns was lost in between."""
        owner = Identity.parse(who, f"turns of {self.day}")
        if owner.job != self.me.job:
            raise RunDirectoryError.saying(
                f"turn {self.job.turn} of {self.day}", f"it belongs to {owner.run}, not to this run",
                "the store of turns was lost or put back in between; begin a new run",
            )  # fmt: skip


def publishing(run: RunDirectory, target: Target, turns: Turns) -> Generator[str, None, Publication]:
    """Publish a validated result, unless a later run of the day has published; ``superseded`` then says which.

    It may be killed, paused and called again at any moment, by several processes at once. If the result is published,
    whole, nothing changes; a folder that was damaged since is repaired, unless a later run has published.

    Yields:
        The name of each step that is done; it may be stopped after any of them.

    Raises:
        QualityError: the result failed validation.
        RunDirectoryError: a step before this has not committed, or what it wrote is gone or damaged.
        LostRaceError: another attempt or a later run is publishing, and is not done.
    """
    validated = Validated.of(run)
    require_passed(run, validated.report)
    with target.plainly():
        record = record_of(run)
        if record is None or (record.superseded is None and not target.stands()):
            commit = Commit(over=target.overtaken(target.standing(turns)))
            if commit.over is None:
                commit = yield from target.replace(turns)
            if commit.over is None:
                standing = turns.finish(target.day, target.job.turn, str(target.me))
                yield "finished"
                commit = commit._replace(over=target.overtaken(standing))
                if commit.over is None:
                    target.require_mine(standing.finisher)
            # The first record counts: its attempt may have been overtaken before it wrote it.
            run.write_once(PUBLISHED, _record(run, validated, commit))
            yield "recorded"
            record = run.read(PUBLISHED, Publication)
        target.settle()
    return record


def publish(steps: Generator[str, None, Publication]) -> Publication:
    """Do all steps of ``publishing``; the record of the publication."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            record: Publication = done.value
            return record


def require_passed(run: RunDirectory, report: QualityReport, readers: str = "") -> None:
    """Refuse a result that failed its validation: a ``QualityError`` names the failed checks, keys and numbers.

    Args:
        readers: which result of the day readers have, in words.
    """
    if not report.success:
        count, words = report.failed_words(len(run.job().spec.quality.expectations))
        raise QualityError.saying(
            count, words, f"nothing of this run is published{readers and f': {readers}'}; run {run}"
        )


def _record(run: RunDirectory, validated: "Validated", commit: Commit) -> Publication:
    job, report = run.job(), validated.report
    return Publication(
        path=published_path(job), rows=validated.result.count("rows"), keys=report.published_keys, turn=job.turn,
        quarantined=report.quarantined_keys, superseded=commit.over, snapshot=commit.number,
        withheld_rows=report.quarantine.rows if report.quarantine else 0,
    )  # fmt: skip


class Validated(NamedTuple):
    """A result with its verdict, and the commits of both."""

    result: StepCommit
    verdict: StepCommit
    report: QualityReport

    @classmethod
    def of(cls, run: RunDirectory) -> Self:
        """That of a run; a ``RunDirectoryError`` if one of the two is not committed."""
        verdict = run.committed(QUALITY_STEP)
        report = run.committed_document(verdict, QUALITY_REPORT, QualityReport)
        return cls(run.committed(RESULT_STEP), verdict, report)

    @property
    def held(self) -> tuple[CommittedFile, ...]:
        """The files of keys in quarantine."""
        return self.verdict.of_kind("quarantined")

    @property
    def apart(self) -> bool:
        """Whether it is the validation that has written what is published, as some keys are in quarantine, say."""
        return bool(self.verdict.of_kind("result"))

    @property
    def kept(self) -> tuple[CommittedFile, ...]:
        """The files of all other keys."""
        whole = self.verdict if self.apart else self.result
        return whole.of_kind("published") or whole.of_kind("result")

    def files(self, version: str, ending: str) -> dict[str, CommittedFile]:
        """The committed files of a version, by their names in it: those in quarantine have no ending."""
        return {f"part-{number:05d}-{version}.{ending}": file for number, file in enumerate(self.kept)} | {
            f"{QUARANTINE}/part-{number:05d}-{version}": file for number, file in enumerate(self.held)
        }


def copied(run: RunDirectory, version: str, begin: Callable[[str], Any]) -> Iterator[PublishedFile]:
    """Copy the committed files of a run, each into what ``begin`` opens under its name in a version.

    Raises:
        RunDirectoryError: one is gone, or is not the one that was committed.
    """
    for name, file in Validated.of(run).files(version, run.job().spec.output.file_format).items():
        size, checksum = run.copy(file, partial(begin, name))
        yield PublishedFile(name=name, size_bytes=size, sha256=checksum)
