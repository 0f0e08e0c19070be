"""The data files of steps. Rows are counted from footers after writing; files are read by name, and never listed.

States at rest wait in the files of earlier stages until rows of their key come (``state: forward``). A state is not
sent to the task of its key. The task looks for it in the files of earlier stages, the last stage first, once it sees a
row of the key: in the files of its own name, and in those of tasks that its keys may have been in before the plan
changed. So a state is read by another task only if its key has moved, and only if the key has rows. A key without rows
costs nothing, and its newest state counts in the end.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from skewless.documents.commit import CommittedFile
from skewless.errors import RunDirectoryError
from skewless.routing.plan import RoutingPlan, earlier_tasks
from skewless.run.directory import Attempt, RunDirectory, stage_step
from skewless.run.storage import Storage
from skewless_spark.session.session import spark_reads
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.sources.unit_reading import scanned_files
from skewless_spark.sources.worker_files import SCHEMA_NOTE, read_in_workers, write_in_workers
from skewless_spark.states.job_columns import PART, JobColumns

#: Kinds of files: native states, Python states, results in place of states (see ``results``) and backlog of a stage;
#: the merged result; the result in the published format, if that is not Parquet; and the keys in quarantine.
NATIVE, PYTHON, EVALUATED, BACKLOG = "native", "python", "evaluated", "backlog"
RESULT, PUBLISHED, QUARANTINED = "result", "published", "quarantined"
#: By which the files of a stage are in folders, where each has the states of one part as they are kept.
OF_PART = "of_part"


#: What Arrow says of a page whose bytes are not those that its checksum was made of.
_FLIPPED = "CRC checksum verification failed"

#: Takes a file that was just written, while it is open.
Reader = Callable[[CommittedFile, pq.ParquetFile], None]


def written(
    attempt: Attempt, kind: str, folder: str, *, keep_empty: bool = False, reader: Reader | None = None
) -> list[CommittedFile]:
    """The files that an attempt wrote into a folder, with their rows; empty files only if ``keep_empty``.

    Args:
        reader: called with each listed file, in several threads at once, so that no file is opened twice.

    Raises:
        RunDirectoryError: a task says that it has written a file, and there is none.
    """
    fs = attempt.run.fs

    def described(path: str) -> CommittedFile:
        try:
            opened = fs.open(path, "rb")
        except FileNotFoundError:
            raise RunDirectoryError.saying(
                attempt.run.path(attempt.relative(path)), "a task of Spark has written this file, and it is not here",
                "put the run directory on a disk that the driver and all workers share, or on an object store",
            ) from None  # fmt: skip
        with opened:
            parquet = open_parquet(opened)
            copied = kind in {RESULT, QUARANTINED} or f"/{OF_PART}=" in path
            file = attempt.described(kind, path, parquet.metadata.num_rows, copied=copied)
            if kind == PYTHON:
                file = file.model_copy(update={"task": _only_task(parquet.metadata)})
            if reader and file.rows:
                reader(file, parquet)
        return file

    with ThreadPoolExecutor(max_workers=8) as pool:
        return [file for file in pool.map(described, attempt.listed(folder)) if file.rows or keep_empty]


def _only_task(footer: pq.FileMetaData) -> int | None:
    """The task of all rows of a file, by the least and greatest in its footer; None if there are several."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    listed = [chunk.statistics for chunk in chunks if chunk.path_in_schema == "task"]
    known = {at for one in listed if one is not None and one.has_min_max for at in (one.min, one.max)}
    return int(known.pop()) if len(known) == 1 and len(listed) == len(groups) else None


@contextmanager
def readable(run: Storage, file: CommittedFile) -> Iterator[None]:
    """What is wrong with a file of ours that Arrow cannot read, in a sentence.

    Raises:
        RunDirectoryError: the file is damaged.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as err:
        raise damaged(run.path(file.path), err) from err


def damaged(path: str, err: Exception) -> RunDirectoryError:
    """The error for a committed file that Arrow could not read."""
    wanted, came = (
        ("the bytes that were written", "others, by its checksum")
        if _FLIPPED in str(err)
        else ("bytes that can be read", str(err).partition("\n")[0][:200])
    )
    return RunDirectoryError(path, wanted, came, "restore it from a copy")


def counting(files: Sequence[CommittedFile]) -> list[CommittedFile]:
    """The files of a stage with the counts of the ledger: results, native states, or without those, Python states."""
    return next(filter(None, (of_kinds(files, kind) for kind in (EVALUATED, NATIVE, PYTHON))), [])


def of_kinds(files: Sequence[CommittedFile], *kinds: str) -> list[CommittedFile]:
    """The files of some kinds, in their order."""
    return [file for file in files if file.kind in kinds]


def read_files(spark: SparkSession, run: Storage, files: Sequence[CommittedFile]) -> DataFrame:
    """Read exactly these committed files. All have the columns of the first one, since one frame wrote them.

    The columns are given to Spark, which would run a job to find them.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(run.verify, files))
    schema = noted_schema(run, files[0])
    if schema is None or spark_reads(spark, str(run)):
        return scanned_files(spark, "parquet", schema, [run.path(file.path) for file in files])
    return read_in_workers(spark, schema, [(run.path(file.path), file.size_bytes) for file in files])


def write_files(frame: DataFrame, attempt: Attempt, folder: str, parted_by: str | None = None) -> None:
    """Write a frame as Parquet files into a folder of an attempt, which ``written`` then finds.

    Args:
        folder: below the attempt's own folder; empty for that itself.
        parted_by: a column by whose values the files are in folders of their own.
    """
    path = attempt.path(folder).rstrip("/")
    if not spark_reads(frame.sparkSession, path):
        attempt.report(write_in_workers(frame, path, parted_by))
    elif parted_by is None:
        frame.write.parquet(path)
    else:
        frame.write.partitionBy(parted_by).parquet(path, mode="append")


def noted_schema(run: Storage, file: CommittedFile) -> StructType | None:
    """The columns of a file as Spark's types, if their writer noted them."""
    with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
        noted = pq.read_metadata(opened).metadata.get(SCHEMA_NOTE)
    return None if noted is None else StructType.fromJson(json.loads(noted))


COPIED_BYTES = 64 << 20


class AsSpark(NamedTuple):
    """What Arrow writes as Spark has written it: columns, compression, and the note of Spark's types."""

    kind: pa.Schema
    codec: str
    noted: StructType | None

    @classmethod
    def of(cls, run: Storage, files: Sequence[CommittedFile], own: Mapping[str, str]) -> "AsSpark | None":
        """How some columns of small files are copied, each under its own name.

        All copies have the schema of one file: results of a stage and merged ones may differ in what may be null.

        Returns:
            None if the files are large, or Arrow writes a column otherwise.
        """
        if sum(file.size_bytes for file in files) > COPIED_BYTES:
            return None
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(run.verify, files))
        with readable(run, files[0]), run.fs.open(f"{run.root}/{files[0].path}", "rb") as opened:
            parquet, probe = open_parquet(opened), io.BytesIO()
            # All may be null, as those that Spark reads from files.
            columns = [parquet.schema_arrow.field(name).with_name(own[name]).with_nullable(True) for name in own]
            codec = parquet.metadata.row_group(0).column(0).compression if parquet.num_row_groups else "SNAPPY"
            found = cls(pa.schema(columns), codec, _noted(noted_schema(run, files[0]), own))
            found.writer(probe).close()
            same = _leaves(pq.ParquetFile(probe), {name: name for name in own.values()}) == _leaves(parquet, own)
            return found if same else None

    def writer(self, target: Any) -> pq.ParquetWriter:
        """As Spark writes: its compression, checksums of pages, its note, and small decimals as integers."""
        writer = pq.ParquetWriter(
            target, self.kind, compression=self.codec, write_page_checksum=True, store_schema=False,
            store_decimal_as_integer=True, version="1.0",
        )  # fmt: skip
        if self.noted is not None:
            writer.add_key_value_metadata({SCHEMA_NOTE: self.noted.json().encode()})
        return writer


def _leaves(parquet: pq.ParquetFile, own: Mapping[str, str]) -> set[tuple[object, ...]]:
    found = set[tuple[object, ...]]()
    for number in range(len(parquet.schema)):
        leaf = parquet.schema.column(number)
        # A dot may be part of the name of a key column, or come before the parts of a nested column.
        name = next((name for name in own if f"{leaf.path}.".startswith(f"{name}.")), None)
        if name is not None:
            path, nullable = own[name] + leaf.path[len(name) :], parquet.schema_arrow.field(name).nullable
            levels = (leaf.max_definition_level - nullable, leaf.max_repetition_level)
            found.add((path, leaf.physical_type, leaf.length, str(leaf.logical_type), *levels))
    return found


def _noted(noted: StructType | None, own: Mapping[str, str]) -> StructType | None:
    if noted is None:
        return None
    fields = {field.name: field for field in noted}
    return StructType([
        StructField(name, fields[number].dataType, nullable=True, metadata=fields[number].metadata)
        for number, name in own.items()
    ])  # fmt: skip


#: The text of a key, beside states whose key is not one column of text.
ROUTE_KEY = "route_key"


def in_part(part: pa.Array, key: pa.Array) -> pa.Array:
    """A text that tells a key in one part of a window from the same key in another part, and null from any key."""
    prefix = part.cast(pa.string()).cast(pa.binary())
    joined = pc.binary_join_element_wise(prefix, key.cast(pa.binary()), pa.scalar(b"/", pa.binary()))
    return pc.if_else(key.is_valid(), joined, prefix)


class RestingFile(NamedTuple):
    """A file with states."""

    file: CommittedFile
    moved: bool
    """Whether it is of another task than the one that looks into it."""


class StatesAtRest(NamedTuple):
    """The files in which each task may find states of its keys, as they are sent to the workers."""

    location: str
    text: str
    """The column with the text of a key."""
    columns: tuple[str, ...]
    stages: tuple[dict[int, tuple[RestingFile, ...]], ...]
    """The earlier stages, the last one first: for each task of the plan its files."""


def states_at_rest(run: RunDirectory, columns: JobColumns, plan: RoutingPlan) -> StatesAtRest | None:
    """Where the tasks of a plan find the Python states of their keys; None if keys have a state in each stage."""
    if not columns.job.forwards_states:
        return None
    stages = tuple(_by_task(run, stage, plan) for stage in reversed(range(plan.epoch)))
    text = columns.keys[0] if columns.key_is_text else ROUTE_KEY
    names = tuple(name for one in columns.python for name in columns.states(one))
    return StatesAtRest(str(run), text, names, stages)


def _by_task(run: RunDirectory, stage: int, plan: RoutingPlan) -> dict[int, tuple[RestingFile, ...]]:
    before, files = run.plan(stage), run.committed(stage_step(stage)).of_kind(PYTHON)
    of_task: dict[int | None, list[CommittedFile]] = {}
    for file in files:
        of_task.setdefault(file.task, []).append(file)
    found = {}
    for number, (task, earlier) in enumerate(zip(plan.tasks, earlier_tasks(before, plan), strict=True)):
        own = [RestingFile(file, before.tasks[old] != task) for old in sorted(earlier) for file in of_task.get(old, ())]
        # A file that does not say its task may have states of any key.
        own += [RestingFile(file, moved=True) for file in of_task.get(None, ())]
        if own:
            found[number] = tuple(own)
    return found


class StatesFound:
    """The states of keys as one task finds them, and how many of them came from files of other tasks."""

    def __init__(self, at_rest: StatesAtRest) -> None:
        self._at_rest = at_rest
        self._keys: dict[str, pa.Array] = {}
        self.found = self.moved = self.moved_bytes = 0

    def of(self, task: int, keys: pa.Array) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """The newest states of some keys.

        Args:
            keys: the texts of different keys, as binaries; null for the null key. With a window the texts that
                ``in_part`` makes.

        Yields:
            Positions in ``keys``, and as many rows with ``total_rows`` and the columns of states. No position comes
            twice; that of a key without a state never comes.
        """
        missing = np.arange(len(keys))
        for stage in self._at_rest.stages:
            for resting in stage.get(task, ()):
                if not len(missing):
                    return
                at = pc.index_in(keys.take(pa.array(missing)), value_set=self._keys_of(resting.file))
                hits = at.is_valid().to_numpy(zero_copy_only=False)
                if hits.any():
                    yield from self._read(resting, at.filter(pa.array(hits)).to_numpy(), missing[hits])
                    missing = missing[~hits]

    def _keys_of(self, file: CommittedFile) -> pa.Array:
        """The texts of the keys of a file. They are kept: they are far smaller than the states."""
        if file.path not in self._keys:
            self._run.verify(file)
            text = self._at_rest.text
            with readable(self._run, file), self._run.fs.open(f"{self._run.root}/{file.path}", "rb") as opened:
                parquet = open_parquet(opened)
                parted = [PART] if PART in parquet.schema_arrow.names else []
                read = parquet.read(columns=[text, *parted])
                keys = read[text].combine_chunks().cast(pa.binary())
                self._keys[file.path] = in_part(read[PART].combine_chunks(), keys) if parted else keys
        return self._keys[file.path]

    def _read(
        self, resting: RestingFile, rows: npt.NDArray[np.int32], positions: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        file, names = resting.file, ["total_rows", *self._at_rest.columns]
        with readable(self._run, file), self._run.fs.open(f"{self._run.root}/{file.path}", "rb") as opened:
            parquet = open_parquet(opened)
            first = 0
            for group in range(parquet.num_row_groups):
                end = first + parquet.metadata.row_group(group).num_rows
                here = (rows >= first) & (rows < end)
                if here.any():
                    read = parquet.read_row_group(group, columns=names).take(pa.array(rows[here] - first))
                    states = read.combine_chunks().to_batches()[0]
                    self.found += states.num_rows
                    if resting.moved:
                        self.moved += states.num_rows
                        self.moved_bytes += states.nbytes
                    yield positions[here], states
                first = end

    @cached_property
    def _run(self) -> Storage:
        return Storage(self._at_rest.location)
