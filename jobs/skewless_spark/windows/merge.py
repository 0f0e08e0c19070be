"""The merge of a job with a window: tonight's states are kept per part, and a result is a merge of kept states.

First the states of the stages are merged by part and key, and written into the store of standing states. A part whose
units all are known has none. Then a version of each part that has new states is committed: its earlier states, unless
it was reduced anew, and the new ones. Then it is planned how the states of all parts of a window become one.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.ledger import PartLine, PartLines, WindowLine
from skewless.documents.window import JobWindow, PartVersion, WindowPart
from skewless.errors import DocumentError, LedgerError, RunDirectoryError, SkewlessError
from skewless.run.directory import PART_LINES, RESULT_STEP, Attempt, RunDirectory
from skewless.spec.result import WINDOW_COLUMN
from skewless.standing.fingerprint import Fingerprint
from skewless.standing.kept_merges import plan_night
from skewless.standing.parts import next_version
from skewless.standing.store import STATES_STEP, KeptMerge, Numbered, StatesStore
from skewless.standing.window_choice import WindowChoice, name_of
from skewless_spark.branches import PLACE, merges_kept
from skewless_spark.session.queries import planned_once
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.columns import PART, JobColumns
from skewless_spark.states.committed_files import read_files, readable, write_files
from skewless_spark.windows.copied_states import copy_states
from skewless_spark.windows.ways import WindowStates, written_states

log = logging.getLogger(__name__)

_DATA = "data"
#: How many additions a part may have beside each other. Each leaves files of its own. A merge of a window reads all of
#: them, and a key has a state in each: so the next addition writes the states of the part anew, one for each key.
MOST_ADDITIONS = 8


def keep_states(
    run: RunDirectory,
    columns: JobColumns,
    attempt: Attempt,
    merged: DataFrame,
    one_each: Sequence[CommittedFile],
    rows: int,
) -> tuple[list[Numbered], list[PartLine]]:
    """Write tonight's states into the store, and commit a version of each part that has some.

    Args:
        merged: the states of the stages, one row for each part and key.
        one_each: the files of the only stage, if these have one row for each, too.

    Returns:
        The version of each part of the window with its number, oldest first, and its rows.

    Raises:
        LedgerError: the states do not stand for the rows that were processed; no version is committed.
    """
    job, window = columns.job, columns.window
    store = StatesStore(window.store)
    store.begin(Fingerprint(shapes=window.shapes))
    crowded = crowded_parts(window) if rows else {}
    kept = Attempt(store, STATES_STEP, attempt.ident)
    if rows and (crowded or not one_each or not copy_states(run, one_each, columns, kept, _DATA)):
        _write(kept, columns, with_kept_states(columns, merged, crowded))
    made = _made(kept) if rows else {}
    for at, part in crowded.items():
        files, count = made[at]
        made[at] = (files, count - part.base_rows)
    _require_all(columns, made, rows)
    versions, lines = [], []
    for at, part in enumerate(window.parts):
        files, count = made.get(at, ([], 0))
        # The kept states of a crowded part are among those that were written tonight.
        standing = part.model_copy(update={"base_states": ()}) if at in crowded else part
        version = next_version(window, standing, str(run), files, count)
        versions.append(store.commit(version) if part.changed or part.rewritten else Numbered(part.base or 0, version))
        line = PartLine(
            part=part.name, unchanged_rows=part.base_rows, new_rows=count,
            taken_out_rows=part.before_rows - part.base_rows, listed_rows=_listed(job, part) if job.counted else None,
        )  # fmt: skip
        lines.append(line)
    return versions, lines


def of_window(columns: JobColumns, merged: DataFrame, length: int | None) -> DataFrame:
    """Merged states with the window that they are of, if the job has several."""
    if columns.job.spec.windows is None:
        return merged
    return merged.withColumn(WINDOW_COLUMN, F.lit(length).cast("int"))


def lines_of(columns: JobColumns, parts: Sequence[PartLine], counts: Sequence[tuple[int, int]]) -> PartLines:
    """The lines of the parts and windows of a result.

    Args:
        counts: for each window, rows of the input in it, and keys.
    """
    lines = [
        WindowLine(
            name=span.name, keys=keys, rows=rows, of_parts_rows=sum(line.rows for line in parts[span.first :])
        )
        for span, (rows, keys) in zip(columns.window.windows, counts, strict=True)
    ]  # fmt: skip
    return PartLines(parts=tuple(parts), windows=tuple(lines))


def over_windows(
    spark: SparkSession, columns: JobColumns, attempt: Attempt, parts: Sequence[Numbered], preferred: str = ""
) -> tuple[WindowChoice, DataFrame | None]:
    """Plan the windows of a night, and merge the states of their parts by that plan.

    The attempt gets a document with the choice. What is kept for nights to come is in the store.

    Args:
        parts: the version of each part of the longest window, oldest first.
        preferred: a way that is taken wherever it is possible, as ``plan_windows`` has it.

    Returns:
        The choice; and one row per key, or per key and window: its rows, its native states, and its Python states as a
        list. None if no part has a row.

    Raises:
        RunDirectoryError: a file of the states is not the one that its version names.
    """
    job, window = columns.job, columns.window
    plan = plan_night(
        StatesStore(window.store), parts, window.windows, job.algebra,
        held_parts=job.spec.covered.kept_parts, now=dt.datetime.now(tz=dt.UTC), result_keys=_keys_before(job),
        preferred=preferred,
    )  # fmt: skip
    log.info("%s", plan.choice.sentence)
    states = WindowStates(spark, columns, attempt, parts, plan).results()
    merged = [(span, states[span.name]) for span in window.windows]
    found = [of_window(columns, one, span.length) for span, one in merged if one is not None]
    if len(found) < 2:
        return plan.choice, found[0] if found else None
    return plan.choice, reduce(DataFrame.unionByName, found).coalesce(job.spec.output.files)


def drop_merges(run: RunDirectory, window: JobWindow, choice: WindowChoice) -> None:
    """Say in the store which running merges no night to come needs; a prune removes them a while later."""
    for name in choice.dropped:
        StatesStore(window.store).drop_merge(name, str(run))


def set_aside_damaged(run: RunDirectory, window: JobWindow) -> bool:
    """Set aside what cannot be read to its end of the states that are kept; whether the merge can begin anew.

    It can without running merges, and without a version that this run has added itself.

    Raises:
        RunDirectoryError: the run goes on from a version that is damaged, and was listed with it.
    """
    store, found, lost = StatesStore(window.store), False, list[RunDirectoryError]()
    for name in store.merges():
        if (fault := _fault(store, partial(store.merge, name))) is not None:
            log.warning("running merge %s is not used any more: %s", name, fault)
            store.drop_merge(name, str(run))
            found = True
    for part in window.parts:
        based = [] if part.base is None else [part.base]
        for number in {*store.numbers(part.name)[-1:], *based}:
            if (fault := _fault(store, partial(store.version, part.name, number))) is None:
                continue
            store.drop_merge(name_of(((part.name, number),)), str(run))
            found = True
            if number == part.base:
                words = f"version {number}, from which this run goes on, cannot be read ({str(fault).rstrip('.')})"
                hint = "begin a new run directory: the rows of the part are read again"
                lost.append(RunDirectoryError.saying(f"states of part {part.name}", words, hint))
    if lost:
        raise lost[0]
    return found


def _fault(store: StatesStore, document: Callable[[], PartVersion | KeptMerge]) -> SkewlessError | None:
    try:
        for file in document().states:
            store.verify(file)
            with readable(store, file), store.fs.open(f"{store.root}/{file.path}", "rb") as opened:
                for _ in open_parquet(opened).iter_batches():
                    pass
    except (DocumentError, RunDirectoryError) as err:
        return err
    return None


def _keys_before(job: Job) -> int:
    """The keys of the longest window of the run before; 0 where nobody knows."""
    for location in job.warm_from:
        with suppress(RunDirectoryError, DocumentError):
            run = RunDirectory(location)
            lines = run.committed_document(run.committed(RESULT_STEP), PART_LINES, PartLines)
            return lines.windows[-1].keys if lines.windows else 0
    return 0


def _write(kept: Attempt, columns: JobColumns, merged: DataFrame) -> None:
    window = columns.window
    cases = " ".join(f"WHEN {PART} = {at} THEN {window.parts[at].place}L" for at in window.reduced)
    placed = merged.withColumn(PLACE, F.expr(f"CASE {cases} END"))
    with planned_once(merged.sparkSession):
        write_files(placed, kept, _DATA, PART)


def _made(kept: Attempt) -> dict[int, tuple[list[CommittedFile], int]]:
    """For the position of each part: the files that were written for it, and the rows that they stand for."""
    found: dict[int, tuple[list[CommittedFile], int]] = {}
    for file, count in zip(*written_states(kept, _DATA), strict=True):
        at = re.search(rf"/{PART}=(\d+)/", file.path)
        if at is None:
            raise LedgerError.saying(file.path, "these are states of no part", "nothing was committed")
        files, rows = found.get(int(at[1]), ([], 0))
        found[int(at[1])] = ([*files, file], rows + count)
    return found


def _require_all(columns: JobColumns, made: dict[int, tuple[list[CommittedFile], int]], rows: int) -> None:
    job = columns.job
    for at, part in enumerate(columns.window.parts):
        came, listed = made.get(at, ([], 0))[1], _listed(job, part)
        if job.counted and came != listed:
            raise LedgerError(
                f"part {part.name}", f"{listed:,} rows in its new states", f"{came:,}", "nothing was committed"
            )
    if (came := sum(count for _, count in made.values())) != rows:
        raise LedgerError("states of the parts", f"the {rows:,} rows processed", f"{came:,}", "nothing was committed")


def _listed(job: Job, part: WindowPart) -> int:
    return sum(unit.rows for unit in job.units[slice(*part.units)])


def crowded_parts(window: JobWindow) -> dict[int, WindowPart]:
    """The parts that are added to tonight and have had many additions, by their positions."""
    reduced = ((at, window.parts[at]) for at in window.reduced)
    return {at: part for at, part in reduced if _additions(part.base_states) >= MOST_ADDITIONS}


def _additions(files: tuple[CommittedFile, ...]) -> int:
    """How many attempts have written some files: ``states/attempts/ID/...``."""
    return len({file.path.split("/")[2] for file in files})


def with_kept_states(columns: JobColumns, made: DataFrame, crowded: Mapping[int, WindowPart]) -> DataFrame:
    """Tonight's states, merged with the kept ones of some parts."""
    if not crowded:
        return made
    store, states = StatesStore(columns.window.store), made
    for at, part in crowded.items():
        kept = read_files(made.sparkSession, store, part.base_states).withColumn(PART, F.lit(at))
        states = states.unionByName(kept.select(*made.columns))
    # In an order that is always the same, as where a window is merged.
    keyed = states.repartition(columns.job.spec.output.files, *columns.groups)
    in_order = keyed.sortWithinPartitions(*columns.groups, "rows")
    return in_order.groupBy(*columns.groups).agg(*merges_kept(states, columns, place=None))
