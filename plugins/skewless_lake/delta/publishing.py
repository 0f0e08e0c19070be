"""Staging, publishing and rolling back a part of a Delta table, and the files that runs have left there."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from skewless.errors import RunDirectoryError, SpecError
from skewless.run.directory import RunDirectory
from skewless.run.objects.location import open_location, plain_path
from skewless.run.publication.records import Identity, Overtaken, identity_of
from skewless_lake.commits import RULES, Commit, attempts, identity_in, told, written
from skewless_lake.delta.log import commits, said_in
from skewless_lake.delta.statistics import Bounds, of_bounds, of_footer
from skewless_lake.delta.tables import (
    files_of_part,
    find_table,
    fitting_table,
    location_of,
    ready_table,
    require_fitting,
    rules_of,
    sync_version,
    where,
)
from skewless_lake.new_files import ResultFile, created, write_all, write_rows
from skewless_lake.refusals import reason
from skewless_lake.staged import OutputPart, StagedFile, StagedResult, rules_digest

#: What each format has, see ``formats.TableFormat``.
__all__ = [
    "committing", "fitting_table", "latest_turn", "newest", "remove", "roll_back", "stage", "staged_paths", "unnamed",
]  # fmt: skip


def committing(
    run: RunDirectory, target: OutputPart, turn: int, staged: StagedResult, about: Mapping[str, str]
) -> Generator[str, None, Commit]:
    """Publish staged files: one version of the table, in which they are the part."""
    me = identity_of(run)
    for _ in attempts(target.path):
        table = find_table(target)
        if table is None:
            raise RunDirectoryError.saying(f"table {staged.location}", "it is gone", "begin a new run")
        found = _standing(table, target, turn, me)
        if found is not None:
            return found
        yield "loaded"
        try:
            version = commit_part(table, target, turn, staged.files, about)
        except CommitFailedError as err:
            require_race(table, target, err)
            continue
        yield "committed"
        return Commit(version)
    raise AssertionError


def require_race(table: DeltaTable, target: OutputPart, err: CommitFailedError) -> None:
    """Go on only if another version is there by now: by the same error deltalake refuses what it never commits.

    Raises:
        SpecError: no version has come since the table was loaded.
    """
    now = find_table(target)
    if now is None or int(now.version()) == int(table.version()):
        raise SpecError.saying(
            where(target), f"deltalake does not commit to the table ({reason(err)})", "publish into a table of its own"
        ) from None


def latest_turn(target: OutputPart) -> int:
    """The latest turn in which a part was published; 0 if the table says none."""
    table = fitting_table(target)
    return (table.transaction_version(_application(target)) or 0) if table is not None else 0


def _application(target: OutputPart) -> str:
    """The name under which the table keeps the latest turn of a part."""
    return f"skewless/{target.part.name}"


def _standing(table: DeltaTable, target: OutputPart, turn: int, me: Identity) -> Commit | None:
    """What the log says of a run: published, superseded, or None if neither."""
    latest = table.transaction_version(_application(target))
    if latest is None or latest < turn:
        return None
    by, version = _committed_by(table, target, latest)
    if latest > turn:
        return Commit(None, Overtaken(by=by, turn=latest))
    if by.job != me.job:
        raise RunDirectoryError.saying(
            f"turn {turn} of {target.part} in {target.path}", f"it belongs to {by.run}, not to this run",
            "the store of turns was lost or put back in between; begin a new run",
        )  # fmt: skip
    return Commit(version)


def _committed_by(table: DeltaTable, target: OutputPart, turn: int) -> tuple[Identity, int]:
    """Which run has published the part in a turn, and in which version."""
    for version, about in publications(table, target):
        if about.get("turn") == str(turn):
            return identity_in(about), version
    raise RunDirectoryError.saying(
        f"log of {target.path}", f"it no longer names the run that has published {target.part} in turn {turn}",
        "begin a new run",
    )  # fmt: skip


def publications(table: DeltaTable, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    """The versions that have published a part, the newest first, with what their commits say."""
    return (one for one in _ours(table, target) if one[1]["part"] == target.part.name)


def newest(target: OutputPart) -> dict[str, tuple[int, dict[str, str]]]:
    """By part: the version of its newest publication, and what its commit says."""
    table, found = find_table(target), dict[str, tuple[int, dict[str, str]]]()
    for version, about in _ours(table, target) if table is not None else ():
        found.setdefault(about["part"], (version, about))
    return found


def _ours(table: DeltaTable, target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    for version, actions in commits(location_of(target), int(table.version())):
        about = told(said_in(actions))
        if "part" in about:
            yield version, about


def commit_part(
    table: DeltaTable, target: OutputPart, turn: int, files: Sequence[StagedFile], about: Mapping[str, str]
) -> int:
    """Commit a version upon the one that was loaded, in which a part has just these files.

    Args:
        table: as it was loaded.
        target: the part.
        turn: of the run.
        files: of the part.
        about: for the commit, see ``commits.written``.

    Returns:
        The version.

    Raises:
        CommitFailedError: another version has been committed since.
        SpecError: the table is no longer one that we write to.
        RunDirectoryError: it asks for more of each row than when the files were written.
    """
    require_fitting(table, target)
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
            app_transactions=[Transaction(_application(target), turn)],
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


def roll_back(target: OutputPart, turn: int, at: str) -> Mapping[str, str]:
    """Commit the files that a part had before the newest publication of it; other parts stay as they are."""
    unanswered: Exception | None = None
    for _ in attempts(target.path):
        table = find_table(target)
        history = list(publications(table, target)) if table is not None else []
        if table is None or len(history) < 2:
            raise SpecError(
                f"{target.path}, part {target.part}", "two publications of it in the table's log", f"{len(history)}",
                "run the job again",
            )  # fmt: skip
        done = next((one for one in history if one[1].get("turn") == str(turn)), None)
        if done is not None:  # the answer to an attempt was lost, and it was a success: once more would undo it
            return {**done[1], "snapshot": str(done[0])}
        if unanswered is not None:
            raise unanswered
        (newest, _), (before, told) = history[:2]
        about = {**told, "turn": str(turn), "at": at, "rolled-back": f"from version {newest}"}
        files = _files(target, before)
        try:
            version = commit_part(table, target, turn, files, about)
        except CommitFailedError as err:
            require_race(table, target, err)
            continue
        except (DeltaError, OSError) as err:  # it may have been committed all the same: the log tells
            unanswered = err
            continue
        return {**about, "snapshot": str(version)}
    raise AssertionError


def _files(target: OutputPart, version: int) -> list[StagedFile]:
    """The files of a part in a version."""
    location, table = location_of(target), find_table(target, version)
    found = [
        StagedFile(path=one["path"], rows=one["num_records"], size_bytes=one["size_bytes"], statistics=_statistics(one))
        for one in (files_of_part(table, target, ()) if table is not None else ())
    ]
    gone = [] if "://" in location else [file.path for file in found if not Path(location, file.path).exists()]
    if gone:
        raise SpecError(
            f"{target.path}, part {target.part}", f"the files of version {version}", f"{gone[0]} is gone",
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


def unnamed(target: OutputPart, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """Which files of a run the log does not name; if the run has published, some version names what it has staged."""
    table, paths = find_table(target), {*others, *staged}
    if table is None or not paths:
        return []
    if any(about.get("run-digest") == digest for about in map(told, table.history())):
        paths -= set(staged)
    named = {unquote(path) for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()}
    return sorted(path for path in paths if unquote(path) not in named)


def remove(target: OutputPart, paths: Collection[str], digest: str) -> None:
    """Remove files; those that are gone are no error."""
    del digest  # nothing else is staged
    location = location_of(target).rstrip("/")
    for path in paths:
        with suppress(FileNotFoundError):
            if "://" not in location:
                Path(location, unquote(path)).unlink()
            else:
                fs, there = open_location(f"{location}/{unquote(path)}")
                fs.rm_file(there)


def stage(
    target: OutputPart, columns: pa.Schema, files: Sequence[ResultFile], about: Mapping[str, str],
    begin: Callable[[Sequence[str]], object],
) -> StagedResult:  # fmt: skip
    """Write a result into new files below the output's table, which no version of it names yet."""
    del about  # a log says nothing of what is staged
    table = ready_table(target, columns)
    location = plain_path(str(table.table_uri)).rstrip("/")
    parts = target.values
    known = pa.schema(table.schema().to_arrow())
    kind = pa.schema([field for field in known if field.name not in parts])
    filled = [file for file in files if file.rows]
    folder, token = "/".join(f"{name}={value}" for name, value in parts.items()), uuid.uuid4()
    paths = [f"{folder}/part-{number:05d}-{token}.parquet" for number in range(len(filled))]
    begin([quoted(path) for path in paths])

    def one(place: str, file: ResultFile) -> StagedFile:
        with created(place) as stream:
            footer = write_rows(stream, file, kind, {}, "zstd")
            size = stream.tell()
        path = quoted(place.removeprefix(f"{location}/"))
        return StagedFile(path=path, rows=file.rows, size_bytes=size, statistics=of_footer(footer))

    written = write_all([f"{location}/{path}" for path in paths], filled, one)
    return StagedResult(table=target.path, location=location, files=tuple(written), rules=rules_of(table))


def staged_paths(target: OutputPart, staged: StagedResult) -> dict[str, int]:
    """Where the staged files can be read, with the bytes of each."""
    del target
    return {f"{staged.location}/{file.path}": file.size_bytes for file in staged.files}


def quoted(path: str) -> str:
    """A path below a table as its log has it."""
    return quote(path, safe="/=-._")
