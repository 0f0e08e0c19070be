"""Paths of a spec that name the day of the run: ``{date}``, or ``{date:%Y/%m/%d}``."""

from __future__ import annotations

import datetime as dt
import re

from skewless.errors import SpecError

#: A brace pair that looks like a field. Nothing but ``date`` is one: no attribute, no index, no conversion.
_FIELD = re.compile(r"\{\s*([A-Za-z_][\w.!\[\]]*)\s*(?::([^{}]*))?\}")
#: Directives that give digits, the same in every locale.
_DIRECTIVES = frozenset("YymdjGVu%")


def resolve_date(path: str, date: dt.date, where: str) -> str:
    """Put the day into a path. Braces that look like no field stay as they are.

    >>> resolve_date("/lake/{date:%Y/%m}/{a,b}", dt.date(2026, 1, 31), "spec")
    '/lake/2026/01/{a,b}'

    Raises:
        SpecError: a field that is no date, a directive that is not of a day, or a path that steps up with the day.
    """

    def day(found: re.Match[str]) -> str:
        name, form = found[1], found[2]
        if name != "date":
            raise SpecError(where, "no other field than {date}", found[0], "write {date} or {date:%Y/%m/%d}")
        if form is None:
            return date.isoformat()
        odd = next((one for one in re.findall(r"%(.?)", form) if one not in _DIRECTIVES or not one), None)
        if odd is not None or not form:
            came = f"%{odd} in {found[0]}" if odd is not None else found[0]
            raise SpecError(where, "directives of a day like %Y, %m and %d", came, "for example {date:%Y/%m/%d}")
        return date.strftime(form)

    resolved = _FIELD.sub(day, path)
    if ".." in re.split(r"[/\\]", resolved):  # a form of dots alone is a day as well
        raise SpecError(where, "a path without a step up ('..')", repr(resolved[:120]), "write where it leads")
    return resolved
