"""The steps of a night's plan on Spark: states that are kept become the states of each window.

A step that nights to come need is written into the store of standing states; one that several others of tonight need,
into the folder of the attempt. Any other is a query that runs with the one that uses it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile
from skewless.errors import LedgerError
from skewless.run.directory import WINDOW_CHOICE, Attempt
from skewless.run.storage import Storage
from skewless.standing.kept_merges import NightPlan, kept_merge
from skewless.standing.store import STATES_STEP, Numbered, StatesStore
from skewless.standing.window_choice import MergeStep, name_of
from skewless_spark.branches import PLACE, branches_of, merges_kept
from skewless_spark.branches.native import Native
from skewless_spark.branches.python import LEAVING, STATES
from skewless_spark.session.queries import map_in_batches, planned_once
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import read_files, write_files, written
from skewless_spark.states.python_evaluation import merge_batches

log = logging.getLogger(__name__)

STANDING = "standing"


class WrittenStates(NamedTuple):
    """Files of states."""

    files: list[CommittedFile]
    rows: list[int]


def written_states(attempt: Attempt, folder: str) -> WrittenStates:
    """The files of states that an attempt has written into a folder."""
    counts: dict[str, int] = {}

    def count(file: CommittedFile, parquet: pq.ParquetFile) -> None:
        batches = parquet.iter_batches(columns=["rows"])
        counts[file.path] = sum(pc.sum(batch["rows"]).as_py() or 0 for batch in batches)

    files = written(attempt, STANDING, folder, reader=count)
    return WrittenStates(files, [counts[file.path] for file in files])


class WindowStates:
    """The states of a night by their names: those that are kept, and those that its steps make."""

    def __init__(
        self, spark: SparkSession, columns: JobColumns, attempt: Attempt, parts: Sequence[Numbered], plan: NightPlan
    ) -> None:
        self._spark, self._columns, self._attempt, self._parts, self._plan = spark, columns, attempt, parts, plan
        self._store = StatesStore(columns.window.store)
        #: Where the files of a piece are, and which.
        self._files: dict[str, tuple[Storage, Sequence[CommittedFile]]]
        self._files = {name: (self._store, files) for name, files in plan.files.items()}
        self._queries: dict[str, DataFrame | None] = {}
        #: The parts to which files were added: each has a state of a key for each time.
        self._several = {
            name_of(((one.version.part, one.number),))
            for one in parts
            if len({file.path.split("/")[2] for file in one.version.states}) > 1
        }

    def results(self) -> dict[str, DataFrame | None]:
        """For each window by its name one row per key: its rows, its native states, and its Python states as a list.

        Steps that are written are made now. A window whose parts have no rows has None.

        Raises:
            LedgerError: a merge does not stand for the rows of its parts.
        """
        choice = self._plan.choice
        self._attempt.write(WINDOW_CHOICE, choice)
        needed = Counter(choice.results.values())
        for step in choice.steps:
            needed.update({*step.add, *step.subtract, *step.touched_by, step.copy_from})
        for number, step in enumerate(choice.steps):
            if step.keep:
                self._keep(number, step)
            elif needed[step.makes] > 1:
                self._write(number, step)
            else:
                self._queries[step.makes] = self._of(step, whole=False)
        return {window: self._result(name) for window, name in choice.results.items()}

    def _result(self, name: str) -> DataFrame | None:
        if name in self._queries:
            return self._queries[name]
        states = self._read([name])
        if states is None or name in self._several:
            return None if states is None else self._merged(states, whole=False)
        return states.coalesce(self._columns.job.spec.output.files)

    def _read(self, names: Sequence[str]) -> DataFrame | None:
        """The states of some pieces, one scan for all files of a folder; None if they have none."""
        found = [query for name in names if (query := self._queries.get(name)) is not None]
        of_storage: dict[Storage, list[CommittedFile]] = {}
        for name in names:
            if name in self._files:
                storage, files = self._files[name]
                of_storage.setdefault(storage, []).extend(files)
        found += [read_files(self._spark, storage, files) for storage, files in of_storage.items() if files]
        return reduce(DataFrame.unionByName, found) if found else None

    def _keep(self, number: int, step: MergeStep) -> None:
        attempt = Attempt(self._store, STATES_STEP, self._attempt.ident)
        files = self._written(attempt, f"merges/{number}", step)
        merge = kept_merge(self._plan.choice, step, self._parts, files, str(self._attempt.run))
        self._store.keep_merge(merge)
        self._files[step.makes] = (self._store, files)

    def _write(self, number: int, step: MergeStep) -> None:
        self._files[step.makes] = (self._attempt.run, self._written(self._attempt, f"windows/{number}", step))

    def _written(self, attempt: Attempt, folder: str, step: MergeStep) -> Sequence[CommittedFile]:
        states = self._of(step, whole=True)
        if states is None:
            return []
        with planned_once(self._spark):
            write_files(states, attempt, folder)
        made = written_states(attempt, folder)
        wanted = sum(one.version.rows for one in self._parts[slice(*step.span)])
        if sum(made.rows) != wanted:
            raise LedgerError(
                f"merge of {step.makes}", f"the {wanted:,} rows of its parts", f"{sum(made.rows):,}",
                "remove the folder merges of the states, and run the merge again",
            )  # fmt: skip
        return made.files

    def _of(self, step: MergeStep, *, whole: bool) -> DataFrame | None:
        """The query of a step.

        Args:
            whole: whether a key has one Python state, too, and not a list of them.
        """
        added = self._read(step.add)
        if step.copy_from:
            return self._with_touched(added, step, whole=whole)
        leaving = self._read(step.subtract)
        if added is None or leaving is None:
            return None if added is None else self._merged(added, whole=whole)
        return self._without(added, leaving)

    def _with_touched(self, states: DataFrame | None, step: MergeStep, *, whole: bool) -> DataFrame | None:
        """The states of touched keys merged anew, and those of all others as they were."""
        base, touching = self._read([step.copy_from]), self._read(step.touched_by)
        if base is None or touching is None:
            return base if base is not None or states is None else self._merged(states, whole=whole)
        keys = self._columns.keys
        names = [f"t_{key}" for key in keys]
        touched = touching.select(*keys).distinct().toDF(*names)
        same = reduce(
            Column.__and__, (F.col(key).eqNullSafe(F.col(name)) for key, name in zip(keys, names, strict=True))
        )
        copied = base.join(touched, same, "left_anti")
        if states is None:
            return copied
        merged = self._merged(states.join(touched, same, "left_semi"), whole=whole)
        return copied.unionByName(merged.select(*copied.columns)).coalesce(self._columns.job.spec.output.files)

    def _without(self, added: DataFrame, leaving: DataFrame) -> DataFrame:
        """Merged states without the rows of others. Keys without rows are gone."""
        columns, states = self._columns, list[Column]()
        for branch in branches_of(columns):
            added, of_branch = branch.leaving(added)
            states += of_branch
        taken = leaving.select(*columns.keys, PLACE, (-F.col("rows")).alias("rows"), *states)
        return self._merged(added.unionByName(taken), whole=True).where("rows > 0")

    def _merged(self, states: DataFrame, *, whole: bool) -> DataFrame:
        """One row per key: its rows, its native states, its Python states, and the place of the oldest part.

        States are merged in the order of parts, so that floating-point sums always round the same way.

        Args:
            whole: whether a key has one Python state, without the rows of those that leave, and not a list of them.
        """
        columns = self._columns
        in_files, in_any_order = columns.job.spec.output.files, columns.merged_in_any_order
        if not in_any_order:
            ties = _ties(states, columns) if self._several else []
            states = states.repartition(in_files, *columns.keys)
            states = states.sortWithinPartitions(*columns.keys, PLACE, *ties)
        merged = states.groupBy(*columns.keys).agg(*merges_kept(states, columns), F.min(PLACE).alias(PLACE))
        # In any order, what a task reads is merged before it is sent.
        merged = merged.coalesce(in_files) if in_any_order else merged
        if not whole or STATES not in states.columns:
            return merged
        passed = [name for name in merged.columns if name not in {STATES, LEAVING}]
        leaves = [F.col(LEAVING)] if LEAVING in merged.columns else []
        text = columns.key.cast("binary").alias("route_key")
        schema = merged.select(*passed, STATES).schema
        rows = merged.select(*passed, text, STATES, *leaves)
        return map_in_batches(rows, merge_batches(columns.python_calls(), passed), schema)


def _ties(states: DataFrame, columns: JobColumns) -> list[Column]:
    """What orders the states of a key in one part: there is no other order among files that were added."""
    return [
        F.col("rows"),
        F.xxhash64("rows", *(name for name in Native(columns).names if "map<" not in dict(states.dtypes)[name])),
    ]
