"""The part of the input that a run computes: a day or an hour of a day. Paths that name it."""

import datetime as dt
import re
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from skewless.errors import SpecError, counted

PartUnit = Literal["day", "hour"]

#: Behind the name of an hour that the clock shows a second time, in the night that summer time ends.
SECOND = "b"
#: No time zone moves its clock by less.
_CLOCK_STEP = dt.timedelta(minutes=15)
#: A brace pair that looks like a field. Nothing but ``date`` and ``hour`` is one: no attribute, index or conversion.
_FIELD = re.compile(r"\{\s*([A-Za-z_][\w.!\[\]]*)\s*(?::([^{}]*))?\}")
#: Directives that give digits, the same in every locale.
_DIRECTIVES = frozenset("YymdjGVu%")
_HOUR = "%H"


class Part(NamedTuple):
    """One value of the partitioning; later parts are greater."""

    date: dt.date
    hour: str | None = None
    """Of a job of hours, as the clock shows it: ``00`` to ``23``. In the night that summer time ends, the hour that
    comes a second time is ``02b`` (or whatever hour it is). None for a job of days."""

    def __str__(self) -> str:
        """As people read it.

        >>> str(Part(dt.date(2026, 10, 25), "02b"))
        '2026-10-25, hour 02b'
        """
        return self.date.isoformat() + (f", hour {self.hour}" if self.hour else "")

    @property
    def name(self) -> str:
        """As a word; names of days, and of hours, sort as their parts do.

        >>> Part(dt.date(2026, 10, 25), "02b").name
        '2026-10-25T02b'
        """
        return self.date.isoformat() + (f"T{self.hour}" if self.hour else "")

    @classmethod
    def named(cls, name: str) -> "Part":
        """The part of a name.

        >>> Part.named("2026-10-25T02b"), Part.named("2026-01-31").hour
        (Part(date=datetime.date(2026, 10, 25), hour='02b'), None)
        """
        day, _, hour = name.partition("T")
        return cls(dt.date.fromisoformat(day), hour or None)

    def folder(self, column: str = "date") -> str:
        """Where its result is published, below the output path; ``column`` is ``Output.partition``.

        >>> Part(dt.date(2026, 10, 25), "02b").folder("day")
        'day=2026-10-25/hour=02b'
        """
        return f"{column}={self.date.isoformat()}" + (f"/hour={self.hour}" if self.hour else "")


def part_at(moment: dt.datetime, timezone: str, unit: PartUnit, offset: int = 0) -> Part:
    """The part that lies ``offset`` parts from the one of a moment: -1 for the part before.

    Days are counted on the calendar, whatever their length; hours on the line of time, so that none is
    left out or taken twice in the nights that the clock is changed. They are those of an IANA time zone.
    """
    zone = ZoneInfo(timezone)
    if unit == "day":
        return Part(moment.astimezone(zone).date() + dt.timedelta(days=offset))
    there = (moment.astimezone(dt.UTC) + dt.timedelta(hours=offset)).astimezone(zone)
    return Part(there.date(), _clock_hour(there))


def part_named(date: str, hour: str | None, timezone: str, unit: PartUnit, where: str) -> Part:
    """The part that somebody has named: a date like ``2026-01-31``, and for a job of hours an hour (``Part.hour``).

    A part that there is not is a ``SpecError``; ``where`` stands before the name of the field.
    """
    try:
        day = dt.date.fromisoformat(date)
    except ValueError:
        raise SpecError(f"{where}date", "a day like 2026-01-31", repr(date)[:80]) from None
    if unit == "day":
        if hour:
            raise SpecError.saying(
                f"{where}hour", "a job of days has no hours", "leave it out, or set schedule.part: hour-1"
            )
        return Part(day)
    if not hour:
        raise SpecError.saying(f"{where}hour", "a job of hours needs an hour beside the date", "give one like 02")
    known = hours_of(day, timezone)
    if hour not in known:
        required = f"an hour of {day} in {timezone}, from {known[0]} to {known[-1]}"
        raise SpecError(
            f"{where}hour", required, repr(hour)[:80], f"an hour that comes twice is 02 and then 02{SECOND}"
        )
    return Part(day, hour)


def covered_words(unit: PartUnit, offset: int) -> str:
    """Which part a run computes, in words.

    >>> covered_words("day", -1), covered_words("hour", 0), covered_words("day", -2)
    ('the day before', 'the hour of the run', 'the day 2 days before')
    """
    if offset in {0, -1}:
        return f"the {unit} before" if offset else f"the {unit} of the run"
    return f"the {unit} {counted(abs(offset), unit)} {'before' if offset < 0 else 'after'}"


def hours_of(day: dt.date, timezone: str) -> tuple[str, ...]:
    """The names of the hours of a day, in order.

    >>> hours_of(dt.date(2026, 10, 25), "Europe/Zurich")[:4]
    ('00', '01', '02', '02b')
    """
    zone = ZoneInfo(timezone)
    # From before midnight: there are zones where it is left out, or comes twice.
    try:
        begin = dt.datetime.combine(day, dt.time(), zone).astimezone(dt.UTC) - dt.timedelta(hours=2)
        there = [(begin + step * _CLOCK_STEP).astimezone(zone) for step in range(4 * 29)]
    except OverflowError:
        required = "a day whose hours are all in the years 1 to 9999"
        raise SpecError(f"part {day}", required, "one at an end of the calendar", "compute another one") from None
    return tuple(dict.fromkeys(_clock_hour(moment) for moment in there if moment.date() == day))


def _clock_hour(there: dt.datetime) -> str:
    return f"{there.hour:02d}{SECOND if there.fold else ''}"


def parts_until(last: Part, count: int, timezone: str) -> tuple[Part, ...]:
    """So many parts of a window up to the youngest, oldest first.

    >>> [str(part) for part in parts_until(Part(dt.date(2026, 3, 1)), 2, "UTC")]
    ['2026-02-28', '2026-03-01']
    >>> [part.hour for part in parts_until(Part(dt.date(2026, 10, 25), "03"), 3, "Europe/Zurich")]
    ['02', '02b', '03']

    Raises:
        SpecError: there are not so many days in the calendar.
    """
    if last.date.toordinal() < count:  # days, or more than enough days for as many hours
        required = f"one with {count - 1:,} parts before it"
        raise SpecError(f"part {last.name}", required, "one at an end of the calendar", "compute another one")
    if last.hour is None:
        return tuple(Part(last.date - dt.timedelta(days=back)) for back in reversed(range(count)))
    day, found = last.date, [Part(last.date, hour) for hour in hours_of(last.date, timezone)]
    found = found[: found.index(last) + 1]
    while len(found) < count:
        day -= dt.timedelta(days=1)
        found = [*(Part(day, hour) for hour in hours_of(day, timezone)), *found]
    return tuple(found[-count:])


def parts_between(first: Part, last: Part, timezone: str) -> tuple[Part, ...]:
    """All parts from one to another, both included.

    >>> [str(part) for part in parts_between(Part(dt.date(2026, 2, 27)), Part(dt.date(2026, 3, 1)), "UTC")]
    ['2026-02-27', '2026-02-28', '2026-03-01']
    """
    days = [first.date + dt.timedelta(days=day) for day in range((last.date - first.date).days + 1)]
    if last.hour is None:
        return tuple(Part(day) for day in days)
    hours = (Part(day, hour) for day in days for hour in hours_of(day, timezone))
    return tuple(part for part in hours if first <= part <= last)


def part_place(part: Part) -> int:
    """A number that ascends with the parts of a job: below 2**26 in every year up to 5000.

    >>> part_place(Part(dt.date(1970, 1, 2))), part_place(Part(dt.date(1970, 1, 2), "02b"))
    (1, 53)
    """
    day = part.date.toordinal() - dt.date(1970, 1, 1).toordinal()
    # The hours of a day in a row: the second of two that have one name comes behind the first.
    return day if part.hour is None else day * 48 + 2 * int(part.hour[:2]) + part.hour.endswith(SECOND)


def refuse_shared_paths(path: str, unit: PartUnit, where: str) -> None:
    """Refuse, by a ``SpecError``, a path that two parts would share, or that names no part at all."""
    begin = dt.date(2024, 1, 1)
    days = [*(begin + dt.timedelta(days=day) for day in range(400)), *(begin.replace(year=2025 + n) for n in range(9))]
    # Every hour of some days: what tells hours apart does not depend on the day.
    hours = [None] if unit == "day" else [f"{hour:02d}" for hour in range(24)]
    parts = [Part(day, hour) for at, day in enumerate(dict.fromkeys(days)) for hour in (hours if at < 3 else hours[:1])]
    seen: dict[str, Part] = {}
    for part in parts:
        other = seen.setdefault(resolve_path(path, part, where), part)
        if other != part:
            field = "{date}" if unit == "day" else "{date} and {hour}"
            raise SpecError(
                where, f"a path of its own for each {unit}, as a window is made of parts",
                f"{path!r}, which is the same for {other} and for {part}",
                f"write {field} into it, or name its column in parts",
            )  # fmt: skip


def resolve_path(path: str, part: Part, where: str) -> str:
    """Put the day and the hour into a path. Braces that look like no field stay as they are.

    >>> resolve_path("/lake/{date:%Y/%m}/{a,b}", Part(dt.date(2026, 1, 31)), "spec")
    '/lake/2026/01/{a,b}'
    >>> resolve_path("/lake/{date}/{hour:h%H}", Part(dt.date(2026, 10, 25), "02b"), "spec")
    '/lake/2026-10-25/h02b'

    Raises:
        SpecError: another field, an hour in a job of days, a directive that is not of the field, or a path that
            steps up with the day.
    """

    def put(field: re.Match[str]) -> str:
        name, form = field[1], field[2]
        if name == "date":
            return _formed(part.date, field, where) if form is not None else part.date.isoformat()
        if name != "hour":
            raise SpecError.saying(where, f"there is no field {field[0]}", "write {date}, {date:%Y/%m/%d} or {hour}")
        if part.hour is None:
            raise SpecError.saying(where, f"a job of days has no {field[0]}", "set schedule.part: hour-1")
        if form is None:
            return part.hour
        if _HOUR not in form:
            raise SpecError.saying(where, f"the directive %H is missing in {field[0]}", "write for example {hour:%H}")
        return _formed(part.date, field, where, part.hour)

    resolved = _FIELD.sub(put, path)
    if re.search(r"\{\s*(date|hour)\b", resolved):
        raise SpecError.saying(where, "the brace of a field is not closed", "write {date}, {date:%Y/%m/%d} or {hour}")
    if ".." in re.split(r"[/\\]", resolved):  # a form of dots alone is a day as well
        raise SpecError(where, "a path without a step up ('..')", repr(resolved[:120]), "write where it leads")
    return resolved


#: The digits of each directive; an hour that comes a second time has a letter.
_DIGITS = {"Y": 4, "G": 4, "j": 3, "y": 2, "m": 2, "d": 2, "V": 2, "u": 1}
#: What together tells a day.
_DAY_FORMS = ("Ymd", "ymd", "Yj", "yj", "GVu")
_MARK = "\0"


class DatedPath:
    """A path of a spec read backwards: which part a path that exists is of.

    Attributes:
        pattern: a glob that finds all folders or files whose name ends the part's own piece of the path.
    """

    def __init__(self, path: str, where: str) -> None:
        """Take a path apart that names each part; a ``SpecError`` if its parts cannot be listed."""
        # A directive is a mark that no path has and its letter, so that the rest can be taken apart as a path.
        pieces = _FIELD.sub(_marked, path).split("/")
        named = [at for at, piece in enumerate(pieces) if _MARK in piece]
        own = pieces[named[0] : named[-1] + 1]
        if "**" in own:
            raise SpecError(where, "no ** between the day and the hour of a path, with window: all", repr(path)[:120])
        self._directives = re.findall(f"{_MARK}(.)", "/".join(own))
        if not any(set(form) <= set(self._directives) for form in _DAY_FORMS):
            raise SpecError(
                where, "a path that tells the day, like {date:%Y-%m-%d}, with window: all", repr(path)[:120]
            )
        self._depth = len(own)
        self._pattern = re.compile("/".join(map(_matching, own)))
        globs = [re.sub(rf"\**({_MARK}.)+\**|\*+", "*", piece) for piece in own]
        self.pattern = "/".join([*pieces[: named[0]], *globs])

    def part_at(self, path: str, timezone: str) -> Part | None:
        """The part of a path that ``pattern`` has found; None if it is no day, or no hour of that day."""
        match = self._pattern.fullmatch("/".join(path.rstrip("/").split("/")[-self._depth :]))
        if match is None:
            return None
        texts = list(zip(self._directives, match.groups(), strict=True))
        values = dict(texts)
        form = next(form for form in _DAY_FORMS if set(form) <= set(values))
        text, directives = " ".join(values[one] for one in form), " ".join(f"%{one}" for one in form)
        try:
            day = dt.datetime.strptime(text, directives).replace(tzinfo=dt.UTC).date()
        except ValueError:
            return None
        hour = values.get("H")
        # A path may have a directive twice.
        if any(text != (hour if one == "H" else day.strftime(f"%{one}")) for one, text in texts):
            return None
        return Part(day, hour) if hour is None or hour in hours_of(day, timezone) else None


def path_of_all_parts(path: str) -> str:
    """A glob for the paths of all parts.

    >>> path_of_all_parts("/lake/{date:%Y/%m/%d}/x"), path_of_all_parts("/lake/date={date}")
    ('/lake/[0-9]*/[0-9]*/[0-9]*/x', '/lake/date=[0-9]*')
    """
    return _FIELD.sub(lambda field: "/".join("[0-9]*" for _ in (field[2] or "").split("/")), path)


def _marked(field: re.Match[str]) -> str:
    form = field[2] or {"date": "%Y-%m-%d", "hour": "%H"}[field[1]]
    return re.sub("%(.)", lambda found: "%" if found[1] == "%" else f"{_MARK}{found[1]}", form)


def _matching(piece: str) -> str:
    """A regular expression for a piece of a path: its globs match as those of a file system, directives are digits."""
    pattern = ""
    for token in re.findall(rf"{_MARK}.|\[[^]]+\]|.", piece, re.DOTALL):
        if token[0] == _MARK:
            pattern += r"(\d\db?)" if token[1] == "H" else rf"(\d{{{_DIGITS[token[1]]}}})"
        elif len(token) > 1:
            pattern += "[" + re.escape(token[1:-1]).replace(r"\-", "-").replace("!", "^", 1) + "]"
        else:
            pattern += {"*": "[^/]*", "?": "[^/]"}.get(token, re.escape(token))
    return pattern


def _formed(date: dt.date, field: re.Match[str], where: str, hour: str | None = None) -> str:
    """A day by a form, and the hour in it as the part names it: the second one keeps its letter."""
    form = field[2]
    known = _DIRECTIVES | {"H"} if hour else _DIRECTIVES
    odd = next((one for one in re.findall(r"%(.?)", form) if one not in known or not one), None)
    if odd is not None or not form:
        came = f"%{odd} in {field[0]}" if odd is not None else field[0]
        raise SpecError(where, "directives of a day like %Y, %m and %d", came, "write for example {date:%Y/%m/%d}")
    return "".join(hour if one == _HOUR and hour else date.strftime(one) for one in re.split("(%.)", form) if one)
