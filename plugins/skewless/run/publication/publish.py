"""The steps of a publication, in an order in which a kill after any of them does no harm."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from pathlib import Path

from skewless.documents.commit import StepCommit
from skewless.documents.job import Job
from skewless.documents.quality import QualityReport
from skewless.errors import LostRaceError, QualityError, RunDirectoryError
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.run.publication.exchange import exchange, make_folder, sync_folder
from skewless.run.publication.places import (
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
    PUBLISHED,
    Identity,
    Overtaken,
    Publication,
    identity_of,
    manifest_of,
    published_path,
    record_of,
)
from skewless.run.publication.turns import Standing, Turns
from skewless.run.publication.versions import build, lies_whole


def publish(run: RunDirectory, turns: Turns, now: dt.datetime) -> Publication:
    """Publish a validated result, unless a later run of the day has published.

    It may be killed, paused and called again at any moment, by several processes at once. If the run's version lies in
    the published folder, whole, nothing changes; if it was damaged since, it is repaired from the committed result,
    unless a later run has published.

    Args:
        run: its directory.
        turns: of the output folder's days: ``Turns(open_store(turns_folder(job.output_path)))``.
        now: the time; old versions are kept for ``output.grace_hours`` from when they were replaced.

    Returns:
        The record; its ``superseded`` says by whom, if a later run has published.

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
    job, result = run.job(), run.committed(RESULT_STEP)
    require_passed(run, run.committed_document(run.committed(QUALITY_STEP), QUALITY_REPORT, QualityReport))
    place, record = place_of(job), record_of(run)
    if record is not None and record.superseded:
        return record
    try:
        return (yield from _Publisher(run, job, result, place, turns, now).steps(record))
    except OSError as err:
        came = err.strerror or type(err).__name__
        raise RunDirectoryError.saying(
            str(place.target), f"the day cannot be published ({came})", "mend that, and publish again"
        ) from None


class _Publisher:
    """One attempt to publish a run."""

    def __init__(
        self, run: RunDirectory, job: Job, result: StepCommit, place: Place, turns: Turns, now: dt.datetime
    ) -> None:
        self.run, self.job, self.result, self.place, self.turns, self.now = run, job, result, place, turns, now
        self.me = identity_of(run)

    def steps(self, record: Publication | None) -> Generator[str, None, Publication]:
        repair(self.place)
        standing = self._recalled(self.turns.look(self.place.day))
        if (over := self._overtaken(standing)) is not None:
            return record or self._superseded(over)
        lying = manifest_of(self.place.target)
        if record is not None and lying is not None and lying.turn > self.job.turn:
            return record  # a later run is publishing just now
        if not lies_whole(self.place, self.me):
            over = yield from self._exchanged()
            if over is not None:
                return record or self._superseded(over)
        elif record is not None:
            return record
        sync_folder(self.place.target)
        sync_folder(self.place.target.parent)
        yield "made durable"
        standing = self.turns.finish(self.place.day, self.job.turn, str(self.me))
        yield "finished"
        if (over := self._overtaken(standing)) is not None:
            return record or self._superseded(over)
        self._require_mine(standing.finisher)
        record = self._recorded(None)
        yield "recorded"
        self._sweep()
        return record

    def _exchanged(self) -> Generator[str, None, Overtaken | None]:
        """Build a draft, claim the turn and exchange the folders; returns by whom the run is superseded, if it is."""
        place, turn, allow_gap = self.place, self.job.turn, self.job.spec.output.allow_gap
        make_beside(self.job.output_path)
        make_folder(place.drafts)
        make_folder(place.target.parent)
        draft: Path | None = None
        try:
            draft = build(self.run, self.result, place, self.me, turn)
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
        path, turn = published_path(self.job), self.job.turn
        rows, keys = self.result.count("rows"), self.result.count("keys")
        self.run.write_once(PUBLISHED, Publication(path=path, rows=rows, keys=keys, turn=turn, superseded=over))
        return self.run.read(PUBLISHED, Publication)

    def _superseded(self, over: Overtaken) -> Publication:
        clear_drafts(self.place, self.job.turn, self.now)
        return self._recorded(over)

    def _sweep(self) -> None:
        """Remove what earlier attempts have left, and old versions past their grace period."""
        clear_drafts(self.place, self.job.turn, self.now)
        grace = dt.timedelta(hours=self.job.spec.output.grace_hours)
        for version in past_grace(self.place.beside, self.now, grace):
            remove(version.folder)


def _where(who: str) -> str:
    return who.partition(" ")[2] or who


def require_passed(run: RunDirectory, report: QualityReport) -> None:
    """Refuse a result that failed its validation.

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
