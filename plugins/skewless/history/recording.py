"""What a publication adds to the nights of its job, and what it can tell of finality then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Literal

from skewless.documents.job import Job
from skewless.documents.ledger import Ledger
from skewless.documents.nights import MOST_NIGHTS, Arrivals, FinalDay, Finality, JobNights, Measured, Night
from skewless.history.figures import shape_of
from skewless.history.finality import MOST_DAYS, Delays, day_of, delays_of, horizon_of

#: A day that has left the window is told to be final so many days later at most: if nights were missed meanwhile.
GRACE_DAYS = 7


def with_run(kept: JobNights, job: Job, figures: dict[str, Measured], ledger: Ledger) -> JobNights:
    """The same with all that a published run tells, unless a later run of its part is there. Twice is as once."""
    then = with_night(kept, job, figures)
    mine = any((one.part, one.turn) == (job.part.name, job.turn) for one in then.nights)
    if not mine:
        return kept
    return with_arrivals(then, job, ledger) if tells_finality(job) else then


def with_night(kept: JobNights, job: Job, figures: dict[str, Measured]) -> JobNights:
    """The same with the figures of a run, unless a later run of its part is there; of the newest nights."""
    by_part = {one.part: one for one in kept.nights}
    before = by_part.get(job.part.name)
    if before is not None and before.turn >= job.turn:
        return kept
    by_part[job.part.name] = Night(part=job.part.name, turn=job.turn, shape=shape_of(job), figures=figures)
    nights = sorted(by_part.values(), key=lambda one: one.part)[-MOST_NIGHTS:]
    return kept.model_copy(update={"nights": tuple(nights)})


def tells_finality(job: Job) -> bool:
    """Whether days of a job can be told to be final: it is one of days, which it looks at for more than one night.

    Where each day has an output of its own, nights lie apart, and none knows what another has told.
    """
    apart = "{date" in job.spec.output.path
    return job.window is not None and job.hour is None and not apart and horizon_of(job.spec.lengths[-1]) > 0


def with_arrivals(kept: JobNights, job: Job, ledger: Ledger) -> JobNights:
    """The same with the rows that the days of a run's window have now, and with those that are final now."""
    known = {one.part: one for one in kept.arrivals}
    today = _today(kept, job)
    rows = {line.part: line.rows for line in ledger.parts}
    for part in job.covered.parts:
        now, after = rows.get(part.name, 0) + (part.ignored_rows or 0), max(0, today - day_of(part.name))
        before = known.get(part.name)
        if before is None:
            known[part.name] = Arrivals(part=part.name, turn=job.turn, came=((after, now),))
        elif before.turn < job.turn:
            came = before.came
            if came[-1][1] != now and after <= MOST_DAYS:
                came = (*came, (after, now))
            known[part.name] = before.model_copy(update={"turn": job.turn, "came": came})
    delays = delays_of(list(known.values()), _nights(kept), horizon_of(job.spec.lengths[-1]))
    for one in list(_final(known, job, today, delays)):
        known[one.part] = known[one.part].model_copy(update={"final": one})
    arrivals = sorted(known.values(), key=lambda one: one.part)[-MOST_NIGHTS:]
    return kept.model_copy(update={"arrivals": tuple(arrivals)})


def _final(known: Mapping[str, Arrivals], job: Job, today: int, delays: Delays | None) -> Iterator[FinalDay]:
    deadline, seen = job.spec.covered.final_after, horizon_of(job.spec.lengths[-1])
    for part, one in known.items():
        after = today - day_of(part)
        by_curve = delays is not None and delays.final is not None and after >= delays.final
        by_deadline = deadline is not None and after >= deadline
        if one.final is None and after <= max(seen, deadline or 0) + GRACE_DAYS and (by_curve or by_deadline):
            by: Literal["curve", "deadline"] = "curve" if by_curve else "deadline"
            yield FinalDay(part=part, delay=after, by=by, run=job.part.name, turn=job.turn)


def finality_of(kept: JobNights, job: Job) -> Finality:
    """What a run tells, once its own rows are among those that are kept."""
    delays = delays_of(kept.arrivals, _nights(kept), horizon_of(job.spec.lengths[-1]))
    bounds = [one for one in (delays and delays.final, job.spec.covered.final_after) if one is not None]
    by_part = {one.part: one.final for one in kept.arrivals}
    mine = (job.part.name, job.turn)
    changed = {
        part.name: rows
        for part, _ in job.covered.late()
        if (final := by_part.get(part.name)) is not None
        and final.run != job.part.name  # another run of the same day has counted them
        and (rows := (part.late_rows or 0) + (part.ignored_rows or 0))
    }
    return Finality(
        part=job.part.name,
        share=delays.shares[0] if delays and _today(kept, job) == job.date.toordinal() else None,
        days=delays.days if delays else 0,
        delay=min(bounds, default=None),
        final_on=job.date + dt.timedelta(days=min(bounds)) if bounds else None,
        expected=delays.expected if delays and delays.final == min(bounds, default=None) else 0.0,
        final=tuple(final for final in by_part.values() if final is not None and (final.run, final.turn) == mine),
        after=changed,
    )


def _nights(kept: JobNights) -> set[int]:
    return {day_of(one.part) for one in kept.nights}


def _today(kept: JobNights, job: Job) -> int:
    """The newest day that was computed: an old day that is restated sees what is there now, not what was then.

    A day more than ``MOST_DAYS`` later than the run's own is a mistake, and is passed over.
    """
    own = job.date.toordinal()
    return max([own, *(day for one in kept.arrivals if (day := day_of(one.part)) <= own + MOST_DAYS)])
