"""The command `skewless`: it imports Spark only where a command needs it."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, line: str) -> None:
    """Print a line as it is: without markup, colours or breaks of our own."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)
