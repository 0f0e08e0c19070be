"""Where the time of a run went: each step with its parts, and what lay between two steps."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from skewless.run.directory import RunDirectory
from skewless.run.step_times import times_of, waterfall
from skewless_cli import say

#: Columns of the bar that shows when a part ran.
_BAR = 40


def as_object(run: RunDirectory) -> list[dict[str, Any]]:
    """The object of ``skewless show --times --json``: the steps as they were recorded, and the seconds before each."""
    steps = times_of(run)
    ends = [None, *(step.ended for step in steps)]
    return [
        {
            **step.model_dump(mode="json", exclude={"version"}),
            "unmeasured_seconds": round(step.unmeasured, 3),
            "seconds_after_last_step": None if end is None else round(step.started - end, 3),
        }
        for step, end in zip(steps, ends, strict=False)
    ]


def show(run: RunDirectory, console: Console) -> None:
    """Print the steps of a run, as far as their times were recorded."""
    steps = times_of(run)
    if not steps:
        console.print("no step of this run has recorded its times")
        return
    whole = max(step.ended for step in steps) - steps[0].started
    console.print(f"{'seconds':>9}  {whole:.1f} s from the first step's start to the last one's end")
    for line in waterfall(steps):
        tasks = "" if line.tasks is None else f", {line.tasks:,} tasks"
        bar = "" if line.start is None else _bar(line.start, line.seconds, whole)
        text = f"{line.seconds:>9.2f}  {'  ' * line.depth + line.name + tasks:<36}  {bar}"
        say(console, text.rstrip())


def _bar(start: float, seconds: float, whole: float) -> str:
    scale = _BAR / max(whole, 1e-3)
    first = min(_BAR - 1, int(start * scale))
    return " " * first + "#" * min(max(1, round(seconds * scale)), _BAR - first)
