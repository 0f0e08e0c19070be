"""Sums that take as long as they are told: the aggregates of the benchmarks, a package like any user's."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, Field
from pyspark import TaskContext

from skewless.aggregates import GroupsAccumulator, PythonAggregate, number_required

#: What it takes to load the model of one key.
MODEL_SECONDS = 0.005
#: In the environment of a cluster: how many times as long everything takes there.
SLOWDOWN = "SKEWLESS_BENCHMARKS_SLOWDOWN"


class Pace(BaseModel, strict=True, extra="forbid", frozen=True):
    """How long the rows and keys of a sum take: the process sleeps, so eight slots fit on two cores.

    Attributes:
        seconds_per_row: for each row.
        seconds_per_unit: for each unit of the summed value: rows of different cost.
        seconds_per_key: for each key that a task sets up.
        slots: tasks that run side by side, where one of them is slow.
        slow_slot: the slot of this number takes ``slowdown`` times as long for any task that runs on it; -1 for none.
        slowdown: see there.
        tally: a folder that every task writes the number of its set-ups into, and where slots are taken; "" for none.
    """

    seconds_per_row: float = Field(default=0.0, ge=0)
    seconds_per_unit: float = Field(default=0.0, ge=0)
    seconds_per_key: float = Field(default=0.0, ge=0)
    slots: int = Field(default=1, ge=1)
    slow_slot: int = -1
    slowdown: float = Field(default=1.0, ge=1)
    tally: str = ""


class PacedSums(GroupsAccumulator):
    """The sums of all keys of a task. Nulls count as 0; a merge takes no time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._sums = np.zeros(0, dtype=np.int64)
        self._set_up = 0
        self._slot: IO[bytes] | None = None
        slow = pace.slow_slot >= 0 and self._take_slot() == pace.slow_slot
        self._slowdown = (pace.slowdown if slow else 1.0) * float(os.environ.get(SLOWDOWN, "1"))

    def open_keys(self, keys: pa.StringArray, first_group: int) -> None:
        """Load the models."""
        del first_group
        self._set_up += len(keys)
        self._sleep(len(keys) * self._pace.seconds_per_key)

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Add, and take the time it takes."""
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        self._sleep(len(numbers) * self._pace.seconds_per_row + float(numbers.sum()) * self._pace.seconds_per_unit)
        self._add(numbers, groups, groups_total)

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Add."""
        self._add(states.fill_null(0).to_numpy(zero_copy_only=False), groups, groups_total)

    def state(self) -> pa.Array:
        """The sums."""
        return pa.array(self._sums, pa.int64())

    def evaluate(self) -> pa.Array:
        """The sums."""
        return self.state()

    def close_keys(self) -> None:
        """Leave the slot, and write down how many set-ups there were."""
        if self._slot is not None:
            self._slot.close()
        if self._pace.tally and self._set_up:
            Path(self._pace.tally, f"{secrets.token_hex(8)}.txt").write_text(str(self._set_up), encoding="ascii")

    def _take_slot(self) -> int:
        """Hold a slot that no other task holds until this one ends, as Spark does not tell on which slot a task runs.

        Each task tries another one first, since Spark prefers none.
        """
        context = TaskContext.get()
        first = context.taskAttemptId() if context else 0
        for number in ((first + step) % self._pace.slots for step in range(self._pace.slots)):
            held = Path(self._pace.tally, f"slot-{number}.lock").open("wb")  # noqa: SIM115 - held until the task ends
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.close()
                continue
            self._slot = held
            return number
        return -1  # a task that merges states takes no time

    def _add(self, numbers: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], groups_total: int) -> None:
        if groups_total > len(self._sums):
            # Twice what is needed now would be as fast; a resize by batches of 65,536 rows is no matter.
            self._sums = np.concatenate([self._sums, np.zeros(groups_total - len(self._sums), dtype=np.int64)])
        np.add.at(self._sums, groups, numbers)

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds * self._slowdown)


def _paced(
    name: str, *, mergeable: bool = True, setup_seconds: float = 0.0, row_seconds: float | None = None
) -> PythonAggregate:
    return PythonAggregate(
        name=name,
        mergeable=mergeable,
        ordered=False,
        options=Pace,
        accepts=number_required,
        argument_type=pa.int64(),
        state_type=pa.int64(),
        result_type=pa.int64(),
        create=PacedSums,
        state_bytes=16,
        setup_seconds=setup_seconds,
        row_seconds=row_seconds,
        open_to_evaluate=False,
    )


PACED_SUM = _paced("paced_sum")
PACED_SUM_UNMERGEABLE = _paced("paced_sum_unmergeable", mergeable=False)
PACED_MODEL_SUM = _paced("paced_model_sum", setup_seconds=MODEL_SECONDS, row_seconds=5e-5)
