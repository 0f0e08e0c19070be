"""What the programs of this folder share: one command by its name, its errors in a sentence, an end by Ctrl-C."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Mapping
from types import FrameType

from rich.console import Console

Command = Callable[[Console], int]


def run_command(
    program: str,
    description: str | None,
    commands: Mapping[str, Command],
    error: type[Exception],
    arguments: list[str] | None,
) -> int:
    """Run the command that the arguments name.

    Args:
        program: how people start it, for its help.
        description: what it is for.
        commands: by their names; each returns its exit code.
        error: what is reported as its sentence, without a traceback.
        arguments: by default those of this process.

    Returns:
        The exit code: the command's, 1 after an error, 130 after Ctrl-C or SIGTERM.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("command", choices=tuple(commands))
    command = commands[parser.parse_args(arguments).command]
    # A plain kill should clean up like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console()
    try:
        return command(console)
    except error as err:
        say(console, str(err))
    except KeyboardInterrupt:
        say(console, "Interrupted.")
        return 130
    return 1


def say(console: Console, line: str) -> None:
    """Print a line as it is: without markup, colours or breaks of our own."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _interrupt(_sign: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
