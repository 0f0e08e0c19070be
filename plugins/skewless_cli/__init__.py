"""The command `skewless`: it imports Spark only where a command needs it."""

from textwrap import fill

from rich.console import Console


def say(console: Console, line: str, kind: str = "") -> None:
    """Print a line without markup, in the colour of a state. On a terminal it breaks between words, and in no word."""
    if console.is_terminal:
        line = fill(line, console.width, break_long_words=False, break_on_hyphens=False)
    colour = {"good": "green", "warn": "yellow", "bad": "red"}.get(kind, "")
    console.print(line, style=colour, markup=False, highlight=False, soft_wrap=True)
