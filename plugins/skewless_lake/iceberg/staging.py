"""Stages a result: its files, and a snapshot that no branch names, which is then audited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from skewless.errors import LostRaceError, RunDirectoryError
from skewless_lake.columns import ResultFile
from skewless_lake.iceberg.snapshots import files_of_part, replace_part
from skewless_lake.iceberg.tables import find_table, ready_table
from skewless_lake.iceberg.writing import write_files
from skewless_lake.staged import StagedFile, StagedResult, TablePart

#: How often a commit is tried again that others were faster than.
ATTEMPTS = 50


def stage(target: TablePart, columns: pa.Schema, files: Sequence[ResultFile], about: Mapping[str, str]) -> StagedResult:
    """Write a result into files of the output's table and stage a snapshot in which they replace the part.

    Args:
        target: the part of the table.
        columns: of the result.
        files: of the result.
        about: for the snapshot's summary.

    Raises:
        SpecError: the table does not fit the result.
    """
    parts = target.values
    table = ready_table(target, columns)
    written = write_files(table, files, parts)
    for _ in range(ATTEMPTS):
        try:
            found = replace_part(table, parts, written, about, branch=None)
        except CommitFailedException:
            found = None
        except ValueError as err:  # of a snapshot whose number somebody else has taken
            if "sequence number" not in str(err):
                raise
            found = None
        if found is not None:
            return StagedResult(
                table=target.path,
                location=table.location(),
                files=tuple(
                    StagedFile(path=one.file_path, rows=one.record_count, size_bytes=one.file_size_in_bytes)
                    for one in written
                ),
                snapshot=found.snapshot_id,
            )
        table.refresh()
    raise LostRaceError(target.path, "a snapshot to be staged", f"{ATTEMPTS} commits of others", "try again later")


def staged_files(target: TablePart, staged: StagedResult) -> tuple[Table, list[DataFile]]:
    """The table as it is now, and the files of the part as the staged snapshot has them.

    Raises:
        RunDirectoryError: the snapshot has been expired, or holds other files than were staged.
    """
    table = find_table(target)
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
