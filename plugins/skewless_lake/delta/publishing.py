"""The commit that publishes a staged result in a Delta table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterator, Mapping, Sequence
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from skewless.errors import LostRaceError, RunDirectoryError, SpecError
from skewless.run.directory import RunDirectory
from skewless.run.publication import Identity, Overtaken, identity_of
from skewless_lake.commits import ATTEMPTS, RULES, Commit, identity_in, told, wait, written
from skewless_lake.delta.allowed import rules_of
from skewless_lake.delta.log import commits, said_in
from skewless_lake.delta.statistics import of_bounds
from skewless_lake.delta.tables import (
    files_of_part,
    find_table,
    fitting_table,
    location_of,
    require_fitting,
    sync_version,
    where,
)
from skewless_lake.refusals import reason
from skewless_lake.staged import OutputPart, StagedFile, StagedResult, rules_digest


def committing(
    run: RunDirectory, target: OutputPart, turn: int, staged: StagedResult, about: Mapping[str, str]
) -> Generator[str, None, Commit]:
    """Publish staged files: one version of the table, in which they are the part.

    Each attempt loads the table and commits upon just that version: where another one came in between, what the log
    says of the part is looked at again.

    Raises:
        LostRaceError: others commit all the time.
        RunDirectoryError: the table or a staged file is gone.
    """
    me = identity_of(run)
    for attempt in range(ATTEMPTS):
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
            wait(attempt)
            continue
        yield "committed"
        return Commit(version)
    raise LostRaceError(target.path, "a commit of its own", f"{ATTEMPTS} commits of others", "publish again later")


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
