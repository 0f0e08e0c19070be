"""The states of the parts of a night, one for each part and key in the store of standing states; and of its windows.

The states of a window come from the nodes of the tree over its parts; those that are missing are made. All nodes of a
night are made by one query, and the windows are read by the query that writes the result: a night has as many Spark
jobs for a window of 700 parts as for one of 7.

The states of all parts are written at once: by the stage, where that makes the only state of each key of a part, so
that its files are copied; else by one Spark job. Then a version of each part that has new states is committed: its
earlier states, unless it was reduced anew, and the new ones. A part whose units all are known has none.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.document import HASHES
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.ledger import Counted, PartLine, PartLines, WindowLine
from skewless.documents.window import JobWindow, PartVersion, WindowPart
from skewless.errors import DocumentError, LedgerError, RunDirectoryError, SkewlessError
from skewless.run.directory import WINDOW_PLAN, Attempt, RunDirectory
from skewless.spec.result import WINDOW_COLUMN
from skewless.standing.parts import next_version
from skewless.standing.states_store import (
    STATES_STEP,
    Fingerprint,
    MergedPart,
    MergedParts,
    Numbered,
    StatesStore,
    states_checksum,
)
from skewless.standing.tree import NightPlan, plan_night
from skewless_spark.branches import PLACE, merge_in_order, merges_kept
from skewless_spark.branches.native import Native
from skewless_spark.branches.python import STATES
from skewless_spark.session.session import map_in_batches, planned_once
from skewless_spark.sources.formats.input_files import in_threads
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.stage.routes import TASK
from skewless_spark.states.committed_files import OF_PART, read_files, readable, write_files, written
from skewless_spark.states.job_columns import HASH, PART, JobColumns
from skewless_spark.states.python_calls import merge_batches

log = logging.getLogger(__name__)

STANDING = "standing"
#: The column that says which of tonight's nodes a state is of.
NODE, _BEGIN = "node", "begin"
#: States of parts and nodes are kept in files of about this size: each file costs every later night some five
#: milliseconds.
STATES_FILE_BYTES = 4 << 20


def over_windows(
    spark: SparkSession, columns: JobColumns, attempt: Attempt, parts: Sequence[Numbered]
) -> DataFrame | None:
    """Merge the states of the parts of each window; nodes that are made on the way are kept for nights to come.

    Args:
        attempt: it gets a document with the plan.
        parts: the version of each part of the longest window, oldest first.

    Returns:
        One row per key, or per key and window: its rows, its native states, and its Python states as a list. None if no
        part has a row.
    """
    window, store = columns.window, StatesStore(columns.window.store)
    plan = plan_night(store, parts, [part.place for part in window.parts], window.windows)
    log.info("%s", plan.document.sentence)
    attempt.write(WINDOW_PLAN, plan.document)
    files = {**plan.files, **_make_nodes(spark, columns, attempt, parts, plan)}
    merged = list[DataFrame]()
    of_states = {*columns.keys, "rows", HASH, *Native(columns).names, STATES, PLACE}
    for span in window.windows:
        names = plan.document.results[span.name]
        of_window = [file for name in names for file in files[name]]
        if not of_window:
            continue
        states = read_files(spark, store, of_window)
        tied, in_files = _tied(names, files), columns.job.spec.output.files
        one_each = len(names) == 1 and not tied
        own = states.select(*filter(of_states.__contains__, states.columns))  # copied files have those of stages, too
        states = own.coalesce(in_files) if one_each else _merged(states, columns, in_files, tied=tied)
        merged.append(with_window(columns, states, span.length))
    if len(merged) < 2:
        return merged[0] if merged else None
    return reduce(DataFrame.unionByName, merged).coalesce(columns.job.spec.output.files)


def with_window(columns: JobColumns, merged: DataFrame, length: int | None) -> DataFrame:
    """Merged states with the window that they are of, if the job has several."""
    if columns.job.spec.covered.several is None:
        return merged
    return merged.withColumn(WINDOW_COLUMN, F.lit(length).cast("int"))


def _make_nodes(
    spark: SparkSession, columns: JobColumns, attempt: Attempt, parts: Sequence[Numbered], plan: NightPlan
) -> dict[str, tuple[CommittedFile, ...]]:
    """Merge the states of all nodes that are missing, and keep them; the files of each by its name."""
    made = plan.document.made
    read = [file for name in plan.pieces for file in plan.files[name]]
    if not made or not read:
        return dict.fromkeys(made, ())
    store = StatesStore(columns.window.store)
    in_store = Attempt(store, STATES_STEP, attempt.ident)
    begins = [columns.window.parts[first].place for first, _ in made.values()]
    rows = [(plan.place_of[piece], node, begins[node]) for piece, over in plan.pieces.items() for node in over]
    listed = ", ".join(f"({place}L, {node}, {begin}L)" for place, node, begin in rows)
    of_place = F.broadcast(spark.sql(f"SELECT * FROM VALUES {listed} AS nodes({PLACE}, {NODE}, {_BEGIN})"))  # noqa: S608  # numbers
    sizes = [0] * len(made)
    for piece, over in plan.pieces.items():
        for node in over:
            sizes[node] += sum(file.size_bytes for file in plan.files[piece])
    # Each state is there once for each node over its part, and has the place of the node's oldest part.
    keyed = _in_files(read_files(spark, store, read).join(of_place, PLACE), columns, NODE, sizes)
    states = _merged(keyed, columns, by=(NODE, _FILE), tied=_tied(plan.pieces, plan.files)).drop(_FILE)
    with planned_once(spark):
        write_files(_one_state(states, columns), in_store, "nodes", NODE)
    found, nodes = written_by(in_store, "nodes", NODE), dict[str, MergedParts]()
    for number, (name, (first, end)) in enumerate(made.items()):
        files, seen, hashed = found.get(number, NO_STATES)
        versions = [one.version for one in parts[first:end]]
        wanted = sum(one.rows for one in versions)
        if seen != wanted or (hashed - sum(one.rows_hash for one in versions)) % HASHES:
            raise LedgerError(
                f"merged states {name}", f"the {wanted:,} rows of its parts", f"{seen:,}",
                "remove the folder merges of the states, and run the merge again",
            )  # fmt: skip
        merged = (MergedPart(part=one.part, states=states_checksum(one)) for one in versions)
        nodes[name] = MergedParts(
            fingerprint=columns.window.fingerprint, run=str(attempt.run), parts=tuple(merged), rows=seen,
            rows_hash=hashed, states=tuple(files),
        )  # fmt: skip
    store.keep_merges(list(nodes.values()), in_threads)
    return {name: node.states for name, node in nodes.items()}


def _merged(
    states: DataFrame, columns: JobColumns, partitions: int = 0, by: Sequence[str] = (), *, tied: bool
) -> DataFrame:
    """One row per key: its rows, its native states, its Python states as a list, and the place of the oldest part.

    States are merged in the order of parts, so that floating-point sums always round the same way.

    Args:
        partitions: of the result; 0 if all states of a key are in one already.
        by: what a state is of, beside its key.
        tied: whether a key may have several states in a part: there is no order among files that were added.
    """
    groups, ties = [*by, *columns.keys], list[Column]()
    if tied:
        types = dict(states.dtypes)
        hashed = (name for name in Native(columns).names if "map<" not in types[name])
        ties = [F.col("rows"), F.xxhash64("rows", *hashed)]
    if not columns.merged_in_any_order:
        states = states.repartition(partitions, *columns.keys) if partitions else states
        states = states.sortWithinPartitions(*groups, PLACE, *ties)
    merged = states.groupBy(*groups).agg(*merges_kept(states, columns), F.min(_BEGIN if by else PLACE).alias(PLACE))
    # In any order, what a task reads is merged before it is sent.
    return merged.coalesce(partitions) if partitions and columns.merged_in_any_order else merged


def _one_state(merged: DataFrame, columns: JobColumns) -> DataFrame:
    if STATES not in merged.columns:
        return merged
    passed = [name for name in merged.columns if name != STATES]
    rows = merged.select(*passed, columns.key.cast("binary").alias("route_key"), STATES)
    schema = merged.select(*passed, STATES).schema
    return map_in_batches(rows, merge_batches(columns.python_calls(), passed), schema)


class WrittenStates(NamedTuple):
    """Files of states, the rows that they stand for, and the hash of these."""

    files: list[CommittedFile]
    rows: int
    hash: int


NO_STATES = WrittenStates([], 0, 0)


def written_by(attempt: Attempt, folder: str, column: str) -> dict[int, WrittenStates]:
    """What an attempt has written, by the number of a folder."""
    counts: dict[str, list[int]] = {}

    def count(file: CommittedFile, parquet: pq.ParquetFile) -> None:
        read = parquet.read(columns=["rows", HASH], use_threads=False)
        counts[file.path] = [pc.sum(read[name]).as_py() or 0 for name in ("rows", HASH)]

    found: dict[int, WrittenStates] = {}
    for file in written(attempt, STANDING, folder, reader=count):
        number = re.search(rf"/{column}=(\d+)/", file.path)
        if number is None:
            raise LedgerError.saying(file.path, f"these are states of no {column}", "nothing was committed")
        files, rows, hashed = found.get(int(number[1]), NO_STATES)
        more, of_more = counts[file.path]
        found[int(number[1])] = WrittenStates([*files, file], rows + more, (hashed + of_more) % HASHES)
    return found


def _tied(names: Iterable[str], files: Mapping[str, Sequence[CommittedFile]]) -> bool:
    return any(number_of_writers(files[name]) > 1 for name in names)


def number_of_writers(files: Sequence[CommittedFile]) -> int:
    """How many attempts have written some files: ``states/attempts/ID/...``."""
    return len({file.path.split("/")[2] for file in files})


_DATA = "data"
#: How many additions a part may have beside each other. Each leaves files of its own. A merge of a window reads all of
#: them, and a key has a state in each: so the next addition writes the states of the part anew, one for each key.
MOST_ADDITIONS = 8
_FILE = "file"


def keep_states(
    run: RunDirectory,
    columns: JobColumns,
    attempt: Attempt,
    states: Callable[[], DataFrame],
    files: Sequence[CommittedFile],
    *,
    one_each: bool,
    rows: int,
) -> tuple[list[Numbered], list[PartLine]]:
    """Write tonight's states into the store, and commit a version of each part that has some.

    Args:
        states: what reads those of the stages, with their stage.
        files: that they are read from.
        one_each: whether there is one native state, and nothing else, for each part and key.

    Returns:
        The version of each part of the window with its number, oldest first, and its rows.
    """
    job, window = columns.job, columns.window
    store = StatesStore(window.store)
    store.begin(Fingerprint(shapes=window.shapes))
    # Those that are added to tonight and have had many additions, by their positions.
    reduced = ((at, window.parts[at]) for at in window.reduced) if rows else ()
    crowded = {at: part for at, part in reduced if number_of_writers(part.base_states) >= MOST_ADDITIONS}
    kept = Attempt(store, STATES_STEP, attempt.ident)
    if rows and one_each and not crowded and all(f"/{OF_PART}=" in file.path for file in files):
        list(in_threads(lambda file: _copy(run, file, kept), files))
    elif rows:
        # One row for each part and key, in this order: its rows, its native states, and its Python states as a list.
        listed, size_bytes = [_listed(job, part) for part in window.parts], sum(file.size_bytes for file in files)
        keyed = _in_files(states(), columns, PART, [size_bytes * count // (sum(listed) or 1) for count in listed])
        in_order = keyed.sortWithinPartitions(*columns.groups, _FILE, "stage", TASK)
        merged = merge_in_order(in_order, columns, also=(_FILE,)).drop(_FILE)
        places = ", ".join(f"{part.place}L" for part in window.parts)
        placed = with_kept_states(columns, merged, crowded).withColumn(PLACE, F.expr(f"array({places})[{PART}]"))
        with planned_once(merged.sparkSession):
            write_files(placed, kept, _DATA, PART)
    made = written_by(kept, _DATA, PART) if rows else {}
    for at, part in crowded.items():
        of_part, count, hashed = made[at]
        made[at] = WrittenStates(of_part, count - part.base_rows, (hashed - part.base_hash) % HASHES)
    _require_all(columns, made, rows)
    versions, lines = [], []
    for at, part in enumerate(window.parts):
        of_part, count, hashed = made.get(at, NO_STATES)
        # The kept states of a crowded part are among those that were written tonight.
        standing = part.model_copy(update={"base_states": ()}) if at in crowded else part
        versions.append(next_version(window, standing, str(run), of_part, count, hashed))
        line = PartLine(
            part=part.name, unchanged_rows=part.base_rows, new_rows=count,
            taken_out_rows=part.before_rows - part.base_rows, listed_rows=_listed(job, part) if job.counted else None,
            unchanged_hash=part.base_hash, new_hash=hashed,
        )  # fmt: skip
        lines.append(line)
    changed = [part.changed or part.rewritten > 0 for part in window.parts]
    added = iter(store.commit_all([one for one, new in zip(versions, changed, strict=True) if new], in_threads))
    numbered = [
        next(added) if new else Numbered(part.base or 0, version)
        for part, version, new in zip(window.parts, versions, changed, strict=True)
    ]
    return numbered, lines


def lines_of(columns: JobColumns, parts: Sequence[PartLine], counts: Sequence[Counted]) -> PartLines:
    """The lines of the parts and windows of a result.

    Args:
        counts: what the results of each window stand for.
    """
    lines = [
        WindowLine(
            name=span.name, keys=keys, rows=rows, of_parts_rows=sum(line.rows for line in parts[span.first :]),
            rows_hash=hashed % HASHES,
            of_parts_hash=sum(line.unchanged_hash + line.new_hash for line in parts[span.first :]) % HASHES,
        )
        for span, (rows, hashed, keys) in zip(columns.window.windows, counts, strict=True)
    ]  # fmt: skip
    return PartLines(parts=tuple(parts), windows=tuple(lines))


def set_aside_damaged(run: RunDirectory, window: JobWindow) -> bool:
    """Set aside what cannot be read to its end of the states that are kept; whether the merge can begin anew.

    It can without nodes, and without a version that this run has added itself.

    Raises:
        RunDirectoryError: the run goes on from a version that is damaged, and was listed with it.
    """
    store, damaged, lost = StatesStore(window.store), False, list[RunDirectoryError]()
    for name in sorted(store.merges()):
        if (fault := _fault(store, partial(store.merge, name))) is not None:
            log.warning("merged states %s are not used any more: %s", name, fault)
            store.forget_merge(name)
            damaged = True
    for part in window.parts:
        based = [] if part.base is None else [part.base]
        for number in {*store.numbers(part.name)[-1:], *based}:
            if (fault := _fault(store, partial(store.version, part.name, number))) is None:
                continue
            store.set_aside(part.name, number, str(run))
            damaged = True
            if number == part.base:
                words = f"version {number}, from which this run goes on, cannot be read ({str(fault).rstrip('.')})"
                hint = "begin a new run directory: the rows of the part are read again"
                lost.append(RunDirectoryError.saying(f"states of part {part.name}", words, hint))
    if lost:
        raise lost[0]
    return damaged


def _fault(store: StatesStore, document: Callable[[], PartVersion | MergedParts]) -> SkewlessError | None:
    try:
        for file in document().states:
            store.verify(file)
            with readable(store, file), store.fs.open(f"{store.root}/{file.path}", "rb") as opened:
                for _ in open_parquet(opened).iter_batches():
                    pass
    except (DocumentError, RunDirectoryError) as err:
        return err
    return None


def _in_files(states: DataFrame, columns: JobColumns, by: str, sizes: Sequence[int]) -> DataFrame:
    """States placed by the file that they will be in: what is numbered ``by`` has as many as its bytes need."""
    most = columns.job.spec.output.files
    files = [min(most, -(-size // STATES_FILE_BYTES) or 1) for size in sizes]
    number = f"pmod(xxhash64({', '.join(columns.keys)}), array({', '.join(map(str, files))})[{by}])"
    tasks = min(sum(files), max(most, sum(sizes) // STATES_FILE_BYTES))
    return states.withColumn(_FILE, F.expr(number)).repartition(tasks, by, _FILE)


def _copy(run: RunDirectory, file: CommittedFile, attempt: Attempt) -> None:
    store, (part, name) = attempt.run, file.path.rsplit(f"/{OF_PART}=", 1)[1].split("/")
    folder = f"{store.root}/{attempt.folder}/{_DATA}/{PART}={part}"
    store.fs.makedirs(folder, exist_ok=True)
    run.copy(file, partial(store.fs.open, f"{folder}/{name}", "wb"))


def _require_all(columns: JobColumns, made: Mapping[int, WrittenStates], rows: int) -> None:
    job = columns.job
    for at, part in enumerate(columns.window.parts):
        seen, listed = made.get(at, NO_STATES).rows, _listed(job, part)
        if job.counted and seen != listed:
            raise LedgerError(
                f"part {part.name}", f"{listed:,} rows in its new states", f"{seen:,}", "nothing was committed"
            )
    if (seen := sum(one.rows for one in made.values())) != rows:
        raise LedgerError("states of the parts", f"the {rows:,} rows processed", f"{seen:,}", "nothing was committed")


def _listed(job: Job, part: WindowPart) -> int:
    return sum(unit.rows for unit in job.units[slice(*part.units)])


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
