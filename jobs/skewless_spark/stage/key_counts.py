"""The counts of each key from the states of all stages so far, made by the driver where they are few.

The outcome is the table that ``skewless_spark.stage.histogram.head_and_slots`` makes with Spark from any number of
states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import LONGEST_HEAD_KEY, TaskLoad
from skewless.routing.hashing import key_hashes
from skewless_spark.aggregates.key_text import arrow_key_text
from skewless_spark.sources.formats.spark_types import is_utf8
from skewless_spark.stage.routing import SLOT, TASK
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.columns import NULL_KEY, WHOLE, JobColumns
from skewless_spark.states.committed_files import EVALUATED, PYTHON, counting, of_kinds

#: A character of UTF-8 has at most this many bytes.
_CHARACTER_BYTES = 4


class CountedStage(NamedTuple):
    """A stage whose keys are counted.

    Attributes:
        tasks: the loads of its tasks, if keys are timed; empty otherwise.
        is_last: whether its backlog is still queued. Rows that earlier stages left over have been queued again.
    """

    files: Sequence[CommittedFile]
    tasks: Sequence[TaskLoad]
    is_last: bool

    @property
    def counted(self) -> list[CommittedFile]:
        """Its files with the counts of the ledger."""
        return counting(self.files)

    @property
    def timed(self) -> list[CommittedFile]:
        """Its files with the seconds of keys, if keys are timed."""
        return of_kinds(self.files, PYTHON, EVALUATED) if self.tasks else []

    @property
    def slowness(self) -> list[float]:
        """Of each task: how slow it is beside the median task."""
        return [1.0 if load.slowness is None else load.slowness for load in self.tasks]


def head_and_slots_here(
    read: CountsRead, columns: JobColumns, stages: Sequence[CountedStage], ring_bits: int, rows: tuple[int, int]
) -> pa.Table | None:
    """The table of ``head_and_slots``, without a Spark job; None if there are too many states.

    Args:
        rows: rows seen so far, and rows left over now, of all keys together.
    """
    files = {file.path: file for stage in stages for file in (*stage.counted, *stage.timed)}
    if not read.has_room_for(list(files.values())):
        return None
    parts = [part for stage in stages for part in _parts(read, columns, stage)]
    if not read.keeps_keys:  # a file had longer keys than were expected
        return None
    per_key = _per_key(pa.concat_tables(parts, promote_options="default"))
    head = _head(per_key, columns.job.spec.routing.head_limit, rows)
    return pa.concat_tables([_by_slot(per_key, ring_bits), head], promote_options="default")


def _per_key(counts: pa.Table) -> pa.Table:
    """The counts of each key together. Rows of whole keys, which have a slot, are all that there is of theirs."""
    whole = pc.is_valid(counts["slot"])
    if len(counts) and pc.all(whole).as_py():
        return counts.combine_chunks()
    found = counts.filter(pc.invert(whole)).group_by("key", use_threads=False)
    added = found.aggregate([("seen", "sum"), ("left", "sum"), ("seconds", "sum")])
    added = added.rename_columns([name.removesuffix("_sum") for name in added.column_names])
    return pa.concat_tables([added, counts.filter(whole)], promote_options="default").combine_chunks()


def _parts(read: CountsRead, columns: JobColumns, stage: CountedStage) -> list[pa.Table]:
    """The counts of one stage: ``key``, ``seen``, ``left`` and, where keys were timed apart, ``seconds``."""
    parts = [_part(columns, table, stage, counted=True) for table in read.keyed(stage.counted)]
    if stage.timed == stage.counted:
        return parts
    return parts + [_part(columns, table, stage, counted=False) for table in read.keyed(stage.timed)]


def _part(columns: JobColumns, table: pa.Table, stage: CountedStage, *, counted: bool) -> pa.Table:
    if not counted:
        table = table.filter(pc.is_valid(table["key_seconds"]))
    table = table.combine_chunks()
    nothing = pa.array(np.zeros(len(table), dtype=np.int64))
    if "left_over" not in table.column_names:  # a stage that has evaluated
        table = table.append_column("left_over", nothing)
    seconds = pa.nulls(len(table), pa.float64())
    if stage.timed and "key_seconds" in table.column_names:
        # What the median task would have taken.
        seconds = pc.divide(table["key_seconds"], pa.array(np.array(stage.slowness)[table[TASK].to_numpy()]))
    return pa.table(
        {
            "key": _texts(columns, table),
            "seen": table["admitted"] if counted else nothing,
            "left": table["left_over"] if counted and stage.is_last else nothing,
            "seconds": seconds,
            "slot": _slots_of_whole(table),
        }
    )


def _slots_of_whole(table: pa.Table) -> pa.Array:
    if not {SLOT, WHOLE} <= set(table.column_names):
        return pa.nulls(len(table), pa.int32())
    return pc.if_else(table[WHOLE], table[SLOT], pa.scalar(None, pa.int32()))


def _texts(columns: JobColumns, table: pa.Table) -> pa.Array:
    types = [columns.job.key_types[name] for name in columns.job.spec.key]
    texts = arrow_key_text([table[name].combine_chunks() for name in columns.keys], types)
    return pc.fill_null(texts, NULL_KEY.encode()) if columns.job.forwards_states else texts


def _by_slot(per_key: pa.Table, ring_bits: int) -> pa.Table:
    known = pc.is_valid(per_key["key"])
    nulls = per_key.filter(pc.invert(known))
    of_keys = per_key.filter(known) if len(nulls) else per_key
    # Whole keys come last, see ``_per_key``; each is hashed either there or here.
    hashed = of_keys.filter(pc.is_null(of_keys["slot"]))
    given = of_keys["slot"].drop_null().to_numpy().astype(np.uint32)
    at = np.concatenate([_slots(hashed["key"].combine_chunks(), ring_bits), given])
    keys = np.bincount(at)
    used = np.flatnonzero(keys)
    sums = {}
    for name in ("seen", "left"):
        # Weights are doubles: counts are whole below 2**53, and so are their sums.
        sums[name] = np.bincount(at, weights=of_keys[name].to_numpy())[used].astype(np.int64)
    slots = pa.table({"slot": pa.array(used.astype(np.int32)), **sums, "keys": keys[used]})
    return pa.concat_tables([slots, nulls.select(["seen", "left"])], promote_options="default")


def _slots(keys: pa.Array, ring_bits: int) -> npt.NDArray[np.uint32]:
    _, ends, data = keys.buffers()
    starts = np.frombuffer(ends, np.int32, len(keys) + 1 + keys.offset)[keys.offset :].astype(np.int64)
    return key_hashes(np.frombuffer(data or b"", np.uint8), starts) >> np.uint32(32 - ring_bits)


def _head(per_key: pa.Table, head_limit: int, rows: tuple[int, int]) -> pa.Table:
    """The keys with the largest share of what was seen or of what is left over; see ``histogram._head``."""
    shares = np.maximum(per_key["seen"].to_numpy() / rows[0], per_key["left"].to_numpy() / rows[1])
    by, some = [("share", "descending"), ("key", "ascending")], head_limit
    while True:
        # Few keys have to be looked at, unless many of them cannot be named.
        enough = some < len(shares)
        least = np.partition(shares, -some)[-some] if enough and some else 0.0
        near = per_key.append_column("share", pa.array(shares)).filter(pa.array(shares >= least))
        # A null key compares as null, and is left out.
        near = near.filter(pc.less_equal(pc.binary_length(near["key"]), _CHARACTER_BYTES * LONGEST_HEAD_KEY))
        named = _with_text(near)
        named = named.filter(pc.less_equal(pc.utf8_length(named["key"]), LONGEST_HEAD_KEY))
        if len(named) >= head_limit or not enough:
            break
        some *= 4
    return named.take(pc.select_k_unstable(named, min(head_limit, len(named)), sort_keys=by)) if len(named) else named


def _with_text(table: pa.Table) -> pa.Table:
    at = table.column_names.index("key")
    try:
        return table.set_column(at, "key", table["key"].cast(pa.string()))
    except pa.ArrowInvalid:
        whole = pa.array([is_utf8(key) for key in table["key"].to_pylist()])
        return _with_text(table.filter(whole))
