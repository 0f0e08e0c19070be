"""The frozen job of one run: ``job.json``, written once by ``prepare``."""

import datetime as dt
import hashlib
import json
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from skewless.columns import Columnar, Columns, column, exact_sum, numbers
from skewless.document import LARGEST_COUNT, LAST_STAGE, Count, Document, Frozen, unmet
from skewless.documents.stage_report import StageReport
from skewless.documents.window import NO_WINDOW, InputFile, JobWindow, some_of
from skewless.errors import PlanError, counted
from skewless.spec.input import TABLES, FileFormat, TableName
from skewless.spec.part import Part
from skewless.spec.spec import JobSpec

#: Engine ``combine``: input splits for each slot, and bytes of a split at most.
SPLITS_PER_SLOT = 2
LARGEST_SPLIT_BYTES = 128 << 20
#: Which columns the states of native aggregates have. It is raised with each change of them: kept states are not mixed
#: with others.
STATE_FORM = 5


class Unit(InputFile):
    """One source partition: a file of the input, or a range of one. Its position in ``Job.units`` is its ordinal."""

    rows: Count
    """Its rows, without deleted ones: from its own footer and not from the job that reads it, or, not counted, an
    estimate."""
    span: tuple[Count, Count] | None = None
    """Row groups of a Parquet file, ``start <= at < end``; None for the whole file."""
    first_row: int = Field(default=0, ge=0, le=LARGEST_COUNT)
    """The row of the file that the range begins with."""
    counted: bool = True


class PinnedTable(Frozen):
    """The one state of a table that a run reads, in all stages and all retries."""

    kind: TableName
    name: str
    """Of an Iceberg table, with its catalog; of a Delta table, its folder."""
    snapshot: str
    """The id of the snapshot, or the number of the version, as text: ids are too large for JSON's readers; empty for a
    table without any."""
    left_out: int = 0
    """Files of the table that are not read, as by their bounds no row of theirs passes ``map.where``."""

    def __str__(self) -> str:
        return f"{self.name}, {TABLES[self.kind].state} {self.snapshot or 'none'}"


class SentSpec(Document):
    """The spec of a run whose first step has no file to read it from."""

    spec: JobSpec


class MadeColumn(Frozen):
    """A column of mapped rows."""

    reads: tuple[str, ...] = ()
    """The columns of the input that it is made from."""
    beside: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By lookup, those of it."""
    plain: bool = False
    """Whether it is that column as it is."""


class Source(Frozen):
    """How the files of an input are read."""

    format: FileFormat = "parquet"
    columns: dict[str, str] = Field(default_factory=dict)
    """Spark SQL type of each column of the files that is read, or, of a csv, of all in order."""
    partition_columns: dict[str, str] = Field(default_factory=dict)
    """Spark SQL type of each column that paths give."""
    options: dict[str, str] = Field(default_factory=dict)
    reads: tuple[str, ...] = ()
    """The columns that the job reads, with a map those that it reads; of a field of a struct, the struct."""
    made: dict[str, MadeColumn] = Field(default_factory=dict)
    """With a map that is a query, its columns."""
    condition: tuple[str, ...] = ()
    """With a map, the columns in its conditions."""
    pinned: PinnedTable | None = None
    """Of an Iceberg or Delta table, what is read of it."""


class Lookup(Columnar, Frozen):
    """A table that the rows of the input are joined to, as a run has pinned it."""

    name: str
    """As the query has it."""
    input_path: str
    source: Source
    units: Columns[Unit]

    @property
    def identity(self) -> str:
        """A checksum of what its rows are known by: another one where a file was added, changed or removed."""
        files = sorted(
            (unit.path, unit.size_bytes, unit.checksum or unit.version, *unit.deletes) for unit in self.units
        )
        told = json.dumps([str(self.source.pinned), files])
        return hashlib.sha256(told.encode()).hexdigest()


class InputFacts(Frozen):
    """What is known of an input before it is read, as far as the spec expects something of it."""

    columns: dict[str, str] = Field(default_factory=dict)
    """The Spark SQL type of each column that is asked for, and there."""
    nulls: dict[str, Count] = Field(default_factory=dict)
    """Of those of them whose nulls are counted in all files."""
    rows: Count | None = None
    """Of the run's own part; None if they are not counted."""


class Algebra(Frozen):
    """What the planner may do with an aggregate, and what its states cost."""

    mergeable: bool
    """Whether states of one key may be merged."""
    ordered: bool
    """Whether the rows of a key must be seen in the order of the input."""
    at_once: bool = False
    """Whether all rows of a key must be seen in one task of one stage."""
    state_bytes: int = Field(default=16, ge=0, le=LARGEST_COUNT)
    setup_seconds: float = Field(default=0.0, ge=0)
    """For each key that a task opens, as the aggregate declares it."""
    row_seconds: float | None = Field(default=None, ge=0)
    """Of one core for a row, about; None where only running it can tell."""
    reads: tuple[str, ...] = ()
    """The columns that it takes: of the input or, with a map, of the mapped rows."""


class Job(Columnar, Document):
    """A spec bound to a date and to a listed input, with the waves cut."""

    spec: JobSpec
    date: dt.date
    """The day that is computed, under which the result is published."""
    hour: str | None = Field(default=None, pattern=r"^([01][0-9]|2[0-3])b?$")
    """Of a job of hours, the hour (``Part.hour``)."""
    input_path: str
    output_path: str
    """The resolved folder of the published result; of a table, a name that begins with ``iceberg://`` or ``delta+``,
    see ``skewless_spark.sources.locations.output_location``."""
    root: str = ""
    """The data root, absolute: where the embedded catalog of tables is, and what is kept beside them."""
    units: Columns[Unit]
    waves: tuple[tuple[int, ...], ...]
    """For each stage that admits input, the ordinals of its units."""
    key_types: dict[str, str]
    """Spark SQL type of each key column; with a map, of the mapped rows."""
    column_types: dict[str, str]
    """Spark SQL type of each further column that aggregates take."""
    result_key_types: dict[str, str] = Field(default_factory=dict)
    """Where states are joined to lookups, the type of each key of the query; else empty."""
    algebra: dict[str, Algebra]
    warm_from: tuple[str, ...] = Field(default=(), max_length=2)
    """The run directories that plan 0 is made from, newest first, at most two; empty for a plain ring."""
    source: Source = Source()
    lookups: tuple[Lookup, ...] = ()
    """What the map joins the rows to."""
    turn: Count = 0
    """Orders the runs that publish one day, see ``skewless.publication``; 0 as long as none is drawn."""
    window: JobWindow | None = None
    """Where states are kept, the parts; the units are then those that changed."""
    skipped: tuple[str, ...] = Field(default=(), max_length=1_000)
    """Names of the parts after the last published one before its own for which no run was begun, oldest first."""
    facts: InputFacts | None = None
    """What is known of the input; None if the spec expects nothing of it."""
    slots: int | None = Field(default=None, ge=1)
    """How many tasks the application ran at one time when the run was prepared; None where no Spark was there."""

    @model_validator(mode="after")
    def _each_unit_once(self) -> Self:
        if len(self.waves) > LAST_STAGE:
            raise unmet(f"at most {LAST_STAGE:,} waves", f"{len(self.waves):,}")
        if self.rows > LARGEST_COUNT:
            raise unmet(f"at most {LARGEST_COUNT:,} rows of all units", f"{self.rows:,}")
        admitted = [ordinal for wave in self.waves for ordinal in wave]
        if len(set(admitted)) < len(admitted) or not set(admitted) <= set(range(len(self.units))):
            raise unmet(f"waves of different ones of the {len(self.units)} units", "another ordinal, or one twice")
        return self

    @model_validator(mode="after")
    def _of_its_spec(self) -> Self:
        """Whoever edits a frozen job must change its spec's columns in both places."""
        if (self.hour is None) != (self.spec.schedule.unit == "day"):
            raise unmet(f"a part of the unit {self.spec.schedule.unit}", str(self.part))
        if set(self.key_types) != set(self.spec.key):
            raise unmet(f"a type of each key column, {list(self.spec.key)}"[:160], str(list(self.key_types))[:120])
        if set(self.algebra) != set(self.spec.aggregates):
            raise unmet(
                f"the algebra of each aggregate, {list(self.spec.aggregates)}"[:160], str(list(self.algebra))[:120]
            )
        return self

    @model_validator(mode="after")
    def _of_its_window(self) -> Self:
        found, several = tuple(one.length for one in self.covered.windows), self.spec.covered.several
        if bool(found) != bool(self.spec.covered.lengths):
            raise unmet("a window just where the spec keeps states", "one of the two alone")
        if several is not None and found != several:
            raise unmet(f"the windows of its spec, {list(several)}", str(list(found))[:80])
        ends = [part.units[1] for part in self.covered.parts]
        if found and max(ends, default=0) != len(self.units):
            raise unmet(f"parts with all {len(self.units):,} units", "others")
        return self

    @property
    def covered(self) -> JobWindow:
        """Its window, or what stands for none."""
        return self.window or NO_WINDOW

    @property
    def of_results(self) -> Self:
        """The job as its results have it: where states are joined to lookups, with the key of the query."""
        if self.spec.joined is None:
            return self
        types = {**self.column_types, **self.key_types}
        found = {"spec": self.spec.of_results, "key_types": self.result_key_types, "column_types": types}
        return self.model_copy(update=found)

    @property
    def joined(self) -> tuple[Lookup, ...]:
        """The lookups that a stage joins rows to; the others are joined to states or results, at the end."""
        return tuple(one for one in self.lookups if one.name.lower() in self.spec.below)

    def of_lookup(self, lookup: Lookup) -> Self:
        """The job as far as it reads a lookup: all of it, at once."""
        return self.model_copy(
            update={
                "spec": self.spec.model_copy(update={"map": None}), "input_path": lookup.input_path,
                "source": lookup.source, "units": lookup.units, "waves": (tuple(range(len(lookup.units))),),
                "window": None, "lookups": (),
            }
        )  # fmt: skip

    @property
    def part(self) -> Part:
        """What is computed: a day, or an hour of it."""
        return Part(self.date, self.hour)

    @property
    def rows(self) -> int:
        """Rows of the whole input, before a map: by its footers, or an estimate."""
        return exact_sum(numbers(self.units, "rows"))

    @property
    def size_bytes(self) -> int:
        """Of all files of the input."""
        return sum(dict(zip(column(self.units, "path"), column(self.units, "size_bytes"), strict=True)).values())

    @property
    def counted(self) -> bool:
        """Whether it is known before a run how many rows will be admitted: all are counted, and none is mapped."""
        return self.spec.map is None and all(column(self.units, "counted"))

    @property
    def extent(self) -> str:
        """The rows and files of input and lookups, in words; of a table, in which state; and what is left out."""
        table = self.source.pinned
        left = f", {counted(table.left_out, 'file')} left out by map.where" if table and table.left_out else ""
        of_table = f"{table}{left}: " if table else ""
        about = "" if all(column(self.units, "counted")) else "about "
        files = len(set(column(self.units, "path")))
        cut = f", cut into {len(self.units):,} units" if files < len(self.units) else ""
        undated = self.covered.undated
        passed = f", {counted(undated, 'file')} without a day left out" if undated else ""
        beside = "".join(f"; {one.name}: {self.of_lookup(one).extent}" for one in self.lookups)
        return f"{of_table}{about}{self.rows:,} rows in {counted(files, 'file')}{cut}{passed}{beside}"

    @property
    def skipped_words(self) -> str:
        """That parts before its own were skipped, and which; empty if none were."""
        parts = f"{counted(len(self.skipped), 'part')} before this one: {some_of(self.skipped)}"
        return f"nobody has computed {parts}" if self.skipped else ""

    @property
    def splittable(self) -> bool:
        """Whether a key may be reduced in several tasks and its states merged after."""
        return not self.forwards_states

    @property
    def in_order(self) -> bool:
        """Whether each wave comes after the one before in the listing too, so that none is a sample of what follows.

        Where every wave is one unit nobody can tell, and waves are taken to be samples.
        """
        ordinals = [ordinal for wave in self.waves for ordinal in wave]
        return len(ordinals) > len(self.waves) > 1 and ordinals == sorted(ordinals)

    @property
    def forwards_states(self) -> bool:
        """Whether a key lives in one task, and its state moves with it (``state: forward``)."""
        return self.spec.state == "forward" or not all(
            one.mergeable and not one.ordered for one in self.algebra.values()
        )

    @property
    def at_once(self) -> bool:
        """Whether all rows of a key must be in one task of one stage."""
        return any(one.at_once for one in self.algebra.values())

    @property
    def asked_engine(self) -> str:
        """The engine that the spec asks for, or the only one that its aggregates can have."""
        return "bypass" if self.at_once else self.spec.engine

    @property
    def combine_splits(self) -> int:
        """Input splits that the engine ``combine`` reads: several per slot, so that none waits long for the last."""
        return max(1, self.slots_at() * SPLITS_PER_SLOT, -(-self.size_bytes // LARGEST_SPLIT_BYTES))

    def slots_at(self, report: StageReport | None = None) -> int:
        """How many tasks run at one time in a stage; without its report, before the first.

        By ``routing.slots`` if the spec gives it; else what Spark said in that stage, or when the run was prepared.
        Where Spark has not been asked yet, as many as there may be reducers.
        """
        routing, told = self.spec.routing, report.slots if report is not None else None
        return routing.slots or told or self.slots or routing.most_reducers

    @property
    def last_stage(self) -> int:
        """The highest stage there can be: one per wave, and one that drains the backlog."""
        return len(self.waves)

    def wave_rows(self, wave: int) -> int:
        """Rows of one wave, as ``rows`` counts them; a ``PlanError`` if the job has not so many."""
        if not 0 <= wave < len(self.waves):
            raise PlanError("job", f"a wave of its {len(self.waves)}", f"wave {wave}")
        return exact_sum(numbers(self.units, "rows")[np.array(self.waves[wave], dtype=np.int64)])

    def admitted_rows(self, waves: tuple[int, int]) -> int:
        """Rows of the waves ``first <= wave < end``; a ``PlanError`` if the job has not so many."""
        if not 0 <= waves[0] <= waves[1] <= len(self.waves):
            raise PlanError("job", f"waves within its {len(self.waves)}", f"those from {waves[0]} to {waves[1]}")
        return sum(self.wave_rows(wave) for wave in range(*waves))

    def admitted_units(self, waves: tuple[int, int]) -> tuple[int, ...]:
        """The ordinals of the source partitions of the waves ``first <= wave < end``, ascending; errors as above."""
        self.admitted_rows(waves)
        return tuple(sorted(ordinal for wave in self.waves[slice(*waves)] for ordinal in wave))

    def predicted_rows(self, waves: tuple[int, int], seen_rows: int, seen_waves: int) -> int:
        """Rows that waves will admit: as counted, or else for each listed one as many as so far, if there were any.

        So far, ``seen_rows`` came with the first ``seen_waves`` waves: mapped ones where there is a map.
        """
        listed = self.admitted_rows(waves)
        before = 0 if self.counted else self.admitted_rows((0, seen_waves))
        return round(listed * seen_rows / before) if before and seen_rows else listed
