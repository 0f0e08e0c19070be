"""What each table format offers to publishing, and the errors of table libraries as one sentence of ours."""

import datetime as dt
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Protocol, cast

from skewless.errors import LostRaceError, RunDirectoryError, UnreachableError
from skewless.publication.publish import Commit
from skewless.publication.records import Identity, Overtaken, identity_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.spec.result import Output
from skewless_lake.staged_files import OutputPart, StagedResult, TableRule, rules_digest

#: The packages whose errors are told in our words, as the modules of their classes begin.
_LIBRARIES = frozenset({"_internal", "deltalake", "obstore", "pyarrow", "pyiceberg", "requests", "sqlalchemy"})
_LIBRARIES |= {"botocore", "hive_metastore", "thrift"}
#: The colours and arrows of messages of several lines.
_MARKS = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
_STATUS = re.compile(r"(?:status code:?|HTTP status|HTTP response code:?) (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
#: Arrow's words for what Amazon's client did not manage.
_OF_AMAZON = re.compile(r"AWS Error (\w+)(?: \(HTTP status \d+\))? during (\w+)")
_LONGEST = 160


@contextmanager
def told_plainly(where: str) -> Iterator[None]:
    """Tell errors of the libraries in one sentence. Errors of ours, and mistakes in our own code, pass as they are.

    Raises:
        UnreachableError: a library has failed: the store or the catalog does not answer, or refuses.
    """
    try:
        yield
    except Exception as err:
        of_library = any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(err).__mro__)
        if not isinstance(err, OSError) and not of_library:
            raise
        raise UnreachableError.saying(
            where, f"its store or its catalog cannot be read or written ({reason(err)})", "mend that, and try again"
        ) from err


def reason(err: BaseException) -> str:
    """What a library says, in a few words on one line: the last of the causes that it names, or a status."""
    said = _MARKS.sub("", str(err))
    on_one_line = " ".join(said.split())
    status, of_amazon, code = (one.search(on_one_line) for one in (_STATUS, _OF_AMAZON, _CODE))
    if of_amazon:
        return f"{of_amazon[1]} during {of_amazon[2]}{f', status {status[1]}' if status else ''}"
    if status:
        return f"the store answered {status[1]}{f', {code[1]}' if code else ''}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # The last of nested causes; SQLAlchemy puts its statement, and a link, behind the first line.
    last = (lines[0] if type(err).__module__.startswith("sqlalchemy") else lines[-1]) if lines else ""
    return last[:_LONGEST].rstrip(" .") or type(err).__name__


#: What we write into a table's history, each name behind this.
PREFIX = "skewless."
#: Behind it, the digest of what the table asks of each row, which the rows of a publication were held to.
RULES = "rules"
#: How often a commit is tried again that others were faster than, and the seconds between two attempts at most.
ATTEMPTS = 50
_CHANGES = 9
_LONGEST_WAIT = 2.0


class TableFormat(Protocol):
    """What is done with the table of an output. All may raise what the format's library raises.

    A table is what that library makes of it, as it was when it was loaded.
    """

    #: What the history numbers: ``snapshot`` or ``version``.
    NUMBERED: str
    #: Errors of a commit that others may have been faster than, and those of a change of the table's columns.
    LOST: tuple[type[Exception], ...]
    CHANGED: tuple[type[Exception], ...]
    #: Errors of a commit that may have been made all the same; when the run publishes, it is tried again.
    UNANSWERED: tuple[type[Exception], ...]

    def find_table(self, target: OutputPart) -> Any:
        """The table, None if it is not there."""

    def require_fitting(self, table: Any, target: OutputPart) -> None:
        """Refuse a table that we cannot write, or of which a part is not just the files of one partition.

        Raises:
            SpecError: says why.
        """

    def make_table(self, target: OutputPart, columns: Any) -> Any:
        """The table for a result of these columns (of Arrow); that of another process if it is faster."""

    def with_columns(self, table: Any, target: OutputPart, columns: Any) -> Any:
        """The table with all columns of a result, if the spec has its schema evolve.

        Raises:
            SpecError: it has others.
        """

    def stage(
        self, table: Any, target: OutputPart, files: Sequence[Any], begin: Callable[[Sequence[str]], object]
    ) -> StagedResult:
        """Write a result into new files, so that no reader sees them.

        Args:
            files: ``ResultFile`` of the result, each with rows.
            begin: called with the paths of the files before any of them is written.
        """

    def rules_of(self, table: Any) -> tuple[TableRule, ...]:
        """What the table asks of each row."""

    def column_names(self, table: Any) -> list[str]:
        """The names of its columns."""

    def publications(self, table: Any, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
        """The snapshots or versions that we have published, newest first, with what the history says of each."""

    def latest_turn(self, table: Any, target: OutputPart) -> int:
        """The latest turn in which a part was published; 0 if the table says none."""

    def staged_files(self, table: Any, target: OutputPart, staged: StagedResult) -> Sequence[Any]:
        """What ``commit_part`` takes of a staged result."""

    def earlier_files(self, table: Any, target: OutputPart, number: int) -> Sequence[Any]:
        """What ``commit_part`` takes of a part as a snapshot or version had it.

        Raises:
            SpecError: files of it are gone.
        """

    def commit_part(self, table: Any, target: OutputPart, files: Sequence[Any], about: Mapping[str, str]) -> int:
        """Commit upon the table as loaded, so that a part has just these files; all others are as they were.

        Raises:
            RunDirectoryError: the part has other files than these by then.
        """

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
        """

    def remove(self, target: OutputPart, paths: Collection[str]) -> None:
        """Remove files; those that are gone are no error."""


#: The module of each format of ``skewless.spec.input.TABLES``. Their libraries are extras: imported where one is used.
FORMATS = {"iceberg": "skewless_lake.iceberg_tables", "delta": "skewless_lake.delta_tables"}


def table_format(output: Output) -> TableFormat:
    """The format of an output's table."""
    return cast("TableFormat", import_module(FORMATS[output.format]))


def fitting_table(tables: TableFormat, target: OutputPart) -> Any:
    """The table, None if it is not there; it is refused if it cannot be published in, see ``require_fitting``."""
    table = tables.find_table(target)
    if table is not None:
        tables.require_fitting(table, target)
    return table


def ready_table(tables: TableFormat, target: OutputPart, columns: Any) -> Any:
    """The table, ready for a result: made if it is not there, its schema evolved if the spec says so."""

    def ready() -> Any:
        table = tables.find_table(target)
        if table is None:
            table = tables.make_table(target, columns)
        tables.require_fitting(table, target)
        return tables.with_columns(table, target, columns)

    for _ in range(_CHANGES):
        with suppress(*tables.CHANGED):  # somebody has changed the table just now
            return ready()
    return ready()


def of_part(tables: TableFormat, table: Any, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    """The ``publications`` of a part."""
    return (entry for entry in tables.publications(table, target) if entry[1]["part"] == target.part.name)


def standing(tables: TableFormat, table: Any, target: OutputPart, turn: int, me: Identity) -> Commit | None:
    """What the history of a table says of a run: published, superseded, or None if neither.

    Raises:
        RunDirectoryError: another run has published in its turn; or who has published is no longer there.
    """
    latest, newest = tables.latest_turn(table, target), None
    if not latest or latest < turn:
        return None
    for number, about in of_part(tables, table, target):
        if about["run-digest"] == me.job:
            return Commit(number)
        newest = newest or identity_in(about)
        if int(about.get("turn", 0)) <= turn:
            break
    if newest is None:
        raise RunDirectoryError.saying(
            f"log of {target.path}", f"it no longer names the run that has published {target.part} in turn {latest}",
            "begin a new run",
        )  # fmt: skip
    if latest == turn:
        raise RunDirectoryError.saying(
            f"turn {turn} of {target.part} in {target.path}", f"it belongs to {newest.run}, not to this run",
            "the store of turns was lost or put back in between; begin a new run",
        )  # fmt: skip
    return Commit(None, Overtaken(by=newest, turn=latest))


class Race:
    """Attempts to commit to a table that others commit to at the same time."""

    def __init__(self, tables: TableFormat, target: OutputPart) -> None:
        self.tables, self.target = tables, target
        self._attempts, self._failed = 0, Counter[str]()

    def table(self) -> Any:
        """The table to commit upon, see ``fitting_table``; after a pause of random length from the second time on.

        Raises:
            LostRaceError: others were faster each time.
        """
        if self._attempts == ATTEMPTS:
            raise LostRaceError(
                self.target.path, "a commit of its own", f"{ATTEMPTS} commits of others", "try again later"
            )
        if self._attempts:  # who collided may not again
            time.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.025 * 2**self._attempts)))  # noqa: S311  # no secret
        self._attempts += 1
        return fitting_table(self.tables, self.target)

    def lost(self, table: Any, err: Exception) -> None:
        """After an error of ``LOST``, see ``TableFormat.require_race``."""
        self.tables.require_race(table, self.target, self._failed, err)

    def commit(self, table: Any, files: Sequence[Any], about: Mapping[str, str]) -> int:
        """See ``TableFormat.commit_part``.

        Raises:
            RunDirectoryError: the table asks for more of each row than when the files were written.
        """
        if rules_digest(self.tables.rules_of(table)) != about.get(RULES, ""):
            raise RunDirectoryError.saying(
                f"output {self.target.path}",
                "constraints or required columns of the table have changed since these files were written",
                "begin a new run",
            )  # fmt: skip
        return self.tables.commit_part(table, self.target, files, about)


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
