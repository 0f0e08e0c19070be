"""The merge of a job with a window: tonight's states are kept per part, and a result is a merge of kept states.

First the states of the stages are merged by part and key, and written into the store of standing states. A part whose
units all are known has none. Then a version of each part that has new states is committed: its earlier states, unless
it was reduced anew, and the new ones. The result is the merge of the states of all parts of the window.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.ledger import PartLine, PartLines, WindowLine
from skewless.documents.window import JobWindow, PartVersion, WindowPart
from skewless.errors import LedgerError
from skewless.run.attempt import Attempt
from skewless.run.directory import RunDirectory
from skewless.spec.spec import WINDOW_COLUMN
from skewless.standing.fingerprint import Fingerprint
from skewless.standing.parts import next_version
from skewless.standing.store import STATES_STEP, StatesStore
from skewless_spark.result.compaction import begun_anew, crowded_parts, with_kept_states
from skewless_spark.session.planning import planned_once
from skewless_spark.states.columns import PART, JobColumns
from skewless_spark.states.committed_files import read_files, written

#: The place of a part, by which its states are ordered.
_PLACE = "place"
_STANDING = "standing"
_DATA = "data"


def keep_states(
    run: RunDirectory, columns: JobColumns, attempt: Attempt, merged: DataFrame, rows: int
) -> tuple[list[PartVersion], list[PartLine]]:
    """Write tonight's states into the store, and commit a version of each part that has some.

    Args:
        run: the run directory.
        columns: of a job with a window.
        attempt: at the result.
        merged: the states of the stages, one row for each part and key.
        rows: the rows that they stand for.

    Returns:
        The version of each part of the window, oldest first, and its rows.

    Raises:
        LedgerError: the states do not stand for the rows that were processed; no version is committed.
    """
    job = columns.job
    window: JobWindow = job.window  # type: ignore[assignment]
    store = StatesStore(window.store)
    store.begin(Fingerprint(shapes=window.shapes))
    crowded = crowded_parts(window) if rows else {}
    made = _written(store, attempt.ident, columns, with_kept_states(columns, merged, crowded)) if rows else {}
    for at, part in crowded.items():
        files, count = made[at]
        made[at] = (files, count - part.base_rows)
    _require_all(job, made, rows)
    versions, lines = [], []
    for at, part in enumerate(window.parts):
        files, count = made.get(at, ([], 0))
        version = next_version(window, begun_anew(part) if at in crowded else part, str(run), files, count)
        versions.append(store.commit(version).version if part.changed else version)
        line = PartLine(
            part=part.name, unchanged_rows=part.base_rows, new_rows=count,
            taken_out_rows=part.before_rows - part.base_rows, listed_rows=_listed(job, part) if job.counted else None,
        )  # fmt: skip
        lines.append(line)
    return versions, lines


def over_windows(spark: SparkSession, columns: JobColumns, versions: Sequence[PartVersion]) -> DataFrame | None:
    """The merged states of each window; of several windows with the column ``window``.

    Returns:
        None if no part has a row.

    Raises:
        RunDirectoryError: a file of the states is not the one that its version names.
    """
    window: JobWindow = columns.job.window  # type: ignore[assignment]
    merged = [(span, over_window(spark, columns, versions[span.first :])) for span in window.spans]
    found = [of_window(columns, over, span.length) for span, over in merged if over is not None]
    if len(found) < 2:
        return found[0] if found else None
    return reduce(DataFrame.unionAll, found).coalesce(columns.job.spec.output.files)


def of_window(columns: JobColumns, merged: DataFrame, length: int | None) -> DataFrame:
    """Merged states with the window that they are of, if the job has several."""
    if columns.job.spec.windows is None:
        return merged
    return merged.withColumn(WINDOW_COLUMN, F.lit(length).cast("int"))


def lines_of(job: Job, parts: Sequence[PartLine], counts: Sequence[tuple[int, int]]) -> PartLines:
    """The lines of the parts and windows of a result.

    Args:
        job: of a window.
        parts: the lines of all of its parts.
        counts: for each window, rows of the input in it, and keys.
    """
    window: JobWindow = job.window  # type: ignore[assignment]
    lines = [
        WindowLine(
            name=span.name, keys=keys, rows=rows, of_parts_rows=sum(line.rows for line in parts[span.first :])
        )
        for span, (rows, keys) in zip(window.spans, counts, strict=True)
    ]  # fmt: skip
    return PartLines(parts=tuple(parts), windows=tuple(lines))


def over_window(spark: SparkSession, columns: JobColumns, versions: Sequence[PartVersion]) -> DataFrame | None:
    """One row per key: its rows, its native states, and its Python states as a list, over all parts.

    Returns:
        None if no part has a row.

    Raises:
        RunDirectoryError: a file of the states is not the one that its version names.
    """
    files = [file for version in versions for file in version.states]
    if not files:
        return None
    window: JobWindow = columns.job.window  # type: ignore[assignment]
    states = read_files(spark, StatesStore(window.store), files)
    in_files = columns.job.spec.output.files
    if not columns.merged_in_any_order:
        states = states.repartition(in_files, *columns.keys)
        # In the order of parts. Several states of a key in one part are told apart by their rows alone.
        states = states.sortWithinPartitions(*columns.keys, _PLACE, "rows")
    python = []
    if columns.python:
        lists = F.sort_array(F.collect_list(F.struct(_PLACE, "states")))
        python = [F.flatten(F.transform(lists, lambda one: one["states"])).alias("states")]
    merged = states.groupBy(*columns.keys).agg(F.sum("rows").alias("rows"), *columns.merges, *python)
    # In any order, what a task reads is merged before it is sent.
    return merged.coalesce(in_files) if columns.merged_in_any_order else merged


def _written(
    store: StatesStore, ident: str, columns: JobColumns, merged: DataFrame
) -> dict[int, tuple[list[CommittedFile], int]]:
    """For the position of each part: the files that were written for it, and the rows that they stand for."""
    window: JobWindow = columns.job.window  # type: ignore[assignment]
    attempt = Attempt(store, STATES_STEP, ident)
    cases = " ".join(f"WHEN {PART} = {at} THEN {window.parts[at].place}L" for at in window.reduced)
    placed = merged.withColumn(_PLACE, F.expr(f"CASE {cases} END"))
    with planned_once(merged.sparkSession):
        placed.write.partitionBy(PART).parquet(attempt.path(_DATA))
    counts: dict[str, int] = {}

    def count(file: CommittedFile, parquet: pq.ParquetFile) -> None:
        batches = parquet.iter_batches(columns=["rows"])
        counts[file.path] = sum(pc.sum(batch["rows"]).as_py() or 0 for batch in batches)

    found: dict[int, tuple[list[CommittedFile], int]] = {}
    for file in written(attempt, _STANDING, _DATA, reader=count):
        at = re.search(rf"/{PART}=(\d+)/", file.path)
        if at is None:
            raise LedgerError.saying(file.path, "these are states of no part", "nothing was committed")
        files, rows = found.get(int(at[1]), ([], 0))
        found[int(at[1])] = ([*files, file], rows + counts[file.path])
    return found


def _require_all(job: Job, made: dict[int, tuple[list[CommittedFile], int]], rows: int) -> None:
    """Refuse states that do not stand for the rows of their parts.

    Raises:
        LedgerError: says of which part.
    """
    window: JobWindow = job.window  # type: ignore[assignment]
    for at, part in enumerate(window.parts):
        came, listed = made.get(at, ([], 0))[1], _listed(job, part)
        if job.counted and came != listed:
            raise LedgerError(
                f"part {part.name}", f"{listed:,} rows in its new states", f"{came:,}", "nothing was committed"
            )
    if (came := sum(count for _, count in made.values())) != rows:
        raise LedgerError("states of the parts", f"the {rows:,} rows processed", f"{came:,}", "nothing was committed")


def _listed(job: Job, part: WindowPart) -> int:
    return sum(unit.rows for unit in job.units[slice(*part.units)])
