"""The counts in the states of a stage: read from each file once, through Arrow and without a Spark job.

A file is summed by task. If a run's states are few, the counts of each key are kept too, and the histogram is made from
them. Otherwise Spark makes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skewless.documents.commit import CommittedFile
from skewless.run.directory import RunDirectory
from skewless_spark.aggregates.key_text import has_arrow_text
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.stage.routing import SLOT, TASK
from skewless_spark.states.columns import WHOLE, JobColumns
from skewless_spark.states.committed_files import BACKLOG, readable

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
_SUMMED = (*COUNTS, "python_rows", *SECONDS, *FOUND)


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
        """For each file the sums of its counts by task; and of ``states`` or ``python_states``, and of timing."""
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


def _of_timing(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """``light_rows``: rows of keys not timed apart, and their squares; of the other keys number and seconds of a row.

    The seconds of a row are added up, and their squares.
    """
    apart = pc.is_valid(batch["key_seconds"])
    light = pc.if_else(apart, pa.scalar(0, pa.int64()), batch["python_rows"])
    rate = pc.divide(batch["key_seconds"], pc.max_element_wise(batch["python_rows"], 1).cast(pa.float64()))
    rate = pc.fill_null(rate, 0.0)
    as_double = light.cast(pa.float64())
    return {
        "light_rows": light,
        "light_squares": pc.multiply(as_double, as_double),
        "timed_keys": apart.cast(pa.int64()),
        "rates": rate,
        "rates_squared": pc.multiply(rate, rate),
    }


def _summed(batch: pa.RecordBatch) -> pa.Table:
    """Sums by task; with ``states`` or ``python_states``, and what ``_of_timing`` adds."""
    flags = {}
    if "rows" in batch.schema.names:
        flags["states"] = pc.greater(batch["rows"], 0).cast(pa.int64())
    if "python_rows" in batch.schema.names:
        flags["python_states"] = pc.greater(batch["python_rows"], 0).cast(pa.int64())
        flags |= _of_timing(batch)
    for name, values in flags.items():
        batch = batch.append_column(name, values)
    table = pa.Table.from_batches([batch])
    names = [name for name in table.column_names if name != TASK]
    sums = table.group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
    return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
