"""The processes that play a run again for the what-if page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import psutil

from skewless_airflow.web.views.what_if import Replays

PATIENCE_SECONDS = 60.0


def players() -> list[psutil.Process]:
    """Those that this process has started and that live."""
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE and "skewless_airflow.web.views.what_if" in one.cmdline():
                found.append(one)
    return found


def the_player() -> psutil.Process:
    """The one that plays, as soon as one does."""
    found: list[psutil.Process] = []

    def one_plays() -> bool:
        found[:] = players()  # looked at once: the next look may find another one
        return len(found) == 1

    await_that(one_plays, "a process that plays")
    return found[0]


def end_all(replays: Replays) -> None:
    """End what is played and all that waits: each process takes one question with it."""

    def ended() -> bool:
        for one in players():
            one.kill()
        return all(answer.done() for answer in replays._known.values())

    await_that(ended, "the end of all replays")


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: it does not, for a minute.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:.0f} s for {what}"
        time.sleep(0.01)
