"""The formats of tables: a module for each, all with the same functions; and what all write into a table's history."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from skewless.errors import LostRaceError
from skewless.publication.publish import Commit
from skewless.publication.records import Identity, identity_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.spec.result import Output
from skewless_lake.staged_files import OutputPart, StagedResult, TableRule

#: What we write into a table's history, each name behind this.
PREFIX = "skewless."
#: Behind it, the digest of what the table asks of each row, which the rows of a publication were held to.
RULES = "rules"
#: How often a commit is tried again that others were faster than, and the seconds between two attempts at most.
ATTEMPTS = 50
_LONGEST_WAIT = 2.0


class TableFormat(Protocol):
    """What is done with the table of an output. All may raise what the format's library raises.

    A table is what that library makes of it, as it was when it was loaded.
    """

    #: What the history numbers: ``snapshot`` or ``version``.
    NUMBERED: str
    #: What a part needs to go back to, and what to do without.
    EARLIER: tuple[str, str]
    #: Errors of a commit that others may have been faster than.
    LOST: tuple[type[Exception], ...]
    #: Errors of a commit that may have been made all the same; when the run publishes, it is tried again.
    UNANSWERED: tuple[type[Exception], ...]

    def find_table(self, target: OutputPart) -> Any:
        """The table, None if it is not there."""

    def fitting_table(self, target: OutputPart) -> Any:
        """As ``find_table``, of a table that we can write; it is refused (SpecError) if a part cannot be replaced."""

    def stage(
        self, target: OutputPart, columns: Any, files: Sequence[Any], begin: Callable[[Sequence[str]], object]
    ) -> StagedResult:
        """Write a result into new files, so that no reader sees them.

        Args:
            columns: of the result, a schema of Arrow.
            files: ``ResultFile`` of the result, each with rows.
            begin: called with the paths of the files before any of them is written.

        Raises:
            SpecError: the table does not fit the result.
        """

    def rules_of(self, table: Any) -> tuple[TableRule, ...]:
        """What the table asks of each row."""

    def column_names(self, table: Any) -> list[str]:
        """The names of its columns."""

    def publications(self, table: Any, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
        """The snapshots or versions that we have published, newest first, with what the history says of each."""

    def latest_turn(self, table: Any, target: OutputPart) -> int:
        """The latest turn in which a part was published; 0 if the table says none."""

    def standing(self, table: Any, target: OutputPart, turn: int, me: Identity) -> Commit | None:
        """What the history says of a run: published, superseded, or None if neither."""

    def staged_files(self, table: Any, target: OutputPart, staged: StagedResult) -> Sequence[Any]:
        """What ``commit_part`` takes of a staged result.

        Raises:
            RunDirectoryError: it is gone, or the table (None) is.
        """

    def earlier_files(self, table: Any, target: OutputPart, number: int) -> Sequence[Any]:
        """What ``commit_part`` takes of a part as a snapshot or version had it.

        Raises:
            SpecError: files of it are gone.
        """

    def commit_part(self, table: Any, target: OutputPart, files: Sequence[Any], about: Mapping[str, str]) -> int:
        """Commit upon the table as loaded, so that a part has just these files; all others are as they were."""

    def require_race(self, table: Any, target: OutputPart, failed: Counter[str], err: Exception) -> None:
        """Go on only while others change the table: by the same error a table refuses what it never takes.

        Args:
            failed: how many commits have failed upon each state of the table.

        Raises:
            SpecError: nobody else has committed.
        """

    def unnamed(self, table: Any, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
        """Which files of a run the table does not name.

        Args:
            others: files of attempts to stage that did not count.
            staged: those of the attempt that did.
            digest: of the run's identity.
        """

    def remove(self, target: OutputPart, paths: Collection[str]) -> None:
        """Remove files; those that are gone are no error."""


#: The module of each format of ``skewless.spec.input.TABLES``. Their libraries are extras: imported where one is used.
FORMATS = {"iceberg": "skewless_lake.iceberg.iceberg_publishing", "delta": "skewless_lake.delta.delta_publishing"}


def table_format(output: Output) -> TableFormat:
    """The format of an output's table."""
    return cast("TableFormat", import_module(FORMATS[output.format]))


def attempts(where: str) -> Iterator[int]:
    """The numbers of the attempts to commit, with a pause of random length between two: who collided may not again.

    Raises:
        LostRaceError: others were faster each time.
    """
    for attempt in range(ATTEMPTS):
        yield attempt
        time.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.05 * 2**attempt)))  # noqa: S311  # no secret
    raise LostRaceError(where, "a commit of its own", f"{ATTEMPTS} commits of others", "try again later")


def summary_of(run: RunDirectory, now: dt.datetime) -> dict[str, str]:
    """Where a result comes from, as texts by name: what the table's own history says of it."""
    job, result, me = run.job(), run.committed(RESULT_STEP), identity_of(run)
    table = job.source.pinned
    return {
        "job": job.spec.name,
        "part": job.part.name,
        "turn": str(job.turn),
        "run": me.run,
        "run-digest": me.job,
        "spec-digest": job.spec.digest(),
        "input": job.input_path,
        **({} if table is None else {"input-table": table.name, "input-snapshot": table.snapshot or "none"}),
        "input-rows": str(result.count("rows")),
        "result-rows": str(result.count("keys")),
        "at": now.astimezone(dt.UTC).isoformat(timespec="seconds"),
    }


def written(about: Mapping[str, str]) -> dict[str, str]:
    """What is said of a publication, as the table's history has it."""
    return {PREFIX + name: value for name, value in about.items()}


def told(history: Mapping[str, Any]) -> dict[str, str]:
    """What an entry of a table's history says of a publication of ours; empty if another program made the entry."""
    return {name.removeprefix(PREFIX): value for name, value in history.items() if name.startswith(PREFIX)}


def identity_in(about: Mapping[str, str]) -> Identity:
    """The run that an entry of the history names."""
    return Identity(job=about["run-digest"], run=about["run"])
