"""Rows of one kind, held and written as a column for each field, and counts held as an array.

A run of a million files has a million units. As objects they would take two kilobytes each, and as long to read as to
list them; as columns they take what their texts and numbers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, overload

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, GetCoreSchemaHandler, PlainSerializer, WrapValidator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from skewless.document import LARGEST_COUNT, Count, Frozen

Row = TypeVar("Row", bound=BaseModel)


def _as_array(given: Any, check: Any) -> npt.NDArray[np.int64]:
    """A read-only array of counts. They are checked all at once, and one by one where that finds a fault."""
    array = given
    with suppress(ValueError):
        array = np.array(given)
    whole = array is not given and array.ndim == 1 and array.dtype.kind == "i"
    if not whole or (array.size and not 0 <= array.min() <= array.max() <= LARGEST_COUNT):
        array = check(given.tolist() if isinstance(given, np.ndarray) else given)
    found = np.asarray(array, dtype=np.int64)
    found.flags.writeable = False
    return found


if TYPE_CHECKING:
    Counts = npt.NDArray[np.int64] | Sequence[int]
else:
    #: Counts of a document, shape ``(counts,)``: an array, and a list in JSON.
    Counts = Annotated[
        tuple[Count, ...], WrapValidator(_as_array), PlainSerializer(lambda counts: np.asarray(counts).tolist())
    ]


def exact_sum(counts: Counts) -> int:
    """The sum of counts, which may not fit into 64 bits."""
    whole = np.asarray(counts, dtype=np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


class Rows(Sequence[Row]):
    """A sequence of values of one kind that makes each of them when it is asked for."""

    __slots__ = ("_columns", "_count", "kind")

    def __init__(self, kind: type[Row], columns: Mapping[str, Sequence[Any]]) -> None:
        """Columns of one length, by field; those that are not given have the default in all rows.

        Raises:
            PydanticCustomError: the columns differ in length.
        """
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            required, came = "columns of one length", " and ".join(map(str, sorted(lengths)))
            raise PydanticCustomError("unmet", "{required}", {"required": required, "came": came})
        self.kind, self._count = kind, max(lengths, default=0)
        self._columns = {
            name: _packed(field.annotation, columns[name])
            if name in columns
            else _packed(field.annotation, [field.get_default(call_default_factory=True)] * self._count)
            for name, field in kind.model_fields.items()
        }

    @classmethod
    def of(cls, kind: type[Row], rows: Iterable[Row]) -> Rows[Row]:
        """The columns of some rows, which may be made one after the other."""
        if isinstance(rows, Rows) and rows.kind is kind:
            return rows
        columns: dict[str, list[Any]] = {name: [] for name in kind.model_fields}
        for row in rows:
            for name, column in columns.items():
                column.append(getattr(row, name))
        return cls(kind, columns)

    def column(self, name: str) -> list[Any]:
        """A field of all rows."""
        found: Any = self._columns[name]
        return list(found.tolist() if isinstance(found, np.ndarray) else found)

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """A field of all rows that is a whole number, shape ``(rows,)``."""
        return cast("npt.NDArray[np.int64]", self._columns[name])

    def written(self) -> dict[str, list[Any]]:
        """The columns by their fields, without those that have the default in all rows."""
        fields, found = self.kind.model_fields, {}
        for name in fields:
            column, default = self.column(name), fields[name].get_default(call_default_factory=True)
            if fields[name].is_required() or any(value != default for value in column):
                found[name] = column
        return found

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Rows[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Rows[Row]:
        if isinstance(at, slice):
            return Rows(self.kind, {name: column[at] for name, column in self._columns.items()})
        found = {name: column[at] for name, column in self._columns.items()}
        return self._made({name: int(one) if isinstance(one, np.int64) else one for name, one in found.items()})

    def __iter__(self) -> Iterator[Row]:
        names = tuple(self._columns)
        for values in zip(*map(self.column, names), strict=True):
            yield self._made(dict(zip(names, values, strict=True)))

    def _made(self, values: dict[str, Any]) -> Row:
        made = self.kind.__new__(self.kind)
        for name, value in (
            ("__dict__", values), ("__pydantic_fields_set__", set(values)), ("__pydantic_extra__", None),
            ("__pydantic_private__", None),
        ):  # fmt: skip
            object.__setattr__(made, name, value)
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self.kind is other.kind and all(self.column(one) == other.column(one) for one in self._columns)
        return isinstance(other, tuple | list) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kind: Any = get_args(source)[0]
        fields = {
            name: core_schema.typed_dict_field(
                core_schema.list_schema(handler.generate_schema(field.rebuild_annotation())),
                required=field.is_required(),
            )
            for name, field in kind.model_fields.items()
        }
        finite = core_schema.CoreConfig(allow_inf_nan=False)
        table = core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=finite)
        columns = core_schema.no_info_after_validator_function(lambda given: cls(kind, given), table)
        rows = core_schema.no_info_after_validator_function(
            lambda given: cls.of(kind, given), handler.generate_schema(tuple[kind, ...])
        )
        return core_schema.json_or_python_schema(
            columns,
            core_schema.union_schema([core_schema.is_instance_schema(cls), columns, rows]),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda found: cls.of(kind, found).written()),
        )


#: A field of a document: ``Columns[Unit]`` takes units, or what it has written: a list for each field of
#: a unit, without those that have their default in all.
Columns = Annotated[Sequence[Row], Rows]


class Columnar(Frozen):
    """A value with fields that are ``Columns`` or ``Counts``. Specs have none: a DAG is read without numpy."""

    @staticmethod
    def _alike(left: Any, right: Any) -> bool:
        arrays = isinstance(left, np.ndarray) or isinstance(right, np.ndarray)
        return bool(np.array_equal(left, right) if arrays else left == right)

    @staticmethod
    def _held_like(before: Any, now: Any) -> Any:
        if isinstance(before, Rows):
            return Rows.of(before.kind, now)
        if not isinstance(before, np.ndarray):
            return now
        array = np.array(now, dtype=np.int64)
        array.flags.writeable = False
        return array


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """A field of all rows."""
    return rows.column(name) if isinstance(rows, Rows) else [getattr(row, name) for row in rows]


def numbers(rows: Sequence[Row], name: str) -> npt.NDArray[np.int64]:
    """A field of all rows that is a whole number, shape ``(rows,)``."""
    return rows.numbers(name) if isinstance(rows, Rows) else np.array(column(rows, name), dtype=np.int64)


def _packed(annotation: Any, column: Sequence[Any]) -> Sequence[Any]:
    if annotation is not int:
        return column
    found = np.array(column, dtype=np.int64)
    found.flags.writeable = False
    return cast("Sequence[Any]", found)
