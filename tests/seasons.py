"""How often bands are left without a fault, and how often faults leave them: ``python -m tests.seasons --table FILE``.

A season is ``NIGHTS`` nights of a made-up job: a weekly pattern, a trend, noise with tails, and holidays. Of each night
the band is made of all nights before it, and tonight's figure is held against it as it is, and with a fault in it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.history.bands import Figure, left, usual

SEASONS, NIGHTS, SEED = 200, 120, 20261127
#: Nights of the first three weeks have a band of all weekdays.
EARLY = 21
FAULTS = {"half of the rows missing": 0.5, "rows doubled": 2.0}
NULLS = "nulls five times as many"


class Season(NamedTuple):
    """The rows of each night, those without a key, and which nights are holidays."""

    rows: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]
    holidays: npt.NDArray[np.bool_]


def season(random: np.random.Generator) -> Season:
    """A season at random: weekends at 30 to 100 %, up to ±1 % a week, noise of 3 to 12 %, holidays at 50 to 80 %."""
    days = np.arange(NIGHTS)
    week = np.ones(7)
    week[5:] = random.uniform(0.3, 1.0)
    week *= np.exp(random.normal(0, 0.05, 7))
    trend = np.exp(days / 7 * random.uniform(-0.01, 0.01))
    spread = random.uniform(0.03, 0.12)
    noise = np.exp(spread * random.standard_t(5, NIGHTS) / np.sqrt(5 / 3))
    holidays = random.random(NIGHTS) < 1 / 40
    dip = np.where(holidays, random.uniform(0.5, 0.8, NIGHTS), 1.0)
    rows = np.round(10 ** random.uniform(4, 8) * week[days % 7] * trend * noise * dip).astype(np.int64)
    share = 10 ** random.uniform(-3, -1.5) * np.exp(0.15 * random.standard_normal(NIGHTS))
    return Season(rows, random.binomial(rows, np.minimum(share, 1.0)), holidays)


def played(one: Season) -> Iterator[tuple[str, str, bool]]:
    """Of each night that has bands: since when, what was tried, and whether a band was left."""
    rows = [Figure(day, float(count)) for day, count in enumerate(one.rows)]
    shares = [Figure(day, nulls / count, count) for day, (nulls, count) in enumerate(zip(one.nulls, one.rows))]
    for day in range(NIGHTS):
        of_rows, of_nulls = usual(rows[:day], day), usual(shares[:day], day, int(one.rows[day]))
        if of_rows is None or of_nulls is None:
            continue
        when = "early" if not of_rows.by_weekday else "later"
        kind = "holiday" if one.holidays[day] else "ordinary night"
        yield when, f"{kind}, rows", left(of_rows, rows[day].value)
        yield when, f"{kind}, nulls", left(of_nulls, shares[day].value)
        if one.holidays[day]:
            continue
        for fault, factor in FAULTS.items():
            yield when, fault, left(of_rows, rows[day].value * factor)
        yield when, NULLS, left(of_nulls, min(1.0, 5 * shares[day].value))


def measured(seasons: int = SEASONS) -> dict[tuple[str, str], tuple[int, int]]:
    """How often a band was left, and of how many nights, by when and what."""
    random, tried, out = np.random.default_rng(SEED), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for _ in range(seasons):
        for when, what, is_left in played(season(random)):
            tried[when, what] += 1
            out[when, what] += is_left
    return {key: (out[key], tried[key]) for key in sorted(tried)}


if __name__ == "__main__":
    import time

    t = time.time()
    for k, (a, b) in measured().items():
        print(k, a, b, f"{a / b:.4%}")
    print(time.time() - t)
