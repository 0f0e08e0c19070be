"""The profile of an input: its columns, their types and, in a sample of its rows, their values and heaviest value."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless.spec.input import OWN_PREFIX, Input
from skewless.spec.part import Part, resolve_path
from skewless_cli.first_spec.layout import (
    Days,
    csv_fields,
    days_of,
    files_at,
    format_of,
    head_of,
    is_delta,
    is_table_name,
)
from skewless_spark.aggregates.key_text import KEY_TYPES
from skewless_spark.prepare.key_sample import SAMPLED_ROWS, spread_over
from skewless_spark.sources.formats.spark_types import UNSUPPORTED
from skewless_spark.sources.lake.tables import LakeTable
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.locations import resolved
from skewless_spark.sources.ranges import partition_value, read_unit

#: A sample is not larger in memory than about this.
_SAMPLED_BYTES = 256 << 20
#: The share of the input in the smallest wave, by default: sources are cut as in a run.
_SHARE = 0.01
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
#: Types of keys that people group by; the others serve where there is nothing else.
_KEYS = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")
#: How names of columns begin that are Spark's and ours.
_OWN = (OWN_PREFIX, "_metadata")
#: By so many rows the texts of JSON lines are told from times.
_TIMED_ROWS = 1_000
_DAY_TEXT, _DAY_LENGTH = re.compile(r"\d{4}-\d\d-\d\d($|[T ]\d\d:\d\d)"), 10
_TIMES = ("date", "timestamp", "timestamp_ntz")
#: Names of columns that tell things apart, and are no quantities.
_IDENTITY = re.compile(
    r"(^|_)(id|uuid|guid|key|code|hash|token|session|user|visitor|customer|account|device|ip|email|number|zip)s?$"
)
#: A text with so many different values per row is one, too.
_VALUES_PER_ROW = 0.05


@dataclass(frozen=True)
class Column:
    """A column of the input, and what its values in the sample are like.

    Attributes:
        values: how many different ones there are, null included.
        heaviest: the part of the rows that the most frequent one has.
        constant: whether each file has one value only, by the name of its folder.
    """

    name: str
    kind: str
    values: int = 0
    heaviest: float = 0.0
    constant: bool = False

    @property
    def skew(self) -> float:
        """How much there is to gain by planning for it as a key: its heaviest value, among many others."""
        return self.heaviest * math.log(max(1, self.values))

    @property
    def is_number(self) -> bool:
        """Whether sums of it are taken."""
        return self.kind.partition("(")[0] in _NUMBERS

    @property
    def is_time(self) -> bool:
        """Whether it is a day or a moment."""
        return self.kind in _TIMES

    @property
    def named_identity(self) -> bool:
        """Whether its name is that of what tells things apart."""
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()
        return bool(_IDENTITY.search(plain))

    def is_identity(self, rows: int) -> bool:
        """Whether its different values are worth counting."""
        many = self.kind == "string" and self.values > max(2.0, _VALUES_PER_ROW * rows)
        whole = self.kind in {"string", "tinyint", "smallint", "int", "bigint"}
        return whole and not self.constant and (self.named_identity or many)


@dataclass(frozen=True)
class Profile:
    """What was found out about an input.

    Attributes:
        fields: of the section ``input`` of a spec.
        day: a day that the input has, the last; None if its days are not told apart.
        days_by: the column by which a table has its days.
    """

    fields: dict[str, Any]
    columns: tuple[Column, ...]
    rows: int
    listed_rows: int
    day: dt.date | None = None
    days_by: str = ""

    @property
    def key_candidates(self) -> list[Column]:
        """The columns that rows may be grouped by, the most skewed first; quantities and days come behind all others.

        Raises:
            InputError: there is none.
        """
        fit = [one for one in self.columns if one.kind.partition("(")[0] in KEY_TYPES and one.name.lower() != "date"]
        apart = [one for one in fit if 1 < one.values < max(2, self.rows)]
        plain = [one for one in apart if one.kind in _KEYS]
        found = plain or apart or fit
        if not found:
            raise InputError(
                f"input {self.fields['path']}", "a column that can be a key", "none of such a type", "write a map step"
            )
        return sorted(found, key=lambda one: (_is_quantity(one) or one.is_time or one.kind == "boolean", -one.skew))


def _is_quantity(one: Column) -> bool:
    return one.is_number and not one.named_identity and not one.constant


def profile_of(given: str, root: str, where: str) -> Profile:
    """Look at an input: list it, and read a sample of its rows.

    Args:
        given: a path or the name of a table, as a spec has it.

    Raises:
        InputError: there is nothing that can be read.
        SpecError: a package or a catalog is not set up.
    """
    if is_table_name(given):
        return _of_table("iceberg", given, root, where)
    path = resolved(given, root, where)
    if is_delta(path):
        return _of_table("delta", given, root, where)
    files = files_at(path)
    fields: dict[str, Any] = {"path": given, "format": format_of(path, files)}
    days = days_of(path, files)
    if days is not None:
        fields["path"] = days.path if path == given else days.path.removeprefix(path.removesuffix(given))
        path = resolve_path(days.path, Part(days.last), where)
        files = files_at(path)
    if fields["format"] == "csv":
        filled = next((file for file in files if head_of(file)), files[0])
        fields |= csv_fields(filled)
    found = _sampled(fields, path, days)
    if days is None:
        return found
    return replace(found, day=days.last)


def _sampled(fields: dict[str, Any], path: str, days: Days | None) -> Profile:
    """List files and read a sample of them; a column of a CSV that is not of the type that it seems to be is text."""
    if fields["format"] == "json":
        fields |= _with_times(list_input(Input.model_validate(fields), path, _SHARE))
    while True:
        listing = list_input(Input.model_validate(fields), path, _SHARE)
        try:
            return _profile(fields, listing, _outside(days))
        except _OddColumn as odd:
            if odd.args[0] not in fields.get("columns", {}):
                raise odd.args[1] from None
            header = fields.get("header", True)
            columns = {name: kind for name, kind in fields["columns"].items() if not header or name != odd.args[0]}
            if not header:
                columns[odd.args[0]] = "string"
            fields = {name: value for name, value in fields.items() if name != "columns"}
            fields |= {"columns": columns} if columns else {}


def _with_times(listing: Listing) -> dict[str, Any]:
    """The types of JSON lines as ``input.columns``: whatever looks like a day or a moment is text without them."""
    types = {name: kind for name, kind in listing.source.columns.items() if not kind.startswith(UNSUPPORTED)}
    texts = [name for name, kind in types.items() if kind == "string"]
    filled = [unit for unit in listing.units if unit.rows][:1] if texts else []
    sample = _table([_rows_of(unit, listing.source, texts, texts, _TIMED_ROWS) for unit in filled])
    if sample is None:
        return {"columns": types} if types else {}
    for name in texts:
        told = {_kind_of_text(text) for text in sample.column(name).to_pylist() if text is not None}
        types[name] = told.pop() if len(told) == 1 else "string"
    return {"columns": types}


def _kind_of_text(text: str) -> str:
    """The type of a text in JSON that may be a time."""
    with suppress(ValueError):
        if _DAY_TEXT.match(text):
            return "date" if dt.datetime.fromisoformat(text) and len(text) == _DAY_LENGTH else "timestamp"
    return "string"


def _outside(days: Days | None) -> set[str]:
    """The partition columns that a dated path names: one value in each run."""
    return set() if days is None else {piece.partition("=")[0] for piece in days.path.split("/") if "={date" in piece}


def _of_table(kind: str, given: str, root: str, where: str) -> Profile:
    fields = {"path": given, "format": kind}
    location = "" if is_table_name(given) else resolved(given, root, where)
    # A part is asked for, and plays no part in the latest state of a table.
    table = LakeTable.pinned(Input.model_validate(fields), Part(dt.date(2026, 1, 1)), root, location)
    listing, snapshot = table.listing(_SHARE), table.snapshot
    for column in snapshot.parted:
        days = [_day(file.told.get(column)) for file in snapshot.files]
        known = [day for day in days if day is not None]
        if days and len(known) == len(days):
            # A day has one value, and the moments of a day many.
            outside = {column} if snapshot.kinds[column] in {"date", "string"} else set()
            found = _profile({**fields, "parts": column}, listing, outside)
            return replace(found, day=max(known), days_by=column)
    return _profile(fields, listing, set())


def _day(text: str | None) -> dt.date | None:
    with suppress(ValueError):
        return dt.date.fromisoformat(text) if text else None
    return None


class _OddColumn(Exception):  # noqa: N818  # it is caught here, and goes no further
    """A column that cannot be read as what it seems to be, and the error."""


def _profile(fields: dict[str, Any], listing: Listing, outside: set[str]) -> Profile:
    """The columns of a listing, but for some, as a sample of its rows has them."""
    source, units = listing.source, spread_over([unit for unit in listing.units if unit.rows])
    types = {**source.columns, **source.partition_columns}
    lower = [name.lower() for name in types]
    # No job may read a column that Spark confuses with another one.
    confused = {name for name in types if lower.count(name.lower()) > 1 or name.lower().startswith(_OWN)}
    left_out = outside | confused
    names = [name for name, kind in types.items() if name not in left_out and not kind.startswith(UNSUPPORTED)]
    asked = [name for name in names if name not in source.partition_columns]
    rows = math.ceil(SAMPLED_ROWS / max(1, len(units)))
    sample = _table([_rows_of(unit, source, asked, names, rows) for unit in units if asked])
    found = tuple(_column(name, types[name], sample, constant=name in source.partition_columns) for name in names)
    listed = sum(unit.rows or 0 for unit in listing.units)
    return Profile(fields, found, 0 if sample is None else len(sample), listed)


def _rows_of(unit: Unit, source: Source, asked: Sequence[str], names: Sequence[str], rows: int) -> pa.Table:
    """The first rows of a source partition, of one row group or stripe at most; a column that pyarrow lacks is null."""
    if source.format in {"parquet", "orc"}:
        first = unit.span[0] if unit.span else 0
        unit = unit.model_copy(update={"span": (first, first + 1)})
    try:
        table = pa.Table.from_batches(_first(unit, source, asked, rows))
    except InputError:
        if len(asked) == 1:
            raise
        parts = {name: _alone(unit, source, name, rows) for name in asked}
        whole = max(map(len, parts.values()), default=0)
        table = pa.table({name: part if len(part) else pa.nulls(whole) for name, part in parts.items()})
    for name in names:
        if name not in asked:
            table = table.append_column(name, pa.repeat(partition_value(unit, source, name), len(table)))
    return table


def _alone(unit: Unit, source: Source, name: str, rows: int) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.Table.from_batches(_first(unit, source, [name], rows)).column(name)
    except InputError as err:
        if source.format == "csv":
            raise _OddColumn(name, err) from None
        return pa.nulls(0)  # only Spark reads it right


def _first(unit: Unit, source: Source, asked: Sequence[str], rows: int) -> list[pa.RecordBatch]:
    return list(_batches(unit, source, asked, rows)) or [pa.RecordBatch.from_arrays([], names=[])]


def _batches(unit: Unit, source: Source, asked: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    left_bytes = _SAMPLED_BYTES
    for batch in read_unit(unit, source, asked):
        yield batch.slice(0, rows).select(list(asked))
        rows, left_bytes = rows - len(batch), left_bytes - batch.nbytes
        if rows <= 0 or left_bytes <= 0:
            return


def _table(parts: Sequence[pa.Table]) -> pa.Table | None:
    filled = [part for part in parts if len(part)]
    return pa.concat_tables(filled, promote_options="permissive") if filled else None


def _column(name: str, kind: str, sample: pa.Table | None, *, constant: bool) -> Column:
    if sample is None or kind.startswith("array<"):
        return Column(name, kind, constant=constant)
    counts = pc.value_counts(sample.column(name).combine_chunks()).field("counts")
    return Column(name, kind, len(counts), (pc.max(counts).as_py() or 0) / max(1, len(sample)), constant)
