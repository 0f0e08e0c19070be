"""The log of spark-submit, with Spark's own words folded away and those of a step left to be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: Lines of a step begin like that.
MARK = "skewless: "
GROUP, END = "::group::", "::endgroup::"
CHATTER = f"{GROUP}Spark's own log"
#: A step's announcement of its Spark application.
_APPLICATION = re.compile(r"^skewless: spark application (?P<id>\S+) at (?P<address>\S.*)$")


class Application(NamedTuple):
    """A Spark application, and the address of its UI; empty where it has none."""

    ident: str
    address: str


def folded(lines: Iterable[str]) -> Iterator[str]:
    """A log with every stretch of foreign lines in a group of its own.

    A group is closed as soon as a line of ours comes, and at the end: what Airflow says next is its own.
    """
    within = False
    for line in lines:
        ours = line.startswith(MARK)
        if ours and within:
            yield END
        elif not ours and not within:
            if not line.strip():
                continue
            yield CHATTER
        within = not ours
        yield line.removeprefix(MARK)
    if within:
        yield END


def application_of(line: str) -> Application | None:
    """The application that a line announces."""
    found = _APPLICATION.match(line.strip())
    if found is None:
        return None
    address = found["address"]
    return Application(found["id"], address if address.startswith(("http://", "https://")) else "")
