"""How often bands are left without a fault, how often faults leave them, and how often a day is final too early.

``python -m tests.seasons --table docs/bands.md`` measures it and writes the figures into the page.

A season is ``NIGHTS`` nights of a made-up job: a weekly pattern, a trend, noise with tails, and holidays. Of each night
the band is made of all nights before it, and tonight's figure is held against it as it is, and with a fault in it.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.documents.nights import Arrivals
from skewless.history.bands import Figure, left, usual
from skewless.history.finality import SETTLED, curve_of, delays_of

SEASONS, NIGHTS, SEED = 200, 120, 20261127
FAULTS = {"half of the rows missing": 0.5, "rows doubled": 2.0}
NULLS = "rows without a key five times as many"
#: A day of a window of so many days is looked at for as long.
HORIZON = 27
#: Where the figures stand in the page.
BEGIN, END = "<!-- figures of tests.seasons -->\n", "<!-- end of figures -->\n"
#: What was measured: how often, of how many.
Rates = dict[tuple[str, str], tuple[int, int]]


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
    """Of each night that has bands: by which nights, what was tried, and whether a band was left."""
    rows = [Figure(day, float(count)) for day, count in enumerate(one.rows)]
    shares = [Figure(day, nulls / max(1, of), of) for day, (nulls, of) in enumerate(zip(*one[:2][::-1], strict=True))]
    for day in range(NIGHTS):
        of_rows, of_nulls = usual(rows[:day], day), usual(shares[:day], day, int(one.rows[day]))
        if of_rows is None or of_nulls is None:
            continue
        when = "by weekday" if of_rows.by_weekday else "all weekdays"
        kind = "a holiday" if one.holidays[day] else "no fault"
        yield when, f"{kind}: rows", left(of_rows, rows[day].value)
        yield when, f"{kind}: rows without a key", left(of_nulls, shares[day].value)
        if not one.holidays[day]:
            for fault, factor in FAULTS.items():
                yield when, fault, left(of_rows, rows[day].value * factor)
            yield when, NULLS, left(of_nulls, min(1.0, 5 * shares[day].value))


def shifted(random: np.random.Generator) -> int:
    """How many of the nights after a lasting step to 60 % of the rows are told."""
    rows = np.array(season(random).rows, dtype=np.float64)
    rows[60:] *= 0.6
    figures = [Figure(day, count) for day, count in enumerate(rows)]
    bands = [usual(figures[:day], day) for day in range(60, 80)]
    return sum(band is not None and left(band, figures[60 + at].value) for at, band in enumerate(bands))


def arrivals(random: np.random.Generator, kind: str) -> list[Arrivals]:
    """How the days of a season come: some rows are late, by a heavy tail of days; or all by the next Monday's batch."""
    found = []
    late, spread = random.uniform(0.005, 0.1), random.uniform(1.2, 3.0)
    for day in range(NIGHTS):
        rows = int(10 ** random.uniform(5, 6))
        delays = np.ceil(random.pareto(spread, random.binomial(rows, late)) + 1e-9)
        if kind == "weekly batch":
            delays = np.full(len(delays), (7 - day % 7) or 7)
        counts = np.bincount(np.minimum(delays.astype(int), HORIZON + 1), minlength=HORIZON + 2)
        had = rows - counts[1:].sum() + np.concatenate([[0], np.cumsum(counts[1 : HORIZON + 1])])
        came = [(at, int(count)) for at, count in enumerate(had) if at == 0 or count != had[at - 1]]
        found.append(Arrivals(part=dt.date.fromordinal(day + 1).isoformat(), came=tuple(came)))
    return found


def settled_in_time(random: np.random.Generator, kind: str) -> Iterator[tuple[str, str, bool]]:
    """Of each day for which a delay is told: whether it has all but one row in a thousand by then."""
    days = arrivals(random, kind)
    for day in range(HORIZON + 1, NIGHTS, 4):
        delays = delays_of(days[:day], range(1, day + 1), HORIZON)
        if delays is not None:
            yield "final", f"{kind}: a delay is told", delays.final is not None
            if delays.final is not None:
                curve = curve_of(days[day].came, HORIZON)
                yield "final", f"{kind}: final too early", min(curve[delays.final :]) < SETTLED


def measured(seasons: int = SEASONS) -> Rates:
    """How often each thing was so, and of how many times."""
    tried, out = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for number in range(seasons):
        random = np.random.default_rng([SEED, number])
        told = [*played(season(random))]
        told += [("by weekday", "a step to 60 %: nights", True)] * shifted(random)
        told += [one for kind in ("heavy tail", "weekly batch") for one in settled_in_time(random, kind)]
        for when, what, so in told:
            tried[when, what] += 1
            out[when, what] += so
    return {key: (out[key], tried[key]) for key in sorted(tried)}


def table(rates: Rates, seasons: int) -> str:
    """The figures as the page has them."""
    whats = [
        *(f"{kind}: {figure}" for kind in ("no fault", "a holiday") for figure in ("rows", "rows without a key")),
        *FAULTS, NULLS,
    ]  # fmt: skip
    lines = [
        f"Of {seasons} seasons of {NIGHTS} nights:",
        "",
        "| band left | by weekday | all weekdays |",
        "|---|--:|--:|",
    ]
    for what in whats:
        cells = [_told(*rates[when, what]) for when in ("by weekday", "all weekdays")]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    steps = rates["by weekday", "a step to 60 %: nights"][0]
    lines += ["", f"A lasting step to 60 % of the rows is told in {steps / seasons:.1f} nights on average.", ""]
    lines += ["| days | final too early |", "|---|--:|"]
    for kind in ("heavy tail", "weekly batch"):
        lines.append(f"| {kind} | {_told(*rates['final', f'{kind}: final too early'])} |")
    return "\n".join(lines) + "\n"


def _told(count: int, of: int) -> str:
    return f"{count / of:.2%} of {of:,}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, required=True, help="the page to write the figures into")
    page = parser.parse_args(arguments).table
    before, mark, after = page.read_text(encoding="utf-8").partition(BEGIN)
    end = after[after.index(END) :]
    page.write_text(f"{before}{mark}\n{table(measured(), SEASONS)}\n{end}", encoding="utf-8")


if __name__ == "__main__":
    main()
