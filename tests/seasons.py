"""How often bands are left without a fault, and how often faults leave them.

``python -m tests.seasons --table docs/bands.md`` measures it and writes the figures into the page.

A season is ``NIGHTS`` nights of a made-up job: a weekly pattern, a trend, noise with tails, and holidays. Of each night
the band is made of all nights before it, and tonight's figure is held against it as it is, and with a fault in it.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.history import Figure, Usual, usual

SEASONS, NIGHTS, SEED = 200, 120, 20261127
FAULTS = {"half of the rows missing": 0.5, "rows doubled": 2.0}
NULLS = "rows without a key five times as many"
#: Where the figures stand in the page.
BEGIN, END = "<!-- figures of tests.seasons -->\n", "<!-- end of figures -->\n"
#: What was measured: how often, of how many.
Rates = dict[str, tuple[int, int]]


class Season(NamedTuple):
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


def left(band: Usual, value: float) -> bool:
    return not band.low <= value <= band.high


def played(one: Season) -> Iterator[tuple[str, bool]]:
    """Of each night that has bands: what was tried, and whether a band was left."""
    rows = [Figure(day, float(count)) for day, count in enumerate(one.rows)]
    shares = [Figure(day, nulls / max(1, of), of) for day, (nulls, of) in enumerate(zip(*one[:2][::-1], strict=True))]
    for day in range(NIGHTS):
        of_rows, of_nulls = usual(rows[:day], day), usual(shares[:day], day, int(one.rows[day]))
        if of_rows is None or of_nulls is None:
            continue
        kind = "a holiday" if one.holidays[day] else "no fault"
        yield f"{kind}: rows", left(of_rows, rows[day].value)
        yield f"{kind}: rows without a key", left(of_nulls, shares[day].value)
        if not one.holidays[day]:
            for fault, factor in FAULTS.items():
                yield fault, left(of_rows, rows[day].value * factor)
            yield NULLS, left(of_nulls, min(1.0, 5 * shares[day].value))


def shifted(random: np.random.Generator) -> int:
    rows = np.array(season(random).rows, dtype=np.float64)
    rows[60:] *= 0.6
    figures = [Figure(day, count) for day, count in enumerate(rows)]
    bands = [usual(figures[:day], day) for day in range(60, 100)]
    return sum(band is not None and left(band, figures[60 + at].value) for at, band in enumerate(bands))


def measured(seasons: int = SEASONS) -> Rates:
    tried, out = Counter[str](), Counter[str]()
    for number in range(seasons):
        random = np.random.default_rng([SEED, number])
        for what, so in [*played(season(random)), *[("a step to 60 %: nights", True)] * shifted(random)]:
            tried[what] += 1
            out[what] += so
    return {key: (out[key], tried[key]) for key in sorted(tried)}


def table(rates: Rates, seasons: int) -> str:
    lines = [f"Of {seasons} seasons of {NIGHTS} nights:", "", "| band left | of nights |", "|---|--:|"]
    kinds = [f"{kind}: {figure}" for kind in ("no fault", "a holiday") for figure in ("rows", "rows without a key")]
    for what in (*kinds, *FAULTS, NULLS):
        count, of = rates[what]
        lines.append(f"| {what} | {count / of:.2%} of {of:,} |")
    steps = rates["a step to 60 %: nights"][0]
    return (
        "\n".join([*lines, "", f"A lasting step to 60 % of the rows is told in {steps / seasons:.1f} nights."]) + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, required=True, help="the page to write the figures into")
    page = parser.parse_args(arguments).table
    before, mark, after = page.read_text(encoding="utf-8").partition(BEGIN)
    end = after[after.index(END) :]
    page.write_text(f"{before}{mark}\n{table(measured(), SEASONS)}\n{end}", encoding="utf-8")


if __name__ == "__main__":
    main()
