"""What a publication adds to the nights of its job; and, of a job with ``final_after``, which days are final now.

Each publication notes the rows that the days of its window have by then, with the age of each day: so many days after
it. A day is final with the age ``final_after``, whatever came of it, and that is told once, by the first run from then
on, however late. Which share of its rows a day has at an age is the median over the days that are final.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from statistics import median

from skewless.documents.job import Job
from skewless.documents.ledger import Ledger
from skewless.documents.nights import MOST_NIGHTS, Arrivals, Came, FinalDay, Finality, JobNights, Measured, Night
from skewless.history.bands import shape_of

#: Final days that a share needs.
FEWEST = 10


def with_night(kept: JobNights, job: Job, figures: dict[str, Measured]) -> JobNights:
    """The nights with the figures of a run, unless a later run of its part is there; of the newest nights."""
    by_part = {night.part: night for night in kept.nights}
    before = by_part.get(job.part.name)
    if before is not None and before.turn >= job.turn:
        return kept
    by_part[job.part.name] = Night(part=job.part.name, turn=job.turn, shape=shape_of(job), figures=figures)
    nights = sorted(by_part.values(), key=lambda night: night.part)[-MOST_NIGHTS:]
    return kept.model_copy(update={"nights": tuple(nights)})


def tells_finality(job: Job) -> bool:
    """Whether days of a job are told to be final: it has a deadline for days, which it looks at for several nights.

    Where each day has an output of its own, nights lie apart, and none knows what another has told.
    """
    return job.spec.covered.final_after is not None and job.hour is None and "{date" not in job.spec.output.path


def with_run(kept: JobNights, job: Job, figures: dict[str, Measured], ledger: Ledger, clock_day: dt.date) -> JobNights:
    """The nights with all that a published run tells, unless a later run of its part is there. Twice is as once.

    Args:
        clock_day: the day by the clock: a run of a later day than the next one is a mistake, and makes no day final.
    """
    then = with_night(kept, job, figures)
    deadline = job.spec.covered.final_after
    superseded = all((night.part, night.turn) != (job.part.name, job.turn) for night in then.nights)
    if superseded or deadline is None or not tells_finality(job):
        return then
    today = _today(then, job, clock_day)
    known = _with_arrivals(then, job, ledger, today)[-MOST_NIGHTS:]
    for at, day in enumerate(known):
        age = today - day_of(day.part)
        if day.final is None and age >= deadline:
            final = FinalDay(part=day.part, delay=age, run=job.part.name, turn=job.turn)
            known[at] = day.model_copy(update={"final": final})
    return then.model_copy(update={"arrivals": tuple(known)})


def _with_arrivals(kept: JobNights, job: Job, ledger: Ledger, today: int) -> list[Arrivals]:
    """The days that are known, and those of a run's window with the rows that they have now; oldest first."""
    known = {day.part: day for day in kept.arrivals}
    rows = {line.part: line.rows for line in ledger.parts}
    for part in job.covered.parts:
        now, age = rows.get(part.name, 0) + (part.ignored_rows or 0), max(0, today - day_of(part.name))
        before = known.get(part.name)
        if before is None:
            known[part.name] = Arrivals(part=part.name, turn=job.turn, came=((age, now),))
        elif before.turn < job.turn:
            came = before.came if before.final or before.came[-1][1] == now else (*before.came, (age, now))
            known[part.name] = before.model_copy(update={"turn": job.turn, "came": came})
    return [known[part] for part in sorted(known)]


def finality_of(kept: JobNights, job: Job, clock_day: dt.date) -> Finality:
    """What a run tells, once its own rows are among those that are kept."""
    by_part = {day.part: day.final for day in kept.arrivals}
    mine, deadline = (job.part.name, job.turn), job.spec.covered.final_after
    age = _today(kept, job, clock_day) - job.date.toordinal()
    final = [day.came for day in kept.arrivals if day.final is not None and day.came[0][0] == 0]
    return Finality(
        part=job.part.name,
        share=median(share_at(came, age) for came in final) if len(final) >= FEWEST and age >= 0 else None,
        days=len(final),
        final_on=job.date + dt.timedelta(days=deadline) if deadline is not None else None,
        final=tuple(day for day in by_part.values() if day is not None and (day.run, day.turn) == mine),
        after={
            part.name: rows
            for part, _ in job.covered.late()
            if (final_day := by_part.get(part.name)) is not None
            and final_day.run != job.part.name  # a run of the day that told it: they had come
            and (rows := (part.late_rows or 0) + (part.ignored_rows or 0))
        },
    )


def share_at(came: Sequence[Came], age: int) -> float:
    """The share of its last rows that a day had at an age.

    Where rows were taken out again the share is that of those which stayed, as both are another result than the last.

    >>> [share_at([(0, 90), (2, 100)], age) for age in (1, 2)], share_at([(0, 100), (1, 80)], 0)
    ([0.9, 1.0], 0.8)
    """
    rows, last = [rows for seen, rows in came if seen <= age][-1], came[-1][1]
    return 1.0 if rows == last else min(rows, last) / max(rows, last)


def day_of(part: str) -> int:
    """The ordinal of a part's day."""
    return dt.date.fromisoformat(part).toordinal()


def _today(kept: JobNights, job: Job, clock_day: dt.date) -> int:
    """The newest day that was computed: an old day that is restated sees what is there now, not what was then."""
    days = [job.date.toordinal(), *(day_of(day.part) for day in kept.arrivals)]
    latest = clock_day.toordinal() + 1
    return max((day for day in days if day <= latest), default=latest)
