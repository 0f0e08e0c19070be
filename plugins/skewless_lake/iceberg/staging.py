"""Stages a result: its files, and a snapshot that no branch names, which is then audited."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from skewless.errors import LostRaceError, RunDirectoryError
from skewless_lake.columns import ResultFile
from skewless_lake.commits import ATTEMPTS, wait
from skewless_lake.iceberg.snapshots import files_of_part, replace_part, require_race, rules_of, summary_of
from skewless_lake.iceberg.tables import ready_table
from skewless_lake.iceberg.writing import write_files
from skewless_lake.staged import OutputPart, StagedFile, StagedResult

#: What the summary of a staged snapshot says of its quality.
NOT_AUDITED = "not audited yet"
#: A staged snapshot that failed its audit, or whose run was given up, can be looked at for so long.
KEPT = dt.timedelta(days=7)


def stage(
    target: OutputPart,
    columns: pa.Schema,
    files: Sequence[ResultFile],
    about: Mapping[str, str],
    begin: Callable[[Sequence[str]], object],
) -> StagedResult:
    """Write a result into files of the output's table and stage a snapshot in which they replace the part.

    Args:
        target: the part of the table.
        columns: of the result.
        files: of the result.
        about: for the snapshot's summary.
        begin: called with the paths of the files before any of them is written.

    Raises:
        SpecError: the table does not fit the result.
    """
    table = ready_table(target, columns)
    written = write_files(table, files, target, begin)
    failed = Counter[str]()
    for attempt in range(ATTEMPTS):
        try:
            found = replace_part(table, target.values, written, {**about, "quality": NOT_AUDITED}, branch=None)
        except CommitFailedException as err:
            require_race(failed, table, err)
            wait(attempt)
            table.refresh()
            continue
        return StagedResult(
            table=target.path,
            location=table.location(),
            files=tuple(
                StagedFile(path=one.file_path, rows=one.record_count, size_bytes=one.file_size_in_bytes)
                for one in written
            ),
            snapshot=found.snapshot_id,
            rules=rules_of(table),
        )
    raise LostRaceError(target.path, "a snapshot to be staged", f"{ATTEMPTS} commits of others", "try again later")


def staged_files(target: OutputPart, staged: StagedResult, table: Table | None) -> tuple[Table, list[DataFile]]:
    """The files of the part as the staged snapshot has them.

    Args:
        target: the part.
        staged: the record of what is staged.
        table: as it was loaded; None if it is gone.

    Returns:
        The table, and the files.

    Raises:
        RunDirectoryError: the snapshot has been expired, or holds other files than were staged.
    """
    snapshot = _snapshot(table, staged)
    if table is None or snapshot is None:
        raise RunDirectoryError.saying(
            f"staged snapshot {staged.snapshot} of {target.path}", "it has been expired or dropped",
            "begin a new run",
        )  # fmt: skip
    found = files_of_part(table, target.values, snapshot.snapshot_id)
    came = {one.file_path: (one.record_count, one.file_size_in_bytes) for one in found}
    if came != {one.path: (one.rows, one.size_bytes) for one in staged.files}:
        raise RunDirectoryError(
            f"staged snapshot {staged.snapshot} of {target.path}", f"the {len(staged.files)} files of the result",
            f"{len(found)} files, others", "begin a new run",
        )  # fmt: skip
    return table, found


def _snapshot(table: Table | None, staged: StagedResult) -> Snapshot | None:
    return table.snapshot_by_id(staged.snapshot) if table is not None and staged.snapshot is not None else None


def forget_staged(table: Table, staged: StagedResult, now: dt.datetime) -> None:
    """Expire a staged snapshot whose files are published, and those that nobody has published for some days.

    Files are left alone. If somebody else commits just now, the snapshots go another time.

    Args:
        table: the table.
        staged: what was published.
        now: the time.
    """
    table.refresh()
    before = (now - KEPT).timestamp() * 1000
    not_audited = [one for one in table.snapshots() if summary_of(one).get("quality") == NOT_AUDITED]
    gone = [one.snapshot_id for one in not_audited if one.snapshot_id == staged.snapshot or one.timestamp_ms < before]
    with suppress(CommitFailedException):
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()
