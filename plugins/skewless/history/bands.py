"""The band in which a figure of a night usually lies, by the nights around it.

Figures are compared as logarithms, so that a half and a double are equally far away. Then, robustly at each step:

1. Of each weekday, the median distance from the week around is its *effect*, and is taken off.
2. The *level* is the median of the seven nearest nights. A shift of the level is told for at most four nights.
3. The *trend* is the median, over nights, of the distance from the level of the seven nights before, for each day.
4. The band is ``WIDTH`` standard deviations of that forecast's errors to either side, estimated by their median
   distance from zero (times 1.4826, as in a normal distribution), and at least ten per cent.

With fewer than ``SAME`` nights of the weekday, the band reaches from the least to the most of the nights around, and
further to either side: of ``FEWEST`` nights by their distance, of more nights by less of it.

The nearest nights are those by day, so an old day that is computed again is compared with the days around it. How
often a band is left without a fault, and which faults leave it: ``tests/seasons.py`` and ``docs/bands.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Nights that a band needs, of which so many of the same weekday for one by weekday; and the nearest that it looks at.
FEWEST, SAME, MOST = 8, 3, 56
#: Half of a band in standard deviations, and at least, as a logarithm: ten per cent.
WIDTH, LEAST = 4.5, float(np.log(1.1))
_WEEK = 7
_DEVIATION = 1.4826
#: Events are added to those of a share: of no nulls to a few is no large step. Half of a band is at least so many of
#: the standard deviations of events that come independently.
_EVENTS, _INDEPENDENT = 10.0, 4.0

#: The logarithm of what is still a number.
_LARGEST = 700.0

Values = npt.NDArray[np.float64]


class Figure(NamedTuple):
    """A figure of one night: the ordinal of its day, the figure, and for a share of rows of how many."""

    day: int
    value: float
    of_rows: int = 0


class Usual(NamedTuple):
    """A band, inclusive, and its middle; of how many nights, and whether it is of the weekday."""

    low: float
    middle: float
    high: float
    nights: int
    by_weekday: bool


def left(band: Usual, value: float) -> bool:
    """Whether a figure is outside of its band."""
    return not band.low <= value <= band.high


@np.errstate(over="ignore", invalid="ignore")
def usual(nights: Sequence[Figure], day: int, of_rows: int = 0) -> Usual | None:
    """The band of a figure on a day; None with fewer than ``FEWEST`` nights, or where it is beyond all numbers.

    Args:
        nights: each of another day, and none of the day itself.
        of_rows: of a share, the rows of the day.
    """
    if len(nights) < FEWEST:
        return None
    near = sorted(sorted(nights, key=lambda one: (abs(one.day - day), one.day))[:MOST])
    days = np.array([one.day for one in near], dtype=np.float64)
    values = np.array([one.value for one in near], dtype=np.float64)
    share = of_rows > 0
    shift = _EVENTS / max(1.0, float(np.median([one.of_rows for one in near]))) if share else 0.0
    logs = bool((values + shift > 0).all())
    scaled = np.log(values + shift) if logs else values
    low, middle, high, by_weekday = _by_weekday(days, scaled, day) or _of_all(scaled)
    least = LEAST if logs else LEAST * float(np.median(np.abs(values)))
    if share:
        least = max(least, _INDEPENDENT / np.sqrt(max(0.0, np.exp(middle) - shift) * of_rows + _EVENTS))
    ends = [min(low, middle - least), middle, max(high, middle + least)]
    if logs:
        ends = [max(0.0, np.exp(min(one, _LARGEST)) - shift) for one in ends]
    if not np.isfinite(ends).all():
        return None
    return Usual(float(ends[0]), float(ends[1]), float(ends[2]), len(near), by_weekday)


def _of_all(values: Values) -> tuple[float, float, float, bool]:
    low, high = float(values.min()), float(values.max())
    further = (high - low) * (FEWEST - 2) / (len(values) - 2)
    return low - further, (low + high) / 2, high + further, False


def _by_weekday(days: Values, values: Values, day: int) -> tuple[float, float, float, bool] | None:
    weekdays = (days % _WEEK).astype(int)
    own = weekdays == day % _WEEK
    if own.sum() < SAME or len(days) < 2 * _WEEK + 1:
        return None
    effects = _effects(weekdays, values)
    plain = values - effects[weekdays]
    levels = np.median(_weeks(plain)[:-1], axis=1)
    lags = days[_WEEK:] - _weeks(days)[:-1].mean(axis=1)
    errors = plain[_WEEK:] - levels
    trend = float(np.median(errors / lags))
    deviation = _DEVIATION * float(np.median(np.abs(errors - trend * lags)))
    # Few nights of a weekday are near to their own median.
    deviation *= 1 + 1 / (len(errors) // _WEEK)
    nearest = np.argsort(np.abs(days - day), kind="stable")[:_WEEK]
    level = float(np.median(plain[nearest])) + trend * (day - float(days[nearest].mean()))
    middle = level + float(effects[day % _WEEK])
    return middle - WIDTH * deviation, middle, middle + WIDTH * deviation, True


def _weeks(values: Values) -> Values:
    """Each seven consecutive values."""
    return np.lib.stride_tricks.sliding_window_view(values, _WEEK)


def _effects(weekdays: npt.NDArray[np.int_], values: Values) -> Values:
    """How far each weekday lies from the week around it, by the median; 0 of one that there is none of."""
    middles = np.median(_weeks(values), axis=1)
    half = _WEEK // 2
    around = values - np.pad(middles, (half, len(values) - len(middles) - half), mode="edge")
    of_day = [around[weekdays == one] for one in range(_WEEK)]
    return np.array([float(np.median(one)) if len(one) else 0.0 for one in of_day])
