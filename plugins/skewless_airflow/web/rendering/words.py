"""How pages write keys, numbers and moments: the filters of the templates."""

from __future__ import annotations

import datetime as dt

from markupsafe import Markup, escape

#: A longer key is cut on a page; the JSON API has it whole.
LONGEST_KEY = 120
#: A longer sentence is cut, too.
_LONGEST_SENTENCE = 2000
#: Where there is no number.
_NOTHING = "\N{EN DASH}"


def shown_key(key: str) -> str:
    """A key with its odd characters visible, cut where it is too long; not yet escaped for HTML.

    >>> shown_key("word"), shown_key("")
    ('word', "''")
    """
    cut = key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}\N{HORIZONTAL ELLIPSIS}"
    return cut if cut.isprintable() and cut else repr(cut)


def words(sentence: str) -> str:
    """A sentence on one line, cut where it is too long."""
    cut = sentence if len(sentence) <= _LONGEST_SENTENCE else f"{sentence[:_LONGEST_SENTENCE]}…"
    return "".join(sign if sign.isprintable() else " " for sign in cut)


def rows(number: float | None) -> str:
    """A number of rows; a whole one keeps all of its digits."""
    return _NOTHING if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def ratio(number: float | None) -> str:
    """A ratio, to three decimals."""
    return _NOTHING if number is None else f"{number:,.3f}"


def percent(number: float | None) -> str:
    """A fraction as a percentage."""
    return _NOTHING if number is None else f"{number:.2%}" if abs(number) < 0.1 else f"{number:.1%}"


def above(gap: float | None) -> str:
    """How far a longest task was above the best possible.

    >>> above(0.041), above(0.0), above(None)
    ('4 % above the best possible', 'the best possible', 'not measured')
    """
    if gap is None:
        return "not measured"
    found = f"{100 * gap:.0f}" if gap >= 0.02 else f"{100 * gap:.1f}"
    return "the best possible" if float(found) == 0 else f"{found} % above the best possible"


def duration(seconds: float | None) -> str:
    """Seconds as people write them, from tenths of a second to hours."""
    if seconds is None:
        return _NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def moment(when: dt.datetime | None) -> str:
    """A moment in UTC, to the minute."""
    return _NOTHING if when is None else f"{when.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def day(part: str, today: dt.date | None = None) -> str:
    """A part by its day, with its year unless that is this year; what is no part stays as it is.

    >>> day("2026-11-26", dt.date(2026, 12, 1)), day("2025-11-26, hour 02b", dt.date(2026, 12, 1))
    ('Thu 26 Nov', 'Wed 26 Nov 2025, hour 02b')
    """
    date, comma, hour = part.partition(",")
    try:
        found = dt.date.fromisoformat(date)
    except ValueError:
        return part
    this_year = (today or dt.datetime.now(dt.UTC).date()).year
    return f"{found:%a} {found.day} {found:%b}{'' if found.year == this_year else f' {found.year}'}{comma}{hour}"


def date(part: str) -> str:
    """The same without the name of the day, for axes.

    >>> date("2025-11-26, hour 02b")
    '26 Nov 2025, hour 02b'
    """
    found = day(part)
    return part if found == part else found.partition(" ")[2]


def clock(when: dt.datetime | None) -> str:
    """A moment in UTC by its day and its time, for pages that say so."""
    if when is None:
        return _NOTHING
    utc = when.astimezone(dt.UTC)
    return f"{day(f'{utc:%Y-%m-%d}')} {utc:%H:%M}"


def waves(span: tuple[int, int]) -> str:
    """The waves of a stage, ``first <= wave < end``."""
    first, end = span
    if end <= first:
        return "no wave: the whole input is admitted already"
    return f"wave {first}" if end == first + 1 else f"waves {first} to {end - 1}"


def unit(value: float | None, kind: str) -> str:
    """A figure in its unit: rows, ratio, percent or seconds."""
    return {"rows": rows, "ratio": ratio, "percent": percent, "seconds": duration}[kind](value)


def measured(value: float | None, kind: str) -> str:
    """A measured figure, or "not measured": a dash would look like zero."""
    return "not measured" if value is None else unit(value, kind)


def breakable(name: str) -> Markup:
    """A long name that may be broken at its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))
