"""The formats of tables: a module for each, all with the same functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from skewless.run.directory import RunDirectory
from skewless.spec.result import Output
from skewless_lake.commits import Commit
from skewless_lake.staged import OutputPart, StagedResult


class TableFormat(Protocol):
    """What is done with the table of an output. All may raise what the format's library raises."""

    def fitting_table(self, target: OutputPart) -> Any:
        """The table, None if it is not there; it is refused (SpecError) if a part of it cannot be replaced."""

    def stage(
        self, target: OutputPart, columns: Any, files: Sequence[Any], about: Mapping[str, str],
        begin: Callable[[Sequence[str]], object],
    ) -> StagedResult:  # fmt: skip
        """Write a result into new files, so that no reader sees them.

        Args:
            target: the part of the table.
            columns: of the result, a schema of Arrow.
            files: ``ResultFile`` of the result; those without rows are left out, as readers pass over them.
            about: for the history of the table.
            begin: called with the paths of the files before any of them is written.

        Raises:
            SpecError: the table does not fit the result.
        """

    def staged_paths(self, target: OutputPart, staged: StagedResult) -> dict[str, int]:
        """Where the staged files can be read, as the table has them now, with the bytes of each."""

    def committing(
        self, run: RunDirectory, target: OutputPart, turn: int, staged: StagedResult, about: Mapping[str, str]
    ) -> Generator[str, None, Commit]:
        """Publish staged files in a commit, upon whatever is published by then; yields what is done.

        Each attempt loads the table, looks for this run and for later ones in its history, and commits upon just that
        state. So a commit of others in between is never undone, and a run that has published already, whether or not it
        knows, does not publish again.

        Raises:
            LostRaceError: others commit all the time.
            RunDirectoryError: what was staged is gone.
        """

    def latest_turn(self, target: OutputPart) -> int:
        """The latest turn in which a part was published; 0 if the table says none."""

    def newest(self, target: OutputPart) -> dict[str, tuple[int, dict[str, str]]]:
        """By part: the snapshot or version of its newest publication, and what the table's history says of it."""

    def roll_back(self, target: OutputPart, turn: int, at: str) -> Mapping[str, str]:
        """Commit the files that a part had before the newest publication of it; other parts stay as they are.

        Args:
            target: the part.
            turn: a new one, so that no older run undoes this.
            at: the time, for the history.

        Returns:
            What the history says of the new snapshot or version, with its number as ``snapshot``.

        Raises:
            SpecError: there is no earlier version, or its files are gone.
            LostRaceError: others commit all the time.
        """

    def unnamed(self, target: OutputPart, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
        """Which files of a run the table does not name.

        Args:
            target: any part of the table.
            others: files of attempts to stage that did not count.
            staged: those of the attempt that did.
            digest: of the run's identity.
        """

    def remove(self, target: OutputPart, paths: Collection[str], digest: str) -> None:
        """Give up what a run has staged, and remove files; those that are gone are no error."""


#: The module of each format of ``skewless.spec.input.TABLES``. Their libraries are extras: imported where one is used.
FORMATS = {"iceberg": "skewless_lake.iceberg.publishing", "delta": "skewless_lake.delta.publishing"}


def table_format(output: Output) -> TableFormat:
    """The format of an output's table."""
    return cast("TableFormat", import_module(FORMATS[output.format]))
