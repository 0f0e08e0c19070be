"""Paths of a spec that name what a run computes: ``{date}``, ``{date:%Y/%m/%d}``, ``{hour}``."""

from __future__ import annotations

import datetime as dt
import re

from skewless.errors import SpecError
from skewless.spec.part import Part

#: A brace pair that looks like a field. Nothing but ``date`` and ``hour`` is one: no attribute, index or conversion.
_FIELD = re.compile(r"\{\s*([A-Za-z_][\w.!\[\]]*)\s*(?::([^{}]*))?\}")
#: Directives that give digits, the same in every locale.
_DIRECTIVES = frozenset("YymdjGVu%")
_HOUR = "%H"


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

    def put(found: re.Match[str]) -> str:
        name, form = found[1], found[2]
        if name == "date":
            return _formed(part.date, found, where) if form is not None else part.date.isoformat()
        if name != "hour":
            raise SpecError(where, "no other field than {date} and {hour}", found[0], "write {date} or {date:%Y/%m/%d}")
        if part.hour is None:
            raise SpecError(where, "{hour} only in a job of hours", found[0], "set schedule.hour: previous")
        if form is None:
            return part.hour
        if _HOUR not in form:
            raise SpecError(where, "the directive %H in {hour}", found[0], "for example {hour:%H}")
        return _formed(part.date, found, where, part.hour)

    resolved = _FIELD.sub(put, path)
    if ".." in re.split(r"[/\\]", resolved):  # a form of dots alone is a day as well
        raise SpecError(where, "a path without a step up ('..')", repr(resolved[:120]), "write where it leads")
    return resolved


def _formed(date: dt.date, found: re.Match[str], where: str, hour: str | None = None) -> str:
    """A day by a form, and the hour in it as the part names it: the second one keeps its letter."""
    form = found[2]
    known = _DIRECTIVES | {"H"} if hour else _DIRECTIVES
    odd = next((one for one in re.findall(r"%(.?)", form) if one not in known or not one), None)
    if odd is not None or not form:
        came = f"%{odd} in {found[0]}" if odd is not None else found[0]
        raise SpecError(where, "directives of a day like %Y, %m and %d", came, "for example {date:%Y/%m/%d}")
    return "".join(hour if one == _HOUR and hour else date.strftime(one) for one in re.split("(%.)", form) if one)
