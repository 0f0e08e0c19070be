"""The commit that publishes a staged result in an Iceberg table."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Generator, Mapping

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from skewless.errors import LostRaceError
from skewless.run.directory import RunDirectory
from skewless.run.publication import Overtaken, identity_of
from skewless_lake.commits import ATTEMPTS, Commit, identity_in, wait
from skewless_lake.iceberg.snapshots import ours, replace_part, require_race
from skewless_lake.iceberg.staging import forget_staged, staged_files
from skewless_lake.iceberg.tables import find_table, fitting_table
from skewless_lake.staged import OutputPart, StagedResult


def committing(
    run: RunDirectory, target: OutputPart, turn: int, staged: StagedResult, about: Mapping[str, str]
) -> Generator[str, None, Commit]:
    """Publish the files of a staged snapshot, upon whatever is published by then.

    Each attempt loads the table, looks for this run and for later ones in its history, and commits upon just that
    snapshot. So a commit of others in between is never undone, and a run that has published already, whether or not it
    knows, does not publish again.

    Raises:
        LostRaceError: others commit all the time.
        RunDirectoryError: the staged snapshot is gone.
    """
    me = identity_of(run)
    failed = Counter[str]()
    for attempt in range(ATTEMPTS):
        table = fitting_table(target)
        found = standing(table, target, turn, me.job)
        if found is not None:
            return found
        # Of the very state that is committed upon. Once the run has published, its staged snapshot may be gone.
        table, files = staged_files(target, staged, table)
        yield "loaded"
        try:
            snapshot = replace_part(table, target.values, files, about, branch="main")
        except (CommitFailedException, CommitStateUnknownException) as err:
            require_race(failed, table, err)
            wait(attempt)
            continue
        yield "committed"
        forget_staged(table, staged, dt.datetime.fromisoformat(about["at"]))
        return Commit(snapshot.snapshot_id)
    raise LostRaceError(target.path, "a commit of its own", f"{ATTEMPTS} commits of others", "publish again later")


def standing(table: Table | None, target: OutputPart, turn: int, digest: str) -> Commit | None:
    """What the history of a table says of a run: published, superseded, or None if neither.

    Args:
        table: the table as it was loaded.
        target: the part that it publishes.
        turn: in which it does.
        digest: of the run's identity.
    """
    if table is None:
        return None
    newest = next(((one, about) for one, about in ours(table) if about["part"] == target.part.name), None)
    if newest is None:
        return None
    mine = next((one for one, about in ours(table) if about.get("run-digest") == digest), None)
    latest = int(newest[1].get("turn", 0))
    if latest > turn:
        over = Overtaken(by=identity_in(newest[1]), turn=latest)
        return Commit(mine.snapshot_id if mine else None, None if mine else over)
    return Commit(mine.snapshot_id) if mine is not None else None


def latest_turn(target: OutputPart) -> int:
    """The latest turn in which a part was published; 0 if the table says none."""
    table = fitting_table(target)
    if table is None:
        return 0
    return max((int(about.get("turn", 0)) for _, about in ours(table) if about["part"] == target.part.name), default=0)


def newest(target: OutputPart) -> dict[str, tuple[int, dict[str, str]]]:
    """By part: the snapshot of its newest publication, and what its summary says."""
    table, found = find_table(target), dict[str, tuple[int, dict[str, str]]]()
    for snapshot, about in ours(table) if table is not None else ():
        found.setdefault(about["part"], (snapshot.snapshot_id, about))
    return found
