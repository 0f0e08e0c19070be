"""Files of runs that an Iceberg table does not name, and that nobody will publish."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from skewless.errors import LostRaceError
from skewless_lake.commits import ATTEMPTS, wait
from skewless_lake.iceberg.snapshots import summary_of
from skewless_lake.iceberg.staging import NOT_AUDITED
from skewless_lake.iceberg.tables import find_table
from skewless_lake.staged import OutputPart


def unnamed(target: OutputPart, paths: Collection[str], digest: str) -> list[str]:
    """Which files no snapshot names, but for those that a run has staged.

    Args:
        target: any part of the table.
        paths: of the files.
        digest: of the run's identity.
    """
    table = find_table(target)
    if table is None or not paths:
        return []
    given_up = {one.snapshot_id for one in _staged_by(table, digest)}
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in table.snapshots()
        if snapshot.snapshot_id not in given_up
        for manifest in snapshot.manifests(table.io)
    }
    left = set(paths)
    for manifest in manifests.values():
        left -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return sorted(left)


def remove(target: OutputPart, paths: Collection[str], digest: str) -> None:
    """Expire what a run has staged, and remove files; those that are gone are no error.

    Raises:
        LostRaceError: others commit all the time.
    """
    for attempt in range(ATTEMPTS):
        table = find_table(target)
        if table is None:
            return
        staged = [one.snapshot_id for one in _staged_by(table, digest)]
        try:
            if staged:
                table.maintenance.expire_snapshots().by_ids(staged).commit()
        except CommitFailedException:
            wait(attempt)
            continue
        for path in paths:
            if table.io.new_input(path).exists():
                table.io.delete(path)
        return
    raise LostRaceError(target.path, "a commit of its own", f"{ATTEMPTS} commits of others", "try again later")


def _staged_by(table: Table, digest: str) -> list[Snapshot]:
    """The snapshots that a run has staged, which no branch and no tag names."""
    named = {one.snapshot_id for one in table.refs().values()}
    abouts = [(one, summary_of(one)) for one in table.snapshots() if one.snapshot_id not in named]
    return [one for one, about in abouts if about.get("run-digest") == digest and about.get("quality") == NOT_AUDITED]
