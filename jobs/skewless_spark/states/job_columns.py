"""The columns of a job inside stages. They are named by number, so that no user's name can clash."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.documents.job import Job
from skewless.documents.window import JobWindow
from skewless.routing.hashing import OFFSET_BITS
from skewless.spec.result import WINDOW_COLUMN
from skewless.standing.parts import RANK_END
from skewless_spark.aggregates import Aggregate
from skewless_spark.aggregates.binding import BoundAggregate, bind
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.keys import key_text
from skewless_spark.sources.formats.input_files import text_literal
from skewless_spark.sources.unit_reading import ORIGIN, ORIGIN_INDEX
from skewless_spark.states.python_calls import PythonCall, python_call

#: The text that routes a null key if each key must live in one task. No text of several key columns equals it.
NULL_KEY = "\0null"
#: The column that says of which part of the window a row or a state is: its position in ``JobWindow.parts``.
PART = "part"
#: Whether a row of results is all that there is of its key. A stage writes results in place of states (files of kind
#: ``EVALUATED``) if all rows of a run end in it, so that the state of a key is its last one. Some keys may still have
#: several states, one for each task that had rows of theirs: keys that the plan split, and null. They have no result.
WHOLE = "whole"
#: Of rows or states, the sum of ``JobColumns.row_hash`` over the rows of the input that they stand for, modulo 2**32.
HASH = "rows_hash"
#: Columns whose nulls are told by one number.
_NULLS = 31
#: More rows than a map makes of one row.
_INDICES = Decimal(1 << 31)


def summed_hash(summand: str) -> str:
    """In SQL, an aggregate: the sum of hashes, modulo 2**32 as a signed int, so that it takes four bytes of a state."""
    return f"CAST(shiftright(shiftleft(coalesce(sum({summand}), 0L), 32), 32) AS INT) AS {HASH}"


def hash_of_row(names: Sequence[str]) -> str:
    """In SQL, the upper 32 bits of XXH64 of some columns of a row, and of which are null, as a signed bigint.

    Spark passes over nulls: without the numbers at the end ``(1, null)`` and ``(null, 1)`` would be alike.
    """
    flags = [f"IF({name} IS NULL, {1 << at % _NULLS}, 0)" for at, name in enumerate(names)]
    nulls = (" + ".join(flags[at : at + _NULLS]) or "0" for at in range(0, len(flags) + 1, _NULLS))
    return f"shiftright(xxhash64({', '.join([*names, *nulls])}), 32)"


@dataclass(frozen=True)
class JobColumns:
    """The input columns of a job, ``c0``, ``c1``, ...: the key columns first, then the arguments."""

    job: Job
    inputs: tuple[str, ...]
    """Input column names, in the order of their numbers."""
    bound: tuple[BoundAggregate[Aggregate], ...]

    @classmethod
    def of(cls, job: Job) -> "JobColumns":
        """The columns that a job reads."""
        bound = bind(job)
        arguments = [column for one in bound for column in one.columns]
        return cls(job, tuple(dict.fromkeys((*job.spec.key, *arguments))), tuple(bound))

    @property
    def names(self) -> list[str]:
        """``c0``, ``c1``, ... for all input columns."""
        return [f"c{number}" for number in range(len(self.inputs))]

    @property
    def keys(self) -> list[str]:
        """The numbered names of the key columns."""
        return self.names[: len(self.job.spec.key)]

    @property
    def result_keys(self) -> list[str]:
        """The numbered names of the key columns, and the column of windows, which has no number."""
        return self.keys if self.job.spec.covered.several is None else [*self.keys, WINDOW_COLUMN]

    @property
    def results(self) -> list[str]:
        """The numbered names of all results: a user's name could equal that of an inner column."""
        return [f"r{number}" for number in range(len(self.bound))]

    def result(self, name: str) -> str:
        """The numbered name of a result."""
        return self.results[[one.name for one in self.bound].index(name)]

    @property
    def own_names(self) -> dict[str, str]:
        """For each numbered name of a key column or a result its own."""
        spec = self.job.spec
        own = [*spec.key, *spec.covered.columns, *(one.name for one in self.bound)]
        return dict(zip([*self.result_keys, *self.results], own, strict=True))

    @property
    def published(self) -> dict[str, str]:
        """The published columns, those of the key first, each by a number: of a key or a result, that of it."""
        spec, own = self.job.spec, self.own_names
        if spec.result is None:
            return own
        plain = {spec.result.plain.get(name): number for number, name in own.items()}
        keys = {plain.get(name, name): name for name in spec.result_key}
        return keys | {plain.get(name, f"x{at}"): name for at, name in enumerate(spec.values)}

    @property
    def types(self) -> list[str]:
        """The Spark SQL types of all input columns."""
        known = {**self.job.key_types, **self.job.column_types}
        return [known[name] for name in self.inputs]

    @property
    def window(self) -> JobWindow:
        """The window, of a job that has one."""
        if self.job.window is None:
            raise ValueError(f"the job {self.job.spec.name} has no window")
        return self.job.window

    @property
    def groups(self) -> list[str]:
        """What a state is of: a key, or with a window a key in a part."""
        return [PART, *self.keys] if self.job.window else self.keys

    @property
    def parted(self) -> list[str]:
        """In SQL, the column ``PART`` of rows with an origin; nothing without a window."""
        window = self.job.window
        if window is None:
            return []
        at = [at for at, part in enumerate(window.parts) for _ in part.ranks] or [0]
        return [f"{at[0] if len({*at}) == 1 else self._of_unit(at, 'INT')} AS {PART}"]

    @property
    def rows(self) -> list[str]:
        """The names of the columns of a row that states are made of."""
        return [*self.names, PART] if self.job.window else self.names

    @property
    def hashed(self) -> list[str]:
        """The numbered names of the columns that ``row_hash`` is of: all that Spark has a hash of, no maps."""
        return [name for name, kind in zip(self.names, self.types, strict=True) if "map<" not in kind]

    @property
    def row_hash(self) -> str:
        """In SQL, the hash of a row, see ``hash_of_row``."""
        return hash_of_row(self.hashed)

    @property
    def origins(self) -> list[str]:
        """The columns that together are different in every row, and ascend in the order of the input."""
        return [ORIGIN, ORIGIN_INDEX] if self.job.spec.map else [ORIGIN]

    @property
    def key(self) -> Column:
        """The key text."""
        return F.expr(self._key_sql())

    @property
    def key_is_text(self) -> bool:
        """Whether the key text is the key column itself."""
        return [self.job.key_types[name] for name in self.job.spec.key] == ["string"]

    @property
    def routing_key(self) -> Column:
        """The text by which a row is routed, see ``routing_sql``."""
        return F.expr(self.routing_sql())

    def routing_sql(self, prefix: str = "c") -> str:
        """The text by which a row is routed, in SQL.

        Rows with a null key are spread over all tasks, unless each key must live in one task: then a null key is
        routed by ``NULL_KEY``.
        """
        text = self._key_sql(prefix)
        return f"coalesce({text}, {text_literal(NULL_KEY)})" if self.job.forwards_states else text

    def _key_sql(self, prefix: str = "c") -> str:
        types = [self.job.key_types[name] for name in self.job.spec.key]
        return key_text([f"{prefix}{number}" for number in range(len(types))], types)

    @property
    def reads_origin(self) -> bool:
        """Whether an aggregate depends on the position of a row in the input."""
        return any(one.definition.reads_origin for one in self.native)

    @property
    def reads_places(self) -> bool:
        """Whether rows must tell where they were in the input, however they are routed."""
        # Where the rows of a run are of several parts, only their origin tells of which one.
        return self.reads_origin or (self.job.window is not None and len(self.job.window.reduced) > 1)

    @property
    def native(self) -> list[BoundAggregate[NativeAggregate]]:
        """The aggregates whose states are Spark SQL columns of their own."""
        found = [one for one in self.bound if isinstance(one.definition, NativeAggregate) and not one.counts_rows]
        return cast("list[BoundAggregate[NativeAggregate]]", found)

    @property
    def counts(self) -> list[Column]:
        """The results that are the rows of a key, which are counted anyway: no pass over the input is for them."""
        pairs = zip(self.results, self.bound, strict=True)
        return [F.col("rows").alias(result) for result, one in pairs if one.counts_rows]

    @property
    def sketches(self) -> list[str]:
        """The state columns of native aggregates whose result may depend on how rows were divided and merged."""
        return list(dict.fromkeys(name for one in self.native if one.definition.agrees for name in self.states(one)))

    @property
    def python(self) -> list[BoundAggregate[PythonAggregate]]:
        """The aggregates whose states live in a ``GroupsAccumulator``."""
        found = [one for one in self.bound if isinstance(one.definition, PythonAggregate)]
        return cast("list[BoundAggregate[PythonAggregate]]", found)

    @property
    def merged_in_any_order(self) -> bool:
        """Whether it does not matter in which order states are merged; Python states are sorted beforehand."""
        return all(one.definition.any_order or one.definition.combines_exactly(one.spark_types) for one in self.native)

    def python_calls(self) -> list[PythonCall]:
        """The Python aggregates as they travel to the workers."""
        return [python_call(one, self.states(one)[0]) for one in self.python]

    def argument(self, one: BoundAggregate[PythonAggregate]) -> Column:
        """What a Python aggregate sees of a row: its column, a struct of several columns, or null if it has none."""
        arrow_type = one.arrow_types.argument
        columns = [F.col(self._name(column)) for column in one.columns]
        if not one.definition.further:
            return (columns[0] if columns else F.lit(None)).cast(from_arrow_type(arrow_type))
        fields = list(arrow_type)
        own = [] if len(columns) == len(fields) else [F.lit(None)]
        return F.struct(
            *(
                column.cast(from_arrow_type(field.type)).alias(field.name)
                for column, field in zip([*own, *columns], fields, strict=True)
            )
        )

    def arguments(self, one: BoundAggregate[Aggregate], kept: str, *, all_kept: bool = False) -> Arguments:
        """What a native aggregate sees of the rows of a task."""

        def reached(column: Column) -> Column:
            return column if all_kept else F.when(F.col(kept), column)

        names = tuple(self._name(column) for column in one.columns)
        columns = tuple(reached(F.col(name)) for name in names) or (reached(F.lit(1)),)
        # As one number, since aggregates compare and negate it.
        origin = F.col(ORIGIN)
        if self.job.window:
            origin = F.expr(self._place_sql())
        elif self.job.spec.map:
            origin = origin.cast("decimal(20,0)") * F.lit(_INDICES) + F.col(ORIGIN_INDEX)
        return Arguments(columns, names, one.spark_types, reached(origin), "true" if all_kept else kept)

    def _place_sql(self) -> str:
        """The place of a row among all rows of the job, whenever they are read: its part, its unit's rank, its offset.

        The ordinal of a unit is its place in one run only.
        """
        places = [part.place * RANK_END + rank for part in self.window.parts for rank in part.ranks] or [0]
        # Sums of columns with few digits, so that Spark keeps every digit of the product.
        unit = f"CAST({self._of_unit(places, 'BIGINT')} AS DECIMAL(18,0))"
        place = f"{unit} * {1 << OFFSET_BITS}BD + ({ORIGIN} & {(1 << OFFSET_BITS) - 1}L)"
        if self.job.spec.map:
            # 2**(26 + 29 + 40 + 31) is less than 10**38.
            place = f"CAST({place} AS DECIMAL(28,0)) * {_INDICES}BD + {ORIGIN_INDEX}"
        return f"CAST({place} AS DECIMAL(38,0))"

    def _of_unit(self, numbers: Iterable[int], kind: str) -> str:
        """In SQL, the number of the unit of a row: looked up in a constant. Java compiles no method of 200 cases."""
        listed = " ".join(map(str, numbers))
        return f"CAST(split('{listed}', ' ') AS ARRAY<{kind}>)[shiftright({ORIGIN}, {OFFSET_BITS})]"

    def states(self, one: BoundAggregate[Aggregate]) -> list[str]:
        """The state columns of an aggregate: ``s3_0`` and ``s3_1`` for the fourth one, if no other has the same."""
        return self._states[self.bound.index(one)]

    @cached_property
    def _states(self) -> list[list[str]]:
        """A state that several aggregates have is kept once: what is made by one expression is merged by one, too."""
        known: dict[str, str] = {}
        return [
            [known.setdefault(str(update), f"s{number}_{part}") for part, update in enumerate(updates)]
            or [f"s{number}_0"]
            for number, updates in enumerate(self._updates)
        ]

    def _name(self, column: str) -> str:
        return self.names[self.inputs.index(column)]

    def updates(self, one: BoundAggregate[Aggregate]) -> list[Column]:
        """The states of a native aggregate over rows that all count, as aggregate expressions."""
        return self._updates[self.bound.index(one)]

    @cached_property
    def _updates(self) -> list[list[Column]]:
        """The states of each native aggregate over rows that all count; nothing for other aggregates.

        They are made once, since each of their operators is a call to the JVM.
        """
        return [
            list(one.definition.update(self.arguments(one, "kept", all_kept=True), one.options))
            if isinstance(one.definition, NativeAggregate)
            else []
            for one in self.bound
        ]
