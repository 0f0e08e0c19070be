"""The table that a spec names, whatever made it, and the units of its files.

By what ``map.where`` says about single columns, files are left out whose bounds hold no such row.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from skewless.documents.job import PinnedTable, Source, Unit
from skewless.errors import InputError, SpecError
from skewless.run.folder import open_location
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.session.session import query_in_jvm
from skewless_spark.sources.cutting import piece_bytes
from skewless_spark.sources.formats.column_types import DECIMAL, UNSUPPORTED
from skewless_spark.sources.formats.input_files import in_threads, quoted
from skewless_spark.sources.formats.parquet import FieldIds, Footer, footer_with_ids
from skewless_spark.sources.identity import TABLE
from skewless_spark.sources.lake.snapshot import Commit, Snapshot, TableFile, Vectors, deleted_positions
from skewless_spark.sources.listing import ListedFile, Listing, added_up, counted_units, nulls_in

Comparison = Literal["=", "<", "<=", ">", ">="]
#: The types of columns whose bounds are compared. Not floats: to Spark alone, NaN is greater than all numbers.
KINDS = frozenset({"tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "timestamp_ntz"})
_COMPARISONS: Mapping[str, Comparison] = {
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
}  # fmt: skip
_TURNED: Mapping[Comparison, Comparison] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Condition(NamedTuple):
    """A comparison that each row must pass: of a column, on its left, with one of some values."""

    column: str
    """By its name in the table."""
    kind: str
    """The type of the column and of the values, one of ``KINDS``."""
    comparison: Comparison
    values: tuple[int | str, ...]
    """A date is a number of days, and a time one of microseconds, since 1970 in UTC, as Spark has them."""


#: Makes the conditions on a table of its columns' types by name.
Conditions = Callable[[Mapping[str, str]], Sequence[Condition]]


def conditions_of(spark: SparkSession | None, where: str | None, kinds: Mapping[str, str]) -> tuple[Condition, ...]:
    """The comparisons of columns with literals that all rows of a condition pass, as Spark's optimizer types them.

    Other parts of the condition are left to Spark. There are none if times are not in UTC, as the bounds of files are.
    """
    if spark is None or where is None or spark.conf.get("spark.sql.session.timeZone") != "UTC":
        return ()
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items() if not kind.startswith(UNSUPPORTED))
    try:
        rows = spark.createDataFrame(cast("list[Row]", []), columns).where(where)
        plan = query_in_jvm(rows).optimizedPlan()
    except PySparkException:  # which is told by who checks the map
        return ()
    if _class(plan) != "Filter":
        return ()
    names = {column.exprId().id(): str(column.name()) for column in _listed(plan.child().output())}
    return tuple(_conjuncts(plan.condition(), names))


def _conjuncts(node: Any, names: Mapping[int, str]) -> Iterator[Condition]:
    kind = _class(node)
    if kind == "And":
        yield from _conjuncts(node.left(), names)
        yield from _conjuncts(node.right(), names)
    elif kind in _COMPARISONS:
        column, literal, comparison = node.left(), node.right(), _COMPARISONS[kind]
        if _class(column) == "Literal":
            column, literal, comparison = literal, column, _TURNED[comparison]
        yield from _condition(names, column, comparison, [_value(literal)])
    elif kind == "In":
        yield from _condition(names, node.value(), "=", [_value(one) for one in _listed(node.list())])
    elif kind == "InSet":
        yield from _condition(names, node.child(), "=", _listed(node.hset().toSeq()))


def _condition(names: Mapping[int, str], column: Any, comparison: Comparison, values: list[Any]) -> Iterator[Condition]:
    kind = str(column.dataType().simpleString())
    if _class(column) == "AttributeReference" and kind in KINDS and None not in values:
        plain = tuple(value if isinstance(value, int) else str(value.toString()) for value in values)
        yield Condition(names[column.exprId().id()], kind, comparison, plain)


def _value(node: Any) -> Any:
    return node.value() if _class(node) == "Literal" else None


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _listed(nodes: Any) -> list[Any]:
    return [nodes.apply(number) for number in range(nodes.size())]


#: The types that older files may have, of a column that has been widened since.
_WIDENED = {
    "smallint": {"tinyint"}, "int": {"tinyint", "smallint"}, "bigint": {"tinyint", "smallint", "int"},
    "double": {"float", "tinyint", "smallint", "int"}, "timestamp_ntz": {"date"},
}  # fmt: skip
#: How many digits an integer has at most.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


class TableReader(Protocol):
    """How tables of a format are read: a module, whose library is an extra."""

    def snapshot_of(self, given: Input, part: Part, root: str, location: str, conditions: Conditions) -> Snapshot:
        """What a run reads.

        Args:
            root: the data root, where the catalog ``local`` is.
            location: the folder of a table that has no name.
            conditions: files whose bounds hold no row that passes them are left out.
        """

    def rewrites_of(self, snapshot: Snapshot, root: str) -> Iterator[Commit]:
        """The commits up to a snapshot that changed no row, the newest first, as far as the table has them."""

    def vectors_of(self, table: PinnedTable) -> Vectors:
        """The deletion vectors of a pinned table that are in its log."""


#: The modules of the formats of ``skewless.spec.input.TABLES``.
READERS = {"iceberg": "skewless_spark.sources.lake.iceberg", "delta": "skewless_spark.sources.lake.delta"}


def reader_of(kind: str) -> TableReader:
    """The reader of a format; a ``SpecError`` if its library is not installed."""
    try:
        return cast("TableReader", import_module(READERS[kind]))
    except ModuleNotFoundError as err:
        raise SpecError.saying(
            f"input of format {kind}", f"{err.name} is not installed", f"install skewless[{kind}]"
        ) from None


def table_version(file: TableFile) -> str:
    """What tells a file from a later one of its name: files of a table never change, but more rows may be deleted."""
    deletes = hashlib.sha256("\n".join(file.deletes).encode()).hexdigest()[:32] if file.deletes else ""
    return f"{TABLE}:{deletes}"


def _widens(kind: str, wanted: str) -> bool:
    if kind == wanted or kind in _WIDENED.get(wanted, ()):
        return True
    if kind.startswith("array<") and wanted.startswith("array<"):
        return _widens(kind[len("array<") : -1], wanted[len("array<") : -1])
    old, new = DECIMAL.fullmatch(kind), DECIMAL.fullmatch(wanted)
    if not new or not (old or kind in _DIGITS):
        return False
    whole, scale = (int(old[1]) - int(old[2]), int(old[2])) if old else (_DIGITS[kind], 0)
    return int(new[2]) >= scale and int(new[1]) - int(new[2]) >= whole


class _OfFile(NamedTuple):
    """What is listed of a file: its units, its nulls, and its nested columns that its table has otherwise."""

    units: list[Unit]
    nulls: list[int | None]
    odd: dict[str, str]


@dataclass(frozen=True)
class LakeTable:
    """A pinned table."""

    snapshot: Snapshot
    root: str

    @classmethod
    def pinned(
        cls, given: Input, part: Part, root: str, location: str, conditions: Conditions = lambda _: ()
    ) -> "LakeTable":
        """Pin a table now, see ``TableReader.snapshot_of``."""
        return cls(reader_of(given.format).snapshot_of(given, part, root, location, conditions), root)

    def listing(
        self, share: float | None, files: Sequence[TableFile] | None = None, nulls_of: Sequence[str] = ()
    ) -> Listing:
        """Cut all files, or some, into units. Footers and deletes are read; nulls of some columns may be counted."""
        chosen, outside = self.snapshot.files if files is None else files, self.snapshot.outside
        piece = piece_bytes([file.size_bytes for file in chosen], share)
        found = list(in_threads(lambda file: self._units(file, piece, nulls_of), chosen))
        odd = {name: f"{UNSUPPORTED}{kind}" for one in found for name, kind in one.odd.items()}
        source = Source(
            columns={one.name: one.kind for one in self.snapshot.columns if one.name not in outside} | odd,
            partition_columns={one.name: one.kind for one in self.snapshot.columns if one.name in outside},
            pinned=self.snapshot.table,
        )
        nulls = added_up(nulls_of, [one.nulls for one in found])
        return Listing(tuple(chain.from_iterable(one.units for one in found)), source, nulls=nulls)

    def rewrites(self) -> Iterator[Commit]:
        """The commits up to the pinned one that say of themselves that they changed no row, the newest first."""
        table = self.snapshot.table
        return reader_of(table.kind).rewrites_of(self.snapshot, self.root) if table.snapshot else iter(())

    def _units(self, file: TableFile, piece: int, nulls_of: Sequence[str]) -> _OfFile:
        fs, inner_path = open_location(file.path)
        footer, ids = footer_with_ids(fs, inner_path, file.path, nulls=bool(nulls_of))
        if file.rows not in {None, footer.rows}:
            raise InputError(
                f"input file {file.path}", f"{file.rows:,} rows, as {self.snapshot.at} says", f"{footer.rows:,}",
                "repair the table",
            )  # fmt: skip
        inner, odd = self._inner(file, footer, ids)
        told = {one.name: one.default for one in self.snapshot.columns if one.default is not None} | {**file.values}
        known = {name: value for name, value in told.items() if name in self.snapshot.outside or name in inner}
        listed = ListedFile(file.path, inner_path, file.size_bytes, table_version(file), "", known)
        units = counted_units(listed, footer, piece)
        # A footer counts the nulls of deleted rows, too.
        names = {one: None if one in self.snapshot.outside else inner.get(one, one) for one in nulls_of}
        nulls = [None if file.deletes else nulls_in(footer, inside, told.get(one)) for one, inside in names.items()]
        if not (inner or file.deletes):
            return _OfFile(units, nulls, odd)
        deleted = deleted_positions(file.path, file.deletes, self.snapshot.vectors)
        for at, unit in enumerate(units):
            first, last = np.searchsorted(deleted, [unit.first_row, unit.first_row + unit.rows])
            changed = {"inner": inner, "deletes": file.deletes, "rows": unit.rows - int(last - first)}
            units[at] = unit.model_copy(update=changed)
        return _OfFile(units, nulls, odd)

    def _inner(self, file: TableFile, footer: Footer, ids: FieldIds) -> tuple[dict[str, str | None], dict[str, str]]:
        """See ``Unit.inner``; and the nested columns whose fields are others in the file, with what is said of them."""
        inner: dict[str, str | None] = {}
        odd: dict[str, str] = {}
        by_id = self._by_id(file, footer, ids.columns)
        for column in self.snapshot.columns:
            if column.name in self.snapshot.outside or column.kind.startswith(UNSUPPORTED):
                continue
            wanted = column.inner or column.name
            name = by_id.get(column.field_id) if column.field_id is not None else wanted
            if name is None or name not in footer.types:
                if column.required and column.default is None and column.name not in file.values:
                    required = f"the column {column.name!r}, of which each row of the table has a value"
                    came = "none, and no default that can be read here"
                    raise InputError(f"input file {file.path}", required, came, "rewrite the file")
                inner[column.name] = None
                continue
            kind = footer.types[name]
            if "<" in column.kind:
                if kind != column.kind or column.ids not in {None, ids.inside[name]}:
                    odd[column.name] = f"{column.kind}, whose fields are others in {file.path}"
            elif not _widens(kind, column.kind):
                raise InputError(
                    f"input file {file.path}",
                    f"column {column.name!r} of type {column.kind}, as in {self.snapshot.at}", f"type {kind}",
                    "rewrite the file",
                )  # fmt: skip
            if name != column.name or kind != column.kind or name in footer.foreign:
                inner[column.name] = name
        return inner, odd

    def _by_id(self, file: TableFile, footer: Footer, ids: Mapping[int, str]) -> Mapping[int, str]:
        if ids or all(one.field_id is None for one in self.snapshot.columns):
            return ids
        if not self.snapshot.ids:
            raise InputError(
                f"input file {file.path}", "field ids, or a table with schema.name-mapping.default", "neither",
                "set that property, as add_files does",
            )  # fmt: skip
        return {number: name for name, number in self.snapshot.ids.items() if name in footer.types}
