"""The states of each window of a night, from the nodes of the tree over its parts; those that are missing are made.

All nodes of a night are made by one query, and the windows are read by the query that writes the result: a night has as
many Spark jobs for a window of 700 parts as for one of 7.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile
from skewless.errors import LedgerError
from skewless.run.directory import WINDOW_PLAN, Attempt
from skewless.spec.result import WINDOW_COLUMN
from skewless.standing.states_store import STATES_STEP, MergedPart, MergedParts, Numbered, StatesStore, states_checksum
from skewless.standing.tree import NightPlan, plan_night
from skewless_spark.branches import PLACE, merges_kept
from skewless_spark.branches.native import Native
from skewless_spark.branches.python import STATES
from skewless_spark.session.session import map_in_batches, planned_once
from skewless_spark.sources.formats.input_files import in_threads
from skewless_spark.states.committed_files import read_files, write_files, written
from skewless_spark.states.job_columns import JobColumns
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

    Raises:
        LedgerError: a node does not stand for the rows of its parts.
        RunDirectoryError: a file of the states is not the one that its version names.
    """
    window, store = columns.window, StatesStore(columns.window.store)
    plan = plan_night(store, parts, [part.place for part in window.parts], window.windows)
    log.info("%s", plan.document.sentence)
    attempt.write(WINDOW_PLAN, plan.document)
    files = {**plan.files, **_make_nodes(spark, columns, attempt, parts, plan)}
    merged = list[DataFrame]()
    for span in window.windows:
        names = plan.document.results[span.name]
        of_window = [file for name in names for file in files[name]]
        if not of_window:
            continue
        states = read_files(spark, store, of_window)
        tied, in_files = _tied(names, files), columns.job.spec.output.files
        one_each = len(names) == 1 and not tied
        states = states.coalesce(in_files) if one_each else _merged(states, columns, in_files, tied=tied)
        merged.append(with_window(columns, states, span.length))
    if len(merged) < 2:
        return merged[0] if merged else None
    return reduce(DataFrame.unionByName, merged).coalesce(columns.job.spec.output.files)


def with_window(columns: JobColumns, merged: DataFrame, length: int | None) -> DataFrame:
    """Merged states with the window that they are of, if the job has several."""
    if columns.job.spec.windows is None:
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
    rows = [
        f"({plan.place_of[piece]}L, {node}, {begins[node]}L)" for piece, nodes in plan.pieces.items() for node in nodes
    ]
    of_place = F.broadcast(spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS nodes({PLACE}, {NODE}, {_BEGIN})"))  # noqa: S608  # numbers
    partitions = min(columns.job.spec.output.files, -(-sum(file.size_bytes for file in read) // STATES_FILE_BYTES))
    # All states of a key are in one task, before each is there once for each node over its part.
    keyed = read_files(spark, store, read).repartition(partitions, *columns.keys).join(of_place, PLACE)
    # A state of a node has the place of its oldest part, even if its key is in later ones only.
    states = _one_state(_merged(keyed, columns, by=(NODE,), tied=_tied(plan.pieces, plan.files)), columns)
    with planned_once(spark):
        write_files(states, in_store, "nodes", NODE)
    found, nodes = written_by(in_store, "nodes", NODE), dict[str, MergedParts]()
    for number, (name, (first, end)) in enumerate(made.items()):
        files, seen = found.get(number, ([], 0))
        wanted = sum(one.version.rows for one in parts[first:end])
        if seen != wanted:
            raise LedgerError(
                f"merged states {name}", f"the {wanted:,} rows of its parts", f"{seen:,}",
                "remove the folder merges of the states, and run the merge again",
            )  # fmt: skip
        merged = (MergedPart(part=one.version.part, states=states_checksum(one.version)) for one in parts[first:end])
        nodes[name] = MergedParts(
            fingerprint=columns.window.fingerprint, run=str(attempt.run), parts=tuple(merged), rows=seen,
            states=tuple(files),
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


def written_by(attempt: Attempt, folder: str, column: str) -> dict[int, tuple[list[CommittedFile], int]]:
    """The files of states that an attempt has written, and the rows that they stand for, by the number of a folder."""
    counts: dict[str, int] = {}

    def count(file: CommittedFile, parquet: pq.ParquetFile) -> None:
        batches = parquet.iter_batches(columns=["rows"])
        counts[file.path] = sum(pc.sum(batch["rows"]).as_py() or 0 for batch in batches)

    found: dict[int, tuple[list[CommittedFile], int]] = {}
    for file in written(attempt, STANDING, folder, reader=count):
        number = re.search(rf"/{column}=(\d+)/", file.path)
        if number is None:
            raise LedgerError.saying(file.path, f"these are states of no {column}", "nothing was committed")
        files, rows = found.get(int(number[1]), ([], 0))
        found[int(number[1])] = ([*files, file], rows + counts[file.path])
    return found


def _tied(names: Iterable[str], files: Mapping[str, Sequence[CommittedFile]]) -> bool:
    return any(number_of_writers(files[name]) > 1 for name in names)


def number_of_writers(files: Sequence[CommittedFile]) -> int:
    """How many attempts have written some files: ``states/attempts/ID/...``."""
    return len({file.path.split("/")[2] for file in files})
