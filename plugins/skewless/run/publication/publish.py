"""The steps of a publication, in an order in which a kill after any of them does no harm."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from fsspec.implementations.local import LocalFileSystem

from skewless.documents.commit import CommittedFile, StepCommit
from skewless.documents.job import Job
from skewless.documents.quality import QualityReport
from skewless.errors import LostRaceError, QualityError, RunDirectoryError, SkewlessError
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.run.publication.exchange import exchange, make_folder, require_exchange, sync_file, sync_folder
from skewless.run.publication.places import (
    BUILDING,
    Place,
    clear_drafts,
    keep,
    make_beside,
    past_grace,
    place_of,
    remove,
    repair,
)
from skewless.run.publication.records import (
    MANIFEST,
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
from skewless.run.storage import content_checksum


class Standing(Protocol):
    """Who has claimed and finished the latest turns of a day; see ``skewless_leases.ownership.turns``."""

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
    """The turns of the days of an output folder; the caller brings them (``skewless_leases.Turns``)."""

    def draw(self, above: int = 0) -> int:
        """The next turn, higher than ``above``."""

    def look(self, name: str) -> Standing:
        """The standing of a day."""

    def claim(self, name: str, turn: int, who: str) -> Standing:
        """Claim a turn, unless a later one is claimed; the standing after that."""

    def finish(self, name: str, turn: int, who: str) -> Standing:
        """Finish a turn, unless a later one is finished; the standing after that."""


def draw_turn(output_path: str, turns: Turns, *, allow_gap: bool, above: int = 0) -> int:
    """Draw the turn of a run whose input is about to be pinned, above a turn that is known to have been drawn.

    The turn is drawn before the input is listed. So the run with the latest turn lists its input after all others have
    drawn theirs, however long a run takes between the two.

    Raises:
        SpecError: the file system cannot exchange folders, and the spec does not allow a gap.
        RunDirectoryError: nothing can be published there.
    """
    try:
        require_exchange(make_beside(output_path), allow_gap=allow_gap)
    except OSError as err:
        came = err.strerror or type(err).__name__
        raise RunDirectoryError.saying(output_path, f"no folder can be made beside it ({came})") from None
    return turns.draw(above)


def shown_turn(job: Job) -> int:
    """The turn in the published folder of a job's day; 0 if none.

    A run that is about to begin with no later one lists its input again, in a turn above it: the store of turns was
    lost, or a later run was faster.
    """
    lying = manifest_of(place_of(job).target)
    return lying.turn if lying is not None else 0


def publish(run: RunDirectory, turns: Turns, now: dt.datetime) -> Publication:
    """Publish a validated result, unless a later run of the day has published; ``superseded`` then says which.

    It may be killed, paused and called again at any moment, by several processes at once. If the run's version lies in
    the published folder, whole, nothing changes; if it was damaged since, it is repaired from the committed result,
    unless a later run has published. Old versions are kept for ``output.grace_hours`` from when they were replaced.

    Raises:
        QualityError: the result failed validation.
        RunDirectoryError: a step before this has not committed, the committed result is gone or damaged, or the
            folder cannot be written.
        SpecError: the file system cannot exchange folders, and the spec does not allow a gap.
        LostRaceError: another attempt or a later run is publishing, and is not done.
    """
    steps = publishing(run, turns, now)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            record: Publication = done.value
            return record


def publishing(run: RunDirectory, turns: Turns, now: dt.datetime) -> Generator[str, None, Publication]:
    """``publish``, step by step: yields the name of each step that is done; it may be stopped after any of them."""
    job, validated = run.job(), Validated.of(run)
    require_passed(run, validated.report)
    place, record = place_of(job), record_of(run)
    publisher = _Publisher(run, job, validated, place, turns, now)
    try:
        if record is not None and record.superseded:
            return publisher.settled(record)
        return (yield from publisher.steps(record))
    except OSError as err:
        came = err.strerror or type(err).__name__
        raise RunDirectoryError.saying(
            str(place.target), f"the day cannot be published ({came})", "mend that, and publish again"
        ) from None


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

    @property
    def files(self) -> dict[str, CommittedFile]:
        """The committed files of a version, by what their names in it begin with."""
        return {f"part-{number:05d}": file for number, file in enumerate(self.kept)} | {
            f"{QUARANTINE}/part-{number:05d}": file for number, file in enumerate(self.held)
        }


class _Publisher:
    def __init__(
        self, run: RunDirectory, job: Job, validated: Validated, place: Place, turns: Turns, now: dt.datetime
    ) -> None:
        self.run, self.job, self.validated, self.place, self.turns, self.now = run, job, validated, place, turns, now
        self.me = identity_of(run)

    def steps(self, record: Publication | None) -> Generator[str, None, Publication]:
        repair(self.place)
        standing = self._recalled(self.turns.look(self.place.day))
        if (over := self._overtaken(standing)) is not None:
            return self._superseded(over)
        lying = manifest_of(self.place.target)
        if record is not None and lying is not None and lying.turn > self.job.turn:
            return self.settled(record)  # a later run is publishing just now
        # Of this run, and as it was published.
        if lying is None or lying.by.job != self.me.job or faults_of(self.place.target, lying):
            over = yield from self._exchanged()
            if over is not None:
                return self._superseded(over)
        elif record is not None:
            return self.settled(record)
        sync_folder(self.place.target)
        sync_folder(self.place.target.parent)
        yield "made durable"
        standing = self.turns.finish(self.place.day, self.job.turn, str(self.me))
        yield "finished"
        if (over := self._overtaken(standing)) is not None:
            return self._superseded(over)
        self._require_mine(standing.finisher)
        record = self._recorded(None)
        yield "recorded"
        self.settled(record)
        for version in past_grace(self.place.beside, self.now, dt.timedelta(hours=self.job.spec.output.grace_hours)):
            remove(version.folder)
        return record

    def _exchanged(self) -> Generator[str, None, Overtaken | None]:
        """Build a draft, claim the turn and exchange the folders; returns by whom the run is superseded, if it is."""
        place, turn, allow_gap = self.place, self.job.turn, self.job.spec.output.allow_gap
        make_beside(self.job.output_path)
        make_folder(place.drafts)
        make_folder(place.target.parent)
        draft: Path | None = None
        try:
            draft = build(self.run, self.validated, place, self.me, turn)
            yield "built"
            # After the draft was made: whoever claims a later turn from now on finds the draft, and moves it away.
            standing = self.turns.claim(place.day, turn, str(self.me))
            yield "claimed"
            if (over := self._overtaken(standing)) is not None:
                remove(draft)
                return over
            if standing.claimed > turn:
                remove(draft)
                raise self._lost(f"turn {standing.claimed} of {_where(standing.claimant)}, which has not published yet")
            self._require_mine(standing.claimant)
            clear_drafts(place, turn, self.now, but=draft)
            yield "cleared"
            exchange(draft, place.target, allow_gap=allow_gap)
        except FileNotFoundError:
            if draft is not None and draft.exists():
                raise
            if (over := self._overtaken(self.turns.look(place.day))) is not None:
                return over
            raise self._lost("another attempt or run, which moved the draft away") from None
        yield "exchanged"
        sync_folder(place.drafts)
        keep(place, draft, self.now)
        return None

    def _recalled(self, standing: Standing) -> Standing:
        """The standing of the day; if the store of turns was lost, the published folder knows it."""
        lying = manifest_of(self.place.target)
        if lying is None or lying.turn <= standing.claimed:
            return standing
        return self.turns.finish(self.place.day, lying.turn, str(lying.by))

    def _overtaken(self, standing: Standing) -> Overtaken | None:
        if standing.finished <= self.job.turn:
            return None
        by = Identity.parse(standing.finisher, f"turns of {self.place.day} in {self.place.beside}")
        return Overtaken(by=by, turn=standing.finished)

    def _require_mine(self, who: str) -> None:
        """Refuse a turn that two runs have drawn: the store of turns was lost in between."""
        if Identity.parse(who, f"turns of {self.place.day} in {self.place.beside}").job != self.me.job:
            raise RunDirectoryError.saying(
                f"turn {self.job.turn} of {self.place.target}", f"it belongs to {_where(who)}, not to this run",
                "the store of turns was lost or put back in between; begin a new run",
            )  # fmt: skip

    def _lost(self, came: str) -> LostRaceError:
        return LostRaceError(
            str(self.place.target), f"turn {self.job.turn} to be the last one claimed", came,
            "try again, to find what that has published; if it was given up, clear its publish task or begin a new run",
        )  # fmt: skip

    def _recorded(self, over: Overtaken | None) -> Publication:
        """Write the record. The first one counts: its attempt may have been overtaken before it wrote it."""
        path, turn, report = published_path(self.job), self.job.turn, self.validated.report
        rows, keys = self.validated.result.count("rows"), report.published_keys
        record = Publication(
            path=path, rows=rows, keys=keys, turn=turn, quarantined=report.quarantined_keys, superseded=over
        )
        self.run.write_once(PUBLISHED, record)
        return self.run.read(PUBLISHED, Publication)

    def _superseded(self, over: Overtaken) -> Publication:
        return self.settled(self._recorded(over))

    def settled(self, record: Publication) -> Publication:
        """What is recorded; another attempt of the run may have been killed since, and have left a draft."""
        clear_drafts(self.place, self.job.turn, self.now)
        return record


def _where(who: str) -> str:
    return who.partition(" ")[2] or who


def require_passed(run: RunDirectory, report: QualityReport) -> None:
    """Refuse a result that failed its validation: a ``QualityError`` names the failed checks, keys and numbers."""
    if not report.success:
        count, words = report.failed_words(len(run.job().spec.quality.expectations))
        raise QualityError.saying(count, words, f"the published result of the day is untouched; run {run}")


def build(run: RunDirectory, validated: Validated, place: Place, by: Identity, turn: int) -> Path:
    """Copy the committed files into a draft, on the disk.

    While it is built it has another name, so that a half of one is never taken for a version. A ``FileNotFoundError``
    says that somebody who has a say over it has moved the draft away.
    """
    name = f"{turn}-{secrets.token_hex(6)}"
    draft = place.drafts / name
    building = draft.with_name(f"{name}{BUILDING}")
    building.mkdir()
    try:
        _fill(building, run, validated, VersionManifest(by=by, turn=turn, name=name, files=()))
    except (SkewlessError, OSError):
        remove(building)
        raise
    building.rename(draft)
    sync_folder(place.drafts)
    return draft


def _fill(building: Path, run: RunDirectory, validated: Validated, version: VersionManifest) -> None:
    kind, files = run.job().spec.output.file_format, []
    if validated.held:  # here, once: a draft that is moved away meanwhile must not come again without its first files
        (building / QUARANTINE).mkdir()
    for begin, file in validated.files.items():
        run.verify(file)
        ending = "" if begin.startswith(QUARANTINE) else f".{kind}"
        copy = building / f"{begin}-{version.name}{ending}"
        run.fs.get_file(f"{run.root}/{file.path}", str(copy))
        sync_file(copy)
        files.append(_described(building, copy))
        if file.content and files[-1].sha256 != file.content:
            raise run.differs_from_commit(file, "other content")
    manifest = building / MANIFEST
    manifest.write_text(version.model_copy(update={"files": tuple(files)}).sealed(), encoding="utf-8")
    sync_file(manifest)
    if validated.held:
        sync_folder(building / QUARANTINE)
    sync_folder(building)


def faults_of(folder: Path, manifest: VersionManifest) -> list[str]:
    """What is not as the manifest says: files that are gone, were cut or changed, or that nobody published."""
    found = []
    for file in manifest.files:
        path = folder / file.name
        try:
            if path.stat().st_size != file.size_bytes:
                found.append(f"{file.name} has {path.stat().st_size:,} bytes, not {file.size_bytes:,}")
            elif _described(folder, path) != file:
                found.append(f"{file.name} has other content")
        except OSError as err:
            found.append(f"{file.name}: {err.strerror or type(err).__name__}")
    expected = {file.name for file in manifest.files}
    # What readers pass over is nothing to them: a marker that somebody put there, say.
    strange = sorted(one.name for one in folder.iterdir() if one.name not in expected and one.name[0] not in "._")
    return found + [f"{name} was not published" for name in strange]


def _described(folder: Path, path: Path) -> PublishedFile:
    sha256 = content_checksum(LocalFileSystem(), str(path))
    return PublishedFile(name=str(path.relative_to(folder)), size_bytes=path.stat().st_size, sha256=sha256)
