"""The command `skewless`: it imports Spark only where a command needs it."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, line: str, kind: str = "") -> None:
    """Print a line as it is: without markup or breaks of our own, in the colour of a state."""
    colour = {"good": "green", "warn": "yellow", "bad": "red"}.get(kind, "")
    console.print(line, style=colour, markup=False, highlight=False, soft_wrap=True)
