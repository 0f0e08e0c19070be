"""The figures of a run beside the bands of the nights that were published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Literal

from skewless.documents.job import Job
from skewless.documents.nights import Band, Bands, JobNights, Measured
from skewless.documents.quality import Check
from skewless.errors import SkewlessError
from skewless.history.bands import Figure, left, usual
from skewless.history.figures import shape_of
from skewless.history.store import NightsStore
from skewless.spec.part import Part

#: What a check is called that fails a run as a band was left.
WITHIN = "within_the_band"


def judged(job: Job, figures: Mapping[str, Measured], store: Callable[[Job], NightsStore]) -> Bands | None:
    """Each figure beside its band; None if the spec switches bands off. Nights that cannot be read pass nothing."""
    asked = job.spec.quality.bands
    if asked == "off":
        return None
    outcome: Literal["warned", "failed"] = "failed" if asked == "fail" else "warned"
    try:
        nights = store(job).newest()
    except (SkewlessError, OSError) as err:
        return Bands(problem=str(err), outcome=outcome)
    return bands_of(job.part, shape_of(job), figures, nights, outcome)


def bands_of(
    part: Part, shape: str, figures: Mapping[str, Measured], nights: JobNights, outcome: Literal["warned", "failed"]
) -> Bands:
    """The same, of some nights: a night of the part itself, or of another shape, is not looked at."""
    known = [one for one in nights.nights if one.shape == shape and one.part != part.name]
    checks = []
    for name, (value, of) in figures.items():
        earlier = [Figure(_day(one.part), *one.figures[name]) for one in known if name in one.figures]
        band = usual(earlier, part.date.toordinal(), of)
        if band is not None:
            low, middle, high, count, by_weekday = band
            checks.append(
                Band(
                    figure=name, share=of > 0, value=value, low=low, middle=middle, high=high, nights=count,
                    by_weekday=by_weekday, outcome=outcome if left(band, value) else "passed",
                )
            )  # fmt: skip
    return Bands(nights=len(known), checks=tuple(checks))


def _day(part: str) -> int:
    return dt.date.fromisoformat(part.partition("T")[0]).toordinal()


def failed_checks(bands: Bands | None) -> list[Check]:
    """What fails the run: bands that were left, or could not be judged, where the spec has ``bands: fail``."""
    if bands is None:
        return []
    found = [(one.figure, f"{one.value:g}", one.sentence) for one in bands.checks if one.outcome == "failed"]
    if bands.outcome == "failed":
        found.append(("each figure", "", bands.problem))
    return [
        Check(
            subject="bands", expectation=WITHIN, column=figure, success=False, observed=value,
            sentence=f"{WITHIN}({figure}): {words.removeprefix(f'{figure}: ')}",
        )
        for figure, value, words in found
    ]  # fmt: skip
