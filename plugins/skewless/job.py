"""The frozen job of one run: ``job.json``, written once by ``prepare``."""

from __future__ import annotations

import datetime as dt
from typing import Self

from pydantic import Field, model_validator

from skewless.document import Document, Frozen, unmet
from skewless.spec import JobSpec

#: Engine ``combine``: input splits for each slot, and bytes of a split at most.
SPLITS_PER_SLOT = 4
LARGEST_SPLIT_BYTES = 128 << 20


class Unit(Frozen):
    """One source partition: a file of the input. Its position in ``Job.units`` is its ordinal.

    Attributes:
        path: where Spark reads it.
        rows: its rows, from its own footer and not from the job that reads it.
        size_bytes: its length.
        version: what tells this content from a later one, as far as its file system says: an entity
            tag, or the time of its last change.
    """

    path: str
    rows: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    version: str = ""


class Algebra(Frozen):
    """What the planner may do with an aggregate, and what its states cost.

    Attributes:
        mergeable: whether states of one key may be merged.
        ordered: whether the rows of a key must be seen in the order of the input.
        state_bytes: of a usual state.
        setup_seconds: for each key that a task opens, as the aggregate declares it.
    """

    mergeable: bool
    ordered: bool
    state_bytes: int = Field(default=16, ge=0)
    setup_seconds: float = Field(default=0.0, ge=0)


class Job(Document):
    """A spec bound to a date and to a listed input, with the waves cut.

    Attributes:
        spec: the spec with its overrides applied.
        date: the day the result is published under.
        input_path: the resolved path of the input.
        output_path: the resolved folder of the published result.
        units: the source partitions, in listing order.
        waves: for each stage that admits input, the ordinals of its units.
        key_types: Spark SQL type of each key column.
        column_types: Spark SQL type of each further column that is read.
        algebra: for each aggregate, by name.
        warm_from: the run directories that plan 0 is made from, newest first, at most two; empty for a
            plain ring.
    """

    spec: JobSpec
    date: dt.date
    input_path: str
    output_path: str
    units: tuple[Unit, ...]
    waves: tuple[tuple[int, ...], ...]
    key_types: dict[str, str]
    column_types: dict[str, str]
    algebra: dict[str, Algebra]
    warm_from: tuple[str, ...] = Field(default=(), max_length=2)

    @model_validator(mode="after")
    def _each_unit_once(self) -> Self:
        admitted = [ordinal for wave in self.waves for ordinal in wave]
        if len(set(admitted)) < len(admitted) or not set(admitted) <= set(range(len(self.units))):
            raise unmet(f"waves of different ones of the {len(self.units)} units", "another ordinal, or one twice")
        return self

    @property
    def rows(self) -> int:
        """Rows of the whole input, by its footers."""
        return sum(unit.rows for unit in self.units)

    @property
    def splittable(self) -> bool:
        """Whether a key may be reduced in several tasks and its states merged after."""
        return not self.forwards_states

    @property
    def forwards_states(self) -> bool:
        """Whether a key lives in one task, and its state moves with it (``state: forward``)."""
        return self.spec.state == "forward" or not all(
            one.mergeable and not one.ordered for one in self.algebra.values()
        )

    @property
    def combine_splits(self) -> int:
        """Input splits that the engine ``combine`` reads: several per slot, so that none waits long for the last."""
        size = sum(unit.size_bytes for unit in self.units)
        return max(1, self.spec.routing.slot_count * SPLITS_PER_SLOT, -(-size // LARGEST_SPLIT_BYTES))

    @property
    def last_stage(self) -> int:
        """The highest stage there can be: one per wave, and one that drains the backlog."""
        return len(self.waves)

    def wave_rows(self, wave: int) -> int:
        """Rows of one wave."""
        return sum(self.units[ordinal].rows for ordinal in self.waves[wave])

    def admitted_rows(self, waves: tuple[int, int]) -> int:
        """Rows that a stage admits which takes in the waves ``first <= wave < end``."""
        return sum(self.wave_rows(wave) for wave in range(*waves))

    def admitted_units(self, waves: tuple[int, int]) -> tuple[int, ...]:
        """The ordinals of the source partitions of the waves ``first <= wave < end``, ascending."""
        return tuple(sorted(ordinal for wave in self.waves[slice(*waves)] for ordinal in wave))
