"""What a spec expects of its input, whether the figures of a night are as usual, and which days are final.

A band needs ``FEWEST`` nights, ``SAME`` of them of the weekday; it looks at the ``MOST`` nearest by day, so that an
old day that is computed again is compared with the days around it. Figures are compared as logarithms where all are
above zero: a half and a double are equally far away. The middle is the median of the weekday. To either side it
reaches ``WIDTH`` standard deviations, estimated by the median distance of all nights from the median of their weekday
(times 1.4826, as in a normal distribution), and at least ten per cent. ``tests/seasons.py`` measures how often bands
are left.

Nights are kept beside the output of a job, so that they outlast run directories:

FOLDER/0007.json      all that is kept, whole; the highest number counts

A change is the next number, and the first writer wins: who comes second changes what the first has written. A few
numbers before the newest stay, and the older ones are removed. Each hour of the day has a folder of its own.

Each publication notes the rows that the days of its window have by then, with the age of each day: so many days after
it. A day is final with the age ``final_after``, whatever came of it, and that is told once, by the first run from then
on, however late. Which share of its rows a day has at an age is the median over the days that are final.
"""

import datetime as dt
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from skewless.documents.job import InputFacts, Job
from skewless.documents.ledger import Ledger
from skewless.documents.nights import (
    MOST_NIGHTS,
    Arrivals,
    Band,
    Bands,
    Came,
    FinalDay,
    Finality,
    JobNights,
    Measured,
    Night,
)
from skewless.documents.quality import Check
from skewless.documents.stage_report import StageReport
from skewless.errors import RunDirectoryError, SkewlessError, SpecError, nearest
from skewless.run.storage import Storage
from skewless.spec.spec import JobSpec

FEWEST, SAME, MOST = 8, 3, 35
#: Half of a band in standard deviations, and at least, as a logarithm: ten per cent.
WIDTH, LEAST = 5.5, float(np.log(1.1))
_DEVIATION = 1.4826
#: Events are added to those of a share: of no nulls to a few is no large step. Half of a band is at least so many of
#: the standard deviations of events that come independently.
_EVENTS, _INDEPENDENT = 10.0, 4.0
#: The logarithm of what is still a number.
_LARGEST = 700.0
#: What a check is called that fails a run as a band was left.
WITHIN = "within_the_band"


class Figure(NamedTuple):
    """A figure of one night: the ordinal of its day, the figure, and for a share of rows of how many."""

    day: int
    value: float
    of_rows: int = 0


class Usual(NamedTuple):
    """A band, inclusive, and its middle; and of how many nights."""

    low: float
    middle: float
    high: float
    nights: int


@np.errstate(over="ignore", invalid="ignore")
def usual(nights: Sequence[Figure], day: int, of_rows: int = 0) -> Usual | None:
    """The band of a figure on a day; None with too few nights, or where it is beyond all numbers.

    Args:
        nights: each of another day, and none of the day itself.
        of_rows: of a share, the rows of the day.
    """
    near = sorted(nights, key=lambda night: (abs(night.day - day), night.day))[:MOST]
    weekdays = np.array([night.day % 7 for night in near], dtype=np.int64)
    own = weekdays == day % 7
    if len(near) < FEWEST or own.sum() < SAME:
        return None
    values = np.array([night.value for night in near], dtype=np.float64)
    shift = _EVENTS / max(1.0, float(np.median([night.of_rows for night in near]))) if of_rows else 0.0
    logs = bool((values + shift > 0).all())
    scaled = np.log(values + shift) if logs else values
    medians = {weekday: np.median(scaled[weekdays == weekday]) for weekday in set(weekdays.tolist())}
    distances = np.abs(scaled - np.array([medians[weekday] for weekday in weekdays.tolist()]))
    # Few nights of a weekday are near to their own median, and tonight is not among them.
    deviation = _DEVIATION * float(np.median(distances)) * (1 + 2 * len(medians) / len(near))
    middle, half = float(medians[day % 7]), WIDTH * deviation
    half = max(half, LEAST if logs else LEAST * float(np.median(np.abs(values))))
    if of_rows:
        half = max(half, _INDEPENDENT / np.sqrt(max(0.0, np.exp(middle) - shift) * of_rows + _EVENTS))
    ends = [middle - half, middle, middle + half]
    if logs:
        ends = [max(0.0, float(np.exp(min(end, _LARGEST))) - shift) for end in ends]
    return Usual(ends[0], ends[1], ends[2], len(near)) if np.isfinite(ends).all() else None


def figures_of(
    job: Job,
    reports: Sequence[StageReport],
    ledger: Ledger,
    keys: int,
    columns: Mapping[str, tuple[int | None, float | None]],
) -> dict[str, Measured]:
    """The figures of a run by what they are, in words. What was not counted is not among them.

    Args:
        columns: of aggregates by name, how many of their values are null, and the mean of numbers; None if not known.
    """
    rows = next((line.rows for line in ledger.parts if line.part == job.part.name), ledger.state_rows)
    figures: dict[str, Measured] = {"rows": (rows, 0), "keys": (keys, 0)}
    histogram = reports[-1].histogram if reports else None
    if histogram is not None and histogram.seen_rows:
        seen = histogram.seen_rows
        figures["rows without a key"] = (histogram.seen_null_rows / seen, seen)
        if histogram.head:
            figures["rows of the heaviest key"] = (max(of_key for of_key, _ in histogram.head.values()) / seen, seen)
    for name, (nulls, mean) in columns.items():
        if keys and nulls is not None:
            figures[f"keys without {name}"] = (nulls / keys, keys)
        if mean is not None:
            figures[f"mean of {name}"] = (mean, 0)
    return figures


def shape_of(job: Job) -> str:
    """A digest of what the figures of a job are of: nights of another key, say, cannot be compared with them."""
    spec = job.spec
    what = spec.model_dump(mode="json", include={"key", "aggregates", "map"}) | {"windows": spec.covered.lengths}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def judged(job: Job, figures: Mapping[str, Measured], store: Callable[[Job], "NightsStore"]) -> Bands | None:
    """Each figure beside its band; None if the spec switches bands off. Nights that cannot be read pass nothing.

    A night of the part itself, or of another shape, is not looked at.
    """
    if job.spec.quality.bands == "off":
        return None
    outcome: Literal["warned", "failed"] = "failed" if job.spec.quality.bands == "fail" else "warned"
    try:
        nights = store(job).newest().nights
    except (SkewlessError, OSError) as err:
        return Bands(problem=str(err), outcome=outcome)
    shape, checks = shape_of(job), []
    known = [night for night in nights if night.shape == shape and night.part != job.part.name]
    days = [dt.date.fromisoformat(night.part.partition("T")[0]).toordinal() for night in known]
    for name, (value, of_rows) in figures.items():
        dated = zip(days, known, strict=True)
        earlier = [Figure(day, *night.figures[name]) for day, night in dated if name in night.figures]
        band = usual(earlier, job.date.toordinal(), of_rows)
        if band is not None:
            verdict = "passed" if band.low <= value <= band.high else outcome
            checks.append(Band(figure=name, share=of_rows > 0, value=value, outcome=verdict, **band._asdict()))
    return Bands(nights=len(known), checks=tuple(checks))


def failed_checks(bands: Bands | None) -> list[Check]:
    """What fails the run: bands that were left, or could not be judged, where the spec has ``bands: fail``."""
    if bands is None:
        return []
    failed = [(band.figure, f"{band.value:g}", band.sentence) for band in bands.checks if band.outcome == "failed"]
    if bands.outcome == "failed":
        failed.append(("each figure", "", bands.problem))
    return [
        Check(
            subject="bands", expectation=WITHIN, column=figure, success=False, observed=value,
            found=sentence.removeprefix(f"{figure}: "),
        )
        for figure, value, sentence in failed
    ]  # fmt: skip


KEPT = 4
_NUMBER = re.compile(r"(\d{4,})\.json")


class NightsStore(Storage):
    """The nights of a job. See ``Storage`` for its arguments."""

    def newest(self) -> JobNights:
        """What is kept; a ``DocumentError`` if the newest document is damaged: without it, the one before counts."""
        return self._listed()[1]

    def change(self, changed: Callable[[JobNights], JobNights]) -> JobNights:
        """Change what is kept, and return it. The change must be one that has no effect when it is made again.

        It is looked at again after it was written: a writer that slept for long may have taken a number that others
        had gone past and removed.
        """
        while True:
            numbers, now = self._listed()
            if (then := changed(now)) == now:
                return now
            number = numbers[-1] + 1 if numbers else 1
            if not numbers:  # as the umask says: other users publish and validate, too
                self.fs.makedirs(self.root, exist_ok=True)
            if self.write_once(_name(number), then):
                for old in numbers[: -(KEPT - 1)]:
                    with suppress(OSError):
                        self.fs.rm_file(f"{self.root}/{_name(old)}")

    def _listed(self) -> tuple[list[int], JobNights]:
        """The numbers that there are, and the document of the last one; listed again if others removed it meanwhile."""
        while numbers := self._numbers():
            try:
                return numbers, self.read(_name(numbers[-1]), JobNights)
            except RunDirectoryError:
                if numbers[-1] in self._numbers():
                    raise
        return [], JobNights()

    def _numbers(self) -> list[int]:
        try:
            entries = self.fs.ls(self.root, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        matches = (_NUMBER.fullmatch(str(entry).rpartition("/")[2]) for entry in entries)
        return sorted(int(match[1]) for match in matches if match)


def _name(number: int) -> str:
    return f"{number:04d}.json"


#: Whether it holds, or None if that is not known; what was observed; and in words.
Outcome = tuple[bool | None, str, str]
_LEFT_OUT = "files that no row of the condition is in were left out"


def _exists(facts: InputFacts, *, column: str) -> Outcome:
    kind = facts.columns.get(column, "")
    return bool(kind), kind or "none", f"of type {kind}" if kind else "no such column"


def _is_of_type(facts: InputFacts, *, column: str, type_: str) -> Outcome:
    there, kind, message = _exists(facts, column=column)
    return there and kind == "".join(type_.lower().split()), kind, message


def _not_null(facts: InputFacts, *, column: str, mostly: float = 1) -> Outcome:
    rows, nulls = facts.rows, facts.nulls.get(column)
    if nulls is None or rows is None:
        there, observed, message = _exists(facts, column=column)
        uncounted = f"nulls are not counted of a column of this kind, or as {_LEFT_OUT}"
        return (None, "", uncounted) if there else (False, observed, message)
    good = rows - nulls >= Decimal(str(mostly)) * rows
    return good, f"{nulls:,}", f"{nulls:,} of {rows:,} rows are null ({nulls / max(rows, 1):.2%})"


def _between(facts: InputFacts, *, min_value: float | None = None, max_value: float | None = None) -> Outcome:
    if (rows := facts.rows) is None:
        return None, "", f"its rows are not counted: {_LEFT_OUT}"
    good = (min_value is None or rows >= min_value) and (max_value is None or rows <= max_value)
    return good, f"{rows:,}", f"{rows:,} rows"


NULLS, BETWEEN = "expect_column_values_to_not_be_null", "expect_table_row_count_to_be_between"
#: All that may be expected of an input, by Great Expectations' names.
KINDS: dict[str, Callable[..., Outcome]] = {
    "expect_column_to_exist": _exists,
    "expect_column_values_to_be_of_type": _is_of_type,
    NULLS: _not_null,
    BETWEEN: _between,
}


def asked_columns(spec: JobSpec) -> dict[str, bool]:
    """The columns of the input that are asked for, and whether their nulls are."""
    with_nulls = {one.kwargs.get("column") for one in spec.quality.input if one.type == NULLS}
    return {name: name in with_nulls for one in spec.quality.input if (name := one.kwargs.get("column")) is not None}


def asks_rows(spec: JobSpec) -> bool:
    """Whether an expectation needs the number of rows: to judge it, or a share of it."""
    return any(one.type in {NULLS, BETWEEN} for one in spec.quality.input)


def check_input_expectations(spec: JobSpec, where: str) -> None:
    """Refuse what cannot be expected of an input before it is read; a ``SpecError`` names the first."""
    hint = "expect it of the result, in quality.expectations"
    for position, one in enumerate(spec.quality.input):
        spot = f"{where}, field quality.input.{position}"
        if one.type not in KINDS:
            raise SpecError(f"{spot}.type", "what is known before an input is read", one.type, nearest(one.type, KINDS))
        arguments = inspect.signature(KINDS[one.type])
        try:
            arguments.bind(None, **one.kwargs)
            fits = all(_fits(name, value) for name, value in one.kwargs.items())
        except TypeError:
            fits = False
        if not fits:
            names = ", ".join(list(arguments.parameters)[1:]) or "no arguments"
            raise SpecError(f"{spot}.kwargs", f"{names}, names as texts and numbers of rows", str(one.kwargs)[:120])
        if one.type == NULLS and spec.covered.lengths:
            raise SpecError(f"{spot}.type", "no window, as kept states do not know nulls", "a window", hint)
        if one.type == BETWEEN and spec.map is not None and spec.covered.lengths:
            raise SpecError(f"{spot}.type", "no map, as kept states know the rows behind it", "a map", hint)


def _fits(name: str, value: object) -> bool:
    if name in {"column", "type_"}:
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and (name != "mostly" or 0 <= value <= 1)


def input_checks(job: Job) -> Iterator[Check]:
    """What is expected of the input of a job, each with its verdict. What is not known never counts as passed."""
    for one in job.spec.quality.input:
        holds, observed, message = KINDS[one.type](job.facts or InputFacts(), **one.kwargs)
        required = ", ".join(f"{name}={value}" for name, value in one.kwargs.items() if name != "column")
        yield Check(
            subject="input", expectation=one.type, column=one.kwargs.get("column", ""), success=bool(holds),
            required=required, observed=observed, found=message, severity="fail" if holds is None else one.severity,
        )  # fmt: skip


#: Final days that a share needs.
FINAL_DAYS = 10


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
        share=median(share_at(came, age) for came in final) if len(final) >= FINAL_DAYS and age >= 0 else None,
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
