"""States that wait in the files of earlier stages until rows of their key come (``state: forward``).

A state is not sent to the task of its key. The task looks for it in the files of earlier stages, the last stage first,
once it sees a row of the key: in the files of its own name, and in those of tasks that its keys may have been in before
the plan changed. So a state is read by another task only if its key has moved, and only if the key has rows. A key
without rows costs nothing, and its newest state counts in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skewless.documents.commit import CommittedFile
from skewless.routing.plan import RoutingPlan, earlier_tasks
from skewless.run.directory import RunDirectory, stage_step
from skewless.run.storage import Storage
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.committed_files import PYTHON, readable
from skewless_spark.states.job_columns import PART, JobColumns

#: The text of a key, beside states whose key is not one column of text.
ROUTE_KEY = "route_key"


def in_part(part: pa.Array, key: pa.Array) -> pa.Array:
    """A text that tells a key in one part of a window from the same key in another part, and null from any key."""
    prefix = part.cast(pa.string()).cast(pa.binary())
    joined = pc.binary_join_element_wise(prefix, key.cast(pa.binary()), pa.scalar(b"/", pa.binary()))
    return pc.if_else(key.is_valid(), joined, prefix)


class RestingFile(NamedTuple):
    """A file with states.

    Attributes:
        moved: whether it is of another task than the one that looks into it.
    """

    file: CommittedFile
    moved: bool


class StatesAtRest(NamedTuple):
    """The files in which each task may find states of its keys, as they are sent to the workers.

    Attributes:
        text: the column with the text of a key.
        stages: the earlier stages, the last one first: for each task of the plan its files.
    """

    location: str
    text: str
    columns: tuple[str, ...]
    stages: tuple[dict[int, tuple[RestingFile, ...]], ...]


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

        Raises:
            RunDirectoryError: a file is damaged, or not the one that was committed.
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
