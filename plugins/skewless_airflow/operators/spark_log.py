"""The log of spark-submit, with Spark's own lines in folded groups and those of the step in plain view."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: The prefix of the lines of a step.
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
    """A log in which lines of Spark that follow each other form a group.

    A line of the step closes the group, and so does the end of the log: what Airflow logs next is outside of it.
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
