"""What a check feeds to an aggregate: arguments of its types, nulls among them, keys, and hashes instead of chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from skewless.aggregates.accumulator import GroupsAccumulator
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.spark_types import spark_type_of

Groups = npt.NDArray[np.int64]
#: Groups that get rows. Two more get none: one among these, and the last.
FILLED = (0, 2, 3)
GROUPS = 5


def typed(
    aggregate: PythonAggregate, options: BaseModel, values: Sequence[Any] | pa.Array, spark_types: Sequence[str]
) -> tuple[pa.Array, tuple[str, ...]]:
    """The values as the aggregate accepts them, and their Spark SQL types."""
    given = values if isinstance(values, pa.Array) else None
    kinds = tuple(spark_types or _guessed(pa.array(list(values)) if given is None else given))
    argument = aggregate.types(options, kinds).argument
    return (pa.array(list(values), argument) if given is None else given.cast(argument)), kinds


def _guessed(values: pa.Array) -> list[str]:
    """The Spark SQL types that fit the values."""
    kinds = [field.type for field in values.type] if pa.types.is_struct(values.type) else [values.type]
    return [spark_type_of(kind) for kind in kinds]


def with_nulls(rows: pa.Array, seed: int) -> pa.Array:
    """Make one value in four null; in a struct each field by itself, since a row is never null."""
    if not pa.types.is_struct(rows.type):
        return _holed(rows, f"null {seed}")
    columns = [_holed(column, f"null {seed} {n}") for n, column in enumerate(rows.flatten())]
    return pa.StructArray.from_arrays(columns, fields=list(rows.type))


def _holed(values: pa.Array, name: str) -> pa.Array:
    places = np.arange(len(values))
    return values.take(pa.array(places, mask=draws(len(values), name, 0) % 4 == 0))


def far_apart(rows: pa.Array, seed: int) -> pa.Array:
    """Floating-point numbers times 1, 1e9 or 1e18, in a struct each field by itself; others stay as they are."""
    if pa.types.is_struct(rows.type):
        columns = [far_apart(column, seed + n) for n, column in enumerate(rows.flatten())]
        return pa.StructArray.from_arrays(columns, fields=list(rows.type))
    if not pa.types.is_floating(rows.type):
        return rows
    factors = pa.array(10.0 ** (9 * (draws(len(rows), "far", seed) % 3)))
    return pc.multiply(rows.cast(pa.float64()), factors).cast(rows.type)


def open_groups(accumulator: GroupsAccumulator, first: int, end: int) -> None:
    """Open groups, each under its own key; the key of the third one is null."""
    if end > first:
        keys = [None if group == FILLED[1] else f"key {group}" for group in range(first, end)]
        accumulator.open_keys(pa.array(keys, pa.string()), first)


def draws(count: int, name: str, seed: int) -> Groups:
    """Hashes in the place of random numbers: the same ones each time."""
    return np.array([mmh3.hash(f"{name}/{place}", seed, signed=False) for place in range(count)], np.int64)


def nearly(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two values are equal; floating-point numbers may differ by the tolerance, and NaN equals NaN."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(nearly(*pair, tolerance) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(nearly(left[name], right[name], tolerance) for name in left)
    return type(left) is type(right) and bool(left == right)
