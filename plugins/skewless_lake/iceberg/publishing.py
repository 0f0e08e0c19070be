"""Publishing and rolling back a part of an Iceberg table, and the files that runs have left there."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Generator, Mapping

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import Overtaken, identity_of
from skewless_lake.commits import Commit, attempts, identity_in
from skewless_lake.iceberg.snapshots import files_of_part, ours, replace_part, require_race, summary_of
from skewless_lake.iceberg.staging import NOT_AUDITED, forget_staged, stage, staged_files, staged_paths
from skewless_lake.iceberg.tables import find_table, fitting_table
from skewless_lake.staged import OutputPart, StagedResult

#: What each format has, see ``formats.TableFormat``.
__all__ = [
    "committing", "fitting_table", "latest_turn", "newest", "remove", "roll_back", "stage", "staged_paths", "unnamed",
]  # fmt: skip


def committing(
    run: RunDirectory, target: OutputPart, turn: int, staged: StagedResult, about: Mapping[str, str]
) -> Generator[str, None, Commit]:
    """Publish the files of a staged snapshot."""
    me = identity_of(run)
    failed = Counter[str]()
    for _ in attempts(target.path):
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
            continue
        yield "committed"
        forget_staged(table, staged, dt.datetime.fromisoformat(about["at"]))
        return Commit(snapshot.snapshot_id)
    raise AssertionError


def standing(table: Table | None, target: OutputPart, turn: int, digest: str) -> Commit | None:
    """What the history of a table says of a run: published, superseded, or None if neither."""
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


def roll_back(target: OutputPart, turn: int, at: str) -> Mapping[str, str]:
    """Commit the files that a part had before the newest publication of it; other parts stay as they are."""
    unanswered: Exception | None = None
    failed = Counter[str]()
    for _ in attempts(target.path):
        table = find_table(target)
        history = [one for one in ours(table) if one[1]["part"] == target.part.name] if table is not None else []
        if table is None or len(history) < 2:
            raise SpecError(
                f"{target.path}, part {target.part}", "two publications of it in the table's history",
                f"{len(history)}", "run the job again, or have a look at older snapshots with pyiceberg",
            )  # fmt: skip
        done = next((one for one in history if one[1].get("turn") == str(turn)), None)
        if done is not None:  # the answer to an attempt was lost, and it was a success: once more would undo it
            return {**done[1], "snapshot": str(done[0].snapshot_id)}
        if unanswered is not None:
            raise unanswered
        (newest, _), (before, told) = history[:2]
        about = {**told, "turn": str(turn), "at": at, "rolled-back": f"from snapshot {newest.snapshot_id}"}
        files = files_of_part(table, target.values, before.snapshot_id)
        try:
            made = replace_part(table, target.values, files, about, branch="main")
        except CommitFailedException as err:
            require_race(failed, table, err)
            continue
        except Exception as err:  # noqa: BLE001  # each catalog has its own; it may have been committed: the table tells
            unanswered = err
            continue
        return {**about, "snapshot": str(made.snapshot_id)}
    raise AssertionError


def unnamed(target: OutputPart, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """Which files no snapshot names, but for those that a run has staged."""
    table, left = find_table(target), {*others, *staged}
    if table is None or not left:
        return []
    given_up = {one.snapshot_id for one in _staged_by(table, digest)}
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in table.snapshots()
        if snapshot.snapshot_id not in given_up
        for manifest in snapshot.manifests(table.io)
    }
    for manifest in manifests.values():
        left -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return sorted(left)


def remove(target: OutputPart, paths: Collection[str], digest: str) -> None:
    """Expire what a run has staged, and remove files."""
    for _ in attempts(target.path):
        table = find_table(target)
        if table is None:
            return
        staged = [one.snapshot_id for one in _staged_by(table, digest)]
        try:
            if staged:
                table.maintenance.expire_snapshots().by_ids(staged).commit()
        except CommitFailedException:
            continue
        for path in paths:
            if table.io.new_input(path).exists():
                table.io.delete(path)
        return


def _staged_by(table: Table, digest: str) -> list[Snapshot]:
    """The snapshots that a run has staged, which no branch and no tag names."""
    named = {one.snapshot_id for one in table.refs().values()}
    abouts = [(one, summary_of(one)) for one in table.snapshots() if one.snapshot_id not in named]
    return [one for one, about in abouts if about.get("run-digest") == digest and about.get("quality") == NOT_AUDITED]
