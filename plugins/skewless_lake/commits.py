"""Commits of tables: what becomes of one, how others are waited for, and what a table's history says of each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from skewless.errors import LostRaceError
from skewless.run.publication.records import Identity, Overtaken

#: What we write into a table's history, each name behind this.
PREFIX = "skewless."
#: Behind it, the digest of what the table asks of each row, which the rows of a publication were held to.
RULES = "rules"
#: How often a commit is tried again that others were faster than, and the seconds between two attempts at most.
ATTEMPTS = 50
_LONGEST_WAIT = 2.0


class Commit(NamedTuple):
    """What became of a commit.

    Attributes:
        snapshot: the snapshot or version in which the run's result was published; None if it was superseded.
        over: by whom it was superseded.
    """

    snapshot: int | None
    over: Overtaken | None = None


def attempts(where: str) -> Iterator[int]:
    """The numbers of the attempts to commit, with a pause of random length between two: who collided may not again.

    Raises:
        LostRaceError: others were faster each time.
    """
    for attempt in range(ATTEMPTS):
        yield attempt
        time.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.05 * 2**attempt)))  # noqa: S311  # no secret
    raise LostRaceError(where, "a commit of its own", f"{ATTEMPTS} commits of others", "try again later")


def written(about: Mapping[str, str]) -> dict[str, str]:
    """What is said of a publication, as the table's history has it."""
    return {PREFIX + name: value for name, value in about.items()}


def told(history: Mapping[str, Any]) -> dict[str, str]:
    """What an entry of a table's history says of a publication of ours; empty if another program made the entry."""
    return {name.removeprefix(PREFIX): value for name, value in history.items() if name.startswith(PREFIX)}


def identity_in(about: Mapping[str, str]) -> Identity:
    """The run that an entry of the history names."""
    return Identity(job=about["run-digest"], run=about["run"])
