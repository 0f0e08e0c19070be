"""Whether the figures of a night are as usual: beside the median of its weekday, and how far nights lie from theirs.

A band needs ``FEWEST`` nights, ``SAME`` of them of the weekday; it looks at the ``MOST`` nearest by day, so that an old
day that is computed again is compared with the days around it. Figures are compared as logarithms where all are above
zero: a half and a double are equally far away. The middle is the median of the weekday. To either side it reaches
``WIDTH`` standard deviations, estimated by the median distance of all nights from the median of their weekday (times
1.4826, as in a normal distribution), and at least ten per cent. ``tests/seasons.py`` measures how often bands are left.

Nights are kept beside the output of a job, so that they outlast run directories:

FOLDER/0007.json      all that is kept, whole; the highest number counts

A change is the next number, and the first writer wins: who comes second changes what the first has written. A few
numbers before the newest stay, and the older ones are removed. Each hour of the day has a folder of its own.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np

from skewless.documents.job import Job
from skewless.documents.ledger import Ledger
from skewless.documents.nights import Band, Bands, JobNights, Measured
from skewless.documents.quality import Check
from skewless.documents.stage_report import StageReport
from skewless.errors import RunDirectoryError, SkewlessError
from skewless.run.storage import Storage

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
    what = spec.model_dump(mode="json", include={"key", "aggregates", "map"}) | {"windows": spec.lengths}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def judged(job: Job, figures: Mapping[str, Measured], store: Callable[[Job], NightsStore]) -> Bands | None:
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


#: So many documents stay.
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
