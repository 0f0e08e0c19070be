"""Staging, publishing and rolling back a part of a Delta table, and the files that runs have left there."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from skewless.errors import RunDirectoryError, SpecError
from skewless.publication.publish import Commit
from skewless.publication.records import Identity, Overtaken
from skewless.run.objects.location import open_location, plain_path
from skewless_lake.delta.delta_tables import (
    files_of_part,
    find_table,
    fitting_table,
    location_of,
    ready_table,
    rules_of,
    sync_version,
    where,
)
from skewless_lake.delta.log import Bounds, commits, of_bounds, of_footer, said_in
from skewless_lake.formats import RULES, identity_in, reason, told, written
from skewless_lake.staged_files import OutputPart, StagedFile, StagedResult, rules_digest
from skewless_lake.staging import ResultFile, create_file, write_all, write_rows

#: What each format has, see ``formats.TableFormat``.
__all__ = [
    "EARLIER", "LOST", "NUMBERED", "UNANSWERED", "column_names", "commit_part", "earlier_files", "find_table",
    "fitting_table", "latest_turn", "publications", "remove", "require_race", "rules_of", "stage", "staged_files",
    "standing", "unnamed",
]  # fmt: skip
NUMBERED = "version"
EARLIER = "two publications of it in the table's log", "run the job again"
LOST, UNANSWERED = (CommitFailedError,), ()


def require_race(table: DeltaTable, target: OutputPart, failed: Counter[str], err: Exception) -> None:
    """Go on only if another version is there by now: by the same error deltalake refuses what it never commits."""
    del failed
    now = find_table(target)
    if now is None or int(now.version()) == int(table.version()):
        raise SpecError.saying(
            where(target), f"deltalake does not commit to the table ({reason(err)})", "publish into a table of its own"
        ) from None


def column_names(table: DeltaTable) -> list[str]:
    """The names of a table's columns."""
    return [field.name for field in table.schema().fields]


def latest_turn(table: DeltaTable, target: OutputPart) -> int:
    """The latest turn in which a part was published, which the table keeps by part; 0 if it has none."""
    return table.transaction_version(_application(target)) or 0


def _application(target: OutputPart) -> str:
    """The name under which the table keeps the latest turn of a part."""
    return f"skewless/{target.part.name}"


def standing(table: DeltaTable, target: OutputPart, turn: int, me: Identity) -> Commit | None:
    """What the log says of a run: published, superseded, or None if neither."""
    latest = latest_turn(table, target)
    if not latest or latest < turn:
        return None
    ours = ((version, about) for version, about in publications(table, target) if about["part"] == target.part.name)
    last = next((one for one in ours if one[1].get("turn") == str(latest)), None)
    if last is None:
        raise RunDirectoryError.saying(
            f"log of {target.path}", f"it no longer names the run that has published {target.part} in turn {latest}",
            "begin a new run",
        )  # fmt: skip
    version, by = last[0], identity_in(last[1])
    if latest > turn:
        return Commit(None, Overtaken(by=by, turn=latest))
    if by.job != me.job:
        raise RunDirectoryError.saying(
            f"turn {turn} of {target.part} in {target.path}", f"it belongs to {by.run}, not to this run",
            "the store of turns was lost or put back in between; begin a new run",
        )  # fmt: skip
    return Commit(version)


def publications(table: DeltaTable, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    """The versions that we have published, newest first, with what their commits say."""
    for version, actions in commits(location_of(target), int(table.version())):
        about = told(said_in(actions))
        if "part" in about:
            yield version, about


def staged_files(table: DeltaTable | None, target: OutputPart, staged: StagedResult) -> Sequence[StagedFile]:
    """The files as they were staged; nobody removes them while the table is there."""
    del target
    if table is None:
        raise RunDirectoryError.saying(f"table {staged.location}", "it is gone", "begin a new run")
    return staged.files


def commit_part(table: DeltaTable, target: OutputPart, files: Sequence[StagedFile], about: Mapping[str, str]) -> int:
    """Commit a version upon the one that was loaded, in which a part has just these files.

    Raises:
        CommitFailedError: another version has been committed since.
        RunDirectoryError: the table asks for more of each row than when the files were written.
    """
    if rules_digest(rules_of(table)) != about.get(RULES, ""):
        raise RunDirectoryError.saying(
            where(target), "constraints or required columns of the table have changed since these files were written",
            "begin a new run",
        )  # fmt: skip
    values = {name: str(value) for name, value in target.values.items()}
    now = int(dt.datetime.fromisoformat(about["at"]).timestamp() * 1000)
    actions = [
        AddAction(file.path, file.size_bytes, values, now, True, file.statistics or of_bounds(file.rows, {}))
        for file in files
    ]
    version = int(table.version())
    table.create_write_transaction(
        actions,  # type: ignore[arg-type]  # its list is invariant
        "overwrite",
        table.schema(),
        partition_by=list(values),
        partition_filters=[(name, "=", value) for name, value in values.items()],
        commit_properties=CommitProperties(
            custom_metadata=written(about),
            max_commit_retries=0,
            app_transactions=[Transaction(_application(target), int(about["turn"]))],
        ),
    )
    sync_version(target, version + 1)
    table.load_as_version(version + 1)
    found = {unquote(file["path"]) for file in files_of_part(table, target)}
    if found != {unquote(file.path) for file in files}:
        raise RunDirectoryError(
            f"version {version + 1} of {target.path}", f"just the {len(files):,} files of {target.part}",
            f"{len(found):,} files", f"restore version {version}, and publish into a table of its own",
        )  # fmt: skip
    return version + 1


def earlier_files(table: DeltaTable, target: OutputPart, number: int) -> list[StagedFile]:
    """The files of a part in a version."""
    del table  # as it was loaded: it is loaded anew as it was then
    location, then = location_of(target), find_table(target, number)
    found = [
        StagedFile(path=one["path"], rows=one["num_records"], size_bytes=one["size_bytes"], statistics=_statistics(one))
        for one in (files_of_part(then, target, ()) if then is not None else ())
    ]
    gone = [] if "://" in location else [file.path for file in found if not Path(location, file.path).exists()]
    if gone:
        raise SpecError(
            f"{target.path}, part {target.part}", f"the files of version {number}", f"{gone[0]} is gone",
            "it has been vacuumed: run the job again",
        )  # fmt: skip
    return found


def _statistics(action: Mapping[str, Any]) -> str:
    """What the log says of a file's columns."""
    of_columns = [name.removeprefix("null_count.") for name in action if name.startswith("null_count.")]
    return of_bounds(
        action["num_records"],
        {
            name: Bounds(action.get(f"min.{name}"), action.get(f"max.{name}"), action[f"null_count.{name}"])
            for name in of_columns
            if "." not in name
        },
    )


def unnamed(table: DeltaTable, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """Which files of a run the log does not name; if the run has published, some version names what it has staged."""
    paths = {*others, *staged}
    if any(about.get("run-digest") == digest for about in map(told, table.history())):
        paths -= set(staged)
    named = {unquote(path) for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()}
    return sorted(path for path in paths if unquote(path) not in named)


def remove(target: OutputPart, paths: Collection[str]) -> None:
    """Remove files; those that are gone are no error."""
    location = location_of(target).rstrip("/")
    for path in paths:
        with suppress(FileNotFoundError):
            if "://" not in location:
                Path(location, unquote(path)).unlink()
            else:
                fs, there = open_location(f"{location}/{unquote(path)}")
                fs.rm_file(there)


def stage(
    target: OutputPart, columns: pa.Schema, files: Sequence[ResultFile], begin: Callable[[Sequence[str]], object]
) -> StagedResult:
    """Write a result into new files below the output's table, which no version of it names yet."""
    table = ready_table(target, columns)
    location = plain_path(str(table.table_uri)).rstrip("/")
    parts = target.values
    known = pa.schema(table.schema().to_arrow())
    kind = pa.schema([field for field in known if field.name not in parts])
    folder, token = "/".join(f"{name}={value}" for name, value in parts.items()), uuid.uuid4()
    paths = [f"{folder}/part-{number:05d}-{token}.parquet" for number in range(len(files))]
    begin([quoted(path) for path in paths])

    def one(place: str, file: ResultFile) -> StagedFile:
        with create_file(place) as stream:
            footer = write_rows(stream, file, kind, {}, "zstd")
            size = stream.tell()
        path = quoted(place.removeprefix(f"{location}/"))
        return StagedFile(path=path, rows=file.rows, size_bytes=size, statistics=of_footer(footer))

    written = write_all([f"{location}/{path}" for path in paths], files, one)
    return StagedResult(table=target.path, location=location, files=tuple(written), rules=rules_of(table))


def quoted(path: str) -> str:
    """A path below a table as its log has it."""
    return quote(path, safe="/=-._")
