"""What the programs of this folder share: commands that end with a sentence or by Ctrl-C, and a home for processes."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from skewless_cli import say

Command = Callable[[Console], int]


def run_command(
    program: str,
    description: str | None,
    commands: Mapping[str, Command],
    error: type[Exception],
    arguments: list[str] | None,
) -> int:
    """Run the command that the arguments name, by default those of this process.

    An ``error`` is reported as its sentence, without a traceback.

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


@dataclass(frozen=True)
class Home:
    """The folder that an Airflow or a cluster lives in, and nowhere else; in it, which processes it is made of."""

    folder: Path

    @property
    def state(self) -> Path:
        """The file that tells of the processes."""
        return self.folder / "running.json"

    def record(self, started: Any) -> None:
        """Write down what was started, a dataclass."""
        self.state.write_text(json.dumps(asdict(started)))

    def recorded(self) -> Any:
        """The fields of what was last started, whether it is up or not; none if nothing was."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self.state.read_text())
        return {}


def last_words(output: Path) -> str:
    """The last lines that a program has written into a file."""
    lines = output.read_text(errors="replace").splitlines() if output.exists() else []
    return "\n".join(lines[-15:])


def _interrupt(_sign: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
