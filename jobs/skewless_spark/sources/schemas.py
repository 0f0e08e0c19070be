"""Columns of files that differ: which type serves all files, and what a file lacks of the columns that a job reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from skewless.documents.job import Unit
from skewless.errors import InputError, nearest
from skewless_spark.sources.formats.spark_types import DECIMAL

#: Of each file that has a footer, by its path: the Spark SQL type of each of its columns.
ColumnsOfFiles = Mapping[str, Mapping[str, str]]

#: Types from narrow to wide. All values of one are values of the next, and Spark reads them as such.
_WIDER = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))


def widest(first: str, second: str) -> str | None:
    """The one of two types that has the values of both; None if neither has.

    >>> widest("int", "bigint"), widest("decimal(12,2)", "decimal(9,2)"), widest("int", "double")
    ('bigint', 'decimal(12,2)', None)
    """
    if first == second:
        return first
    for kinds in _WIDER:
        if first in kinds and second in kinds:
            return max(first, second, key=kinds.index)
    one, other = DECIMAL.fullmatch(first), DECIMAL.fullmatch(second)
    if one and other and one[2] == other[2]:
        return max(first, second, key=lambda kind: int(DECIMAL.fullmatch(kind)[1]))  # type: ignore[index]
    return None


def common_types(files: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The type of each column that some file has.

    Where no type serves all files, it is that of the first one: ``fitted`` refuses the others if the job reads it.
    """
    found: dict[str, str] = {}
    for types in dict.fromkeys(tuple(one.items()) for one in files):
        for name, kind in types:
            found[name] = widest(found.get(name, kind), kind) or found[name]
    return found


def refuse_unknown(declared: Iterable[str], known: Iterable[str], first: str) -> None:
    """Refuse a type that a spec declares for a column that is neither in files nor in the names of folders."""
    names = list(known)
    odd = next((name for name in declared if name not in names), None)
    if odd is not None:
        raise InputError("spec, field input.columns", f"columns of {first} or of its folders", repr(odd),
                         nearest(odd, names))  # fmt: skip


def wider_types(own: ColumnsOfFiles, wanted: Mapping[str, str]) -> dict[str, str]:
    """Those of some types that must be wider, so that they have the values of all files."""
    found = common_types([wanted, *own.values()])
    return {name: found[name] for name, kind in wanted.items() if found[name] != kind}


def fitted(
    units: Sequence[Unit],
    own: ColumnsOfFiles,
    wanted: Mapping[str, str],
    required: Container[str],
    told: Callable[[str], str],
) -> tuple[Unit, ...]:
    """The units, with what their files lack of the columns that a job reads.

    Args:
        own: the columns of the files; of formats without footers nothing is known.

    Raises:
        InputError: a file lacks a column, or has it in a type whose values are not all of the wanted one.
    """
    known: dict[tuple[tuple[str, str], ...], dict[str, str | None]] = {}
    lacking = {}
    for path, types in own.items():
        shape = tuple(types.items())
        if shape not in known:
            known[shape] = {**dict.fromkeys(name for name in wanted if name not in types), **_unsigned(types, wanted)}
            _refuse_unfit(path, types, wanted, required, told)
        lacking[path] = known[shape]
    return tuple(
        unit.model_copy(update={"inner": {**unit.inner, **lacking[unit.path]}}) if lacking.get(unit.path) else unit
        for unit in units
    )


def _unsigned(types: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Columns that may be integers of 64 bits without a sign, which Spark reads as no wider decimals; pyarrow does."""
    return {name: name for name, kind in wanted.items() if types.get(name) == "decimal(20,0)" != kind}


def _refuse_unfit(
    path: str, types: Mapping[str, str], wanted: Mapping[str, str], required: Container[str], told: Callable[[str], str]
) -> None:
    for name, kind in wanted.items():
        came = types.get(name)
        if came is None and name in required:
            raise InputError(
                f"input file {path}", f"the column {name!r}, which the job reads", "none",
                "write it, or set input.schema: evolve to read null",
            )  # fmt: skip
        if came is not None and widest(came, kind) != kind:
            raise InputError(
                f"input file {path}", f"column {name!r} of type {kind} as {told(name)}", f"type {came}",
                "write all files of an input with one schema",
            )  # fmt: skip
