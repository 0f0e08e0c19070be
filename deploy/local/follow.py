"""Follows a run to its end: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

import httpx
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.local.rest import FINISHED_RUN, AirflowRest, TaskState
from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless_cli import say

#: Silence for longer than this looks like a hang.
HEARTBEAT_SECONDS = 10.0
#: States that are not printed: the task has not begun, or a task before it has been reported.
_UNTOLD = ("", "scheduled", "queued", "upstream_failed")
_FINISHED_TASK = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class Progress(Protocol):
    """Shows the tasks of a run."""

    def show(self, tasks: Sequence[TaskState], waiting_for: str) -> None:
        """Show the tasks; called about once a second."""


class RunLostError(Exception):
    """Airflow no longer answers."""


def follow(rest: AirflowRest, dag_id: str, run_id: str, progress: Progress) -> str:
    """Show a run until it ends, and return its last state.

    Raises:
        RunLostError: Airflow has not answered for a minute.
    """
    answered = time.monotonic()
    while True:
        try:
            state = rest.run_state(dag_id, run_id)
            tasks = sorted(rest.tasks(dag_id, run_id), key=_in_order)
            before = [one for one in rest.active_runs(dag_id) if one != run_id] if state == "queued" else []
        except httpx.HTTPError as err:
            if time.monotonic() - answered > 60:
                raise RunLostError(f"Airflow at {rest.url} has not answered for a minute: {err}") from None
        else:
            answered = time.monotonic()
            progress.show(tasks, f"waiting for {before[0]} to end" if before else "")
            if state in FINISHED_RUN:
                return state
        time.sleep(1)


def progress_for(console: Console, run: RunDirectory) -> AbstractContextManager[Progress]:
    """The progress display that a console can show."""
    return LiveTable(console, run) if console.is_terminal else nullcontext(PlainLines(console, run))


class PlainLines:
    """One line for each change of a task's state, and one every few seconds in between."""

    def __init__(self, console: Console, run: RunDirectory) -> None:
        self._console, self._run = console, run
        self._begun = self._spoken = time.monotonic()
        self._known: dict[str, str] = {}

    def show(self, tasks: Sequence[TaskState], waiting_for: str) -> None:
        """Print what changed."""
        for one in tasks:
            if one.state not in (*_UNTOLD, self._known.get(one.task)):
                self._say(f"{one.task:14} {one.state}{_took(one)}{_reason(self._run, one)}")
                self._known[one.task] = one.state
        if time.monotonic() - self._spoken >= HEARTBEAT_SECONDS:
            busy = [one.task for one in tasks if one.state == "running"]
            self._say(f"... {waiting_for or (f'{busy[0]} is running' if busy else 'between two tasks')}")

    def _say(self, line: str) -> None:
        self._spoken = time.monotonic()
        say(self._console, f"{self._spoken - self._begun:5.0f} s  {line}")


class LiveTable:
    """A table that is redrawn in place."""

    def __init__(self, console: Console, run: RunDirectory) -> None:
        self._run, self._begun = run, time.monotonic()
        self._seen: dict[str, float] = {}
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, tasks: Sequence[TaskState], waiting_for: str) -> None:
        """Draw the table."""
        now = time.monotonic()
        table = Table(title=waiting_for or f"{now - self._begun:.0f} s", title_justify="left", box=None)
        for name in ("task", "state", "seconds", ""):
            table.add_column(name, justify="right" if name == "seconds" else "left")
        for one in tasks:
            seconds = one.seconds
            if one.state == "running":
                seconds = now - self._seen.setdefault(one.task, now)
            style = _STYLES.get(one.state, "dim")
            table.add_row(
                one.task,
                f"[{style}]{one.state or 'waiting'}[/]",
                f"{seconds:.1f}" if seconds is not None and one.state != "skipped" else "",
                _reason(self._run, one).removeprefix(": ").replace("[", r"\["),
            )
        self._live.update(table)


_STYLES = {"running": "bold cyan", "success": "green", "failed": "bold red", "skipped": "yellow"}


def _in_order(one: TaskState) -> tuple[int, str]:
    """The order in which tasks run: prepare, the stages (plan before run, as in the alphabet), and the end."""
    fixed = {"prepare": 0, "merge": 2, "validate": 3, "publish": 4}
    return fixed.get(one.task, 1), one.task


def _took(one: TaskState) -> str:
    return f" after {one.seconds:.1f} s" if one.state in _FINISHED_TASK and one.seconds else ""


def _reason(run: RunDirectory, one: TaskState) -> str:
    """The decision of a finished plan task, from the run directory."""
    group, _, name = one.task.partition(".")
    if name != "plan" or one.state not in ("success", "skipped"):
        return ""
    try:
        return f": {run.decision(int(group.removeprefix('stage_'))).sentence}"
    except SkewlessError:  # an earlier decision ended the run already
        return ": no further stage is needed"
