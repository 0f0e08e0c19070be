"""The counts in the states of a stage, read from each file once, and those of each key over all stages so far.

A file is summed by task. If a run's states are few, the counts of each key are kept too, and the histogram is made from
them. Otherwise Spark makes it.

The outcome is the table that ``skewless_spark.stage.measured_stage.head_and_slots`` makes with Spark from any number of
states.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import LONGEST_HEAD_KEY
from skewless.routing.hashing import key_hashes
from skewless.run.directory import RunDirectory
from skewless_spark.aggregates.keys import arrow_key_text, has_arrow_text
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.stage.routes import SLOT, TASK
from skewless_spark.states.committed_files import BACKLOG, EVALUATED, PYTHON, counting, of_kinds, readable
from skewless_spark.states.job_columns import HASH, NULL_KEY, WHOLE, JobColumns

#: The counts of the ledger, per task and key.
COUNTS = ("rows", "left_over", "admitted", "forwarded")

#: The driver reads the keys of at most this many states, from all stages of a run together, and at most this many bytes
#: of them; a few hundred megabytes of memory. Beyond that Spark counts the keys.
MOST_STATES = 1 << 20
MOST_KEY_BYTES = 1 << 26

#: States that are read at a time, some megabytes of counts.
_BATCH_STATES = 1 << 18
SECONDS = ("key_seconds", "task_seconds", "setup_seconds")
#: States that a task looked for in files of earlier stages, see ``StatesFound``.
FOUND = ("found_states", "moved_states", "moved_bytes")
_SUMMED = (*COUNTS, HASH, "python_rows", "python_hash", *SECONDS, *FOUND)


class CountsRead:
    """The counts that were read from files of states, each of which is opened once."""

    def __init__(self, run: RunDirectory, columns: JobColumns) -> None:
        self._run, self._keys = run, columns.keys
        self._sums: dict[str, pa.Table] = {}
        self._keyed: dict[str, pa.Table] = {}
        self._states = self._key_bytes = 0
        self._lock = threading.Lock()
        types = [columns.job.key_types[name] for name in columns.job.spec.key]
        #: Whether the keys of all files that were read so far have been kept.
        self.keeps_keys = has_arrow_text(types)

    def take(self, file: CommittedFile, parquet: pq.ParquetFile) -> None:
        """Read an open file; a backlog has no counts; a ``RunDirectoryError`` if the file is damaged."""
        if file.kind == BACKLOG:
            return
        with readable(self._run, file):
            self._take(file, parquet)

    def _take(self, file: CommittedFile, parquet: pq.ParquetFile) -> None:
        kept = self._has_room(file, parquet.metadata)
        known = parquet.schema_arrow.names
        labels = [name for name in (*self._keys, SLOT, WHOLE) if name in known] if kept else []
        names = [TASK, *(name for name in _SUMMED if name in known), *labels]
        sums, keyed = [], []
        for batch in parquet.iter_batches(_BATCH_STATES, columns=names):
            sums.append(_summed(batch.drop_columns(labels) if kept else batch))
            keyed.append(batch)
        self._sums[file.path] = pa.concat_tables(sums)
        if kept:
            self._keyed[file.path] = pa.Table.from_batches(keyed)

    def sums(self, files: Sequence[CommittedFile]) -> list[pa.Table]:
        """For each file the sums of its counts by task; and of ``states`` or ``python_states``."""
        return list(self._of(self._sums, files))

    def keyed(self, files: Sequence[CommittedFile]) -> list[pa.Table]:
        """For each file the counts of each state, with its key; only while ``keeps_keys``."""
        return list(self._of(self._keyed, files))

    def has_room_for(self, files: Sequence[CommittedFile]) -> bool:
        """Whether the keys of these files can be kept, those that have been read already among them."""
        coming = sum(file.rows for file in files if file.path not in self._sums)
        return self.keeps_keys and self._states + coming <= MOST_STATES

    def _of(self, read: dict[str, pa.Table], files: Sequence[CommittedFile]) -> Iterator[pa.Table]:
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(self._read, (file for file in files if file.path not in self._sums)))
        return (read[file.path] for file in files if file.path in read)

    def _read(self, file: CommittedFile) -> None:
        self._run.verify(file)
        with self._run.fs.open(f"{self._run.root}/{file.path}", "rb") as opened:
            self.take(file, open_parquet(opened))

    def _has_room(self, file: CommittedFile, footer: pq.FileMetaData) -> bool:
        """Reserve memory for the keys of a file, unless there is too little or was for another file."""
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in self._keys)
        with self._lock:
            self._states += file.rows
            self._key_bytes += size
            if self._states > MOST_STATES or self._key_bytes > MOST_KEY_BYTES:
                self.keeps_keys = False
                self._keyed.clear()
            return self.keeps_keys


def _summed(batch: pa.RecordBatch) -> pa.Table:
    flags = {}
    if "rows" in batch.schema.names:
        flags["states"] = pc.greater(batch["rows"], 0).cast(pa.int64())
    if "python_rows" in batch.schema.names:
        flags["python_states"] = pc.greater(batch["python_rows"], 0).cast(pa.int64())
    for name, values in flags.items():
        batch = batch.append_column(name, values)
    table = pa.Table.from_batches([batch])
    names = [name for name in table.column_names if name != TASK]
    sums = table.group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
    return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])


#: A character of UTF-8 has at most this many bytes.
_CHARACTER_BYTES = 4


class CountedStage(NamedTuple):
    """A stage whose keys are counted."""

    files: Sequence[CommittedFile]
    are_timed: bool
    """Whether the seconds of keys count."""
    is_last: bool
    """Whether its backlog is still queued. Rows that earlier stages left over have been queued again."""

    @property
    def counted(self) -> list[CommittedFile]:
        """Its files with the counts of the ledger."""
        return counting(self.files)

    @property
    def timed(self) -> list[CommittedFile]:
        """Its files with the seconds of keys, if keys are timed."""
        return of_kinds(self.files, PYTHON, EVALUATED) if self.are_timed else []


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
        seconds = table["key_seconds"]
    slots = pa.nulls(len(table), pa.int32())
    if {SLOT, WHOLE} <= set(table.column_names):
        slots = pc.if_else(table[WHOLE], table[SLOT], pa.scalar(None, pa.int32()))
    return pa.table(
        {
            "key": _texts(columns, table),
            "seen": table["admitted"] if counted else nothing,
            "left": table["left_over"] if counted and stage.is_last else nothing,
            "seconds": seconds,
            "slot": slots,
        }
    )


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
        whole = pa.array([key.decode(errors="ignore").encode() == key for key in table["key"].to_pylist()])
        return _with_text(table.filter(whole))
