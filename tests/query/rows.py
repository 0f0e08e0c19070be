"""Made rows for the tables of ``public.yaml``, and whether two results are equal."""

import datetime as dt
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.values import canonical, rank

Row = dict[str, Any]
#: Parts of an input: the days that its files are in.
DAYS = tuple(dt.date(2026, 11, 18) + dt.timedelta(days=n) for n in range(3))
_TYPES = {
    "int": pa.int64(),
    "word": pa.string(),
    "decimal": pa.decimal128(9, 2),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "day": pa.date32(),
    "time": pa.timestamp("us", "UTC"),
}


def _drawn(chance: random.Random, kind: str, most: int) -> Any:
    if kind in {"day", "time"}:
        day = dt.date(2026, 11, 1) + dt.timedelta(days=chance.randrange(7))
        at = dt.time(chance.randrange(24), chance.randrange(60), tzinfo=dt.UTC)
        return day if kind == "day" else dt.datetime.combine(day, at)
    # A fifth of all rows have the first value of each column: a hot key.
    number = 0 if chance.random() < 0.2 else chance.randrange(most)
    made = {"int": number, "word": f"w{number}", "decimal": Decimal(number).scaleb(-2), "double": number / 4}
    return made.get(kind, number % 2 == 0)


def made_table(name: str, told: Mapping[str, Any]) -> pa.Table:
    """The rows of a table as ``public.yaml`` describes it, the same each time."""
    chance, columns = random.Random(name), {}
    for column, values in told["columns"].items():
        kind, _, most = ("word", "", "") if isinstance(values, list) else values.partition(" ")
        drawn = [
            chance.choice(values) if isinstance(values, list) else _drawn(chance, kind, int(most or 9000))
            for _ in range(told["rows"])
        ]
        sure = column.endswith("_id")
        columns[column] = pa.array([one if sure or chance.random() > 1 / 12 else None for one in drawn], _TYPES[kind])
    return pa.table(columns)


def write_parts(table: pa.Table, folder: Path) -> None:
    """The rows of a table as files in a folder for each of ``DAYS``."""
    step = -(-table.num_rows // len(DAYS))
    for at, day in enumerate(DAYS):
        (place := folder / f"date={day}").mkdir(parents=True)
        pq.write_table(table.slice(at * step, step), place / "rows.parquet")


def differences(ours: Iterable[Row], right: Iterable[Row], near: Mapping[str, float]) -> list[str]:
    """What is wrong with rows, in words, whatever their order; ``near`` is what a column may be off by."""
    ours, right = [*ours], [*right]
    if ours and right and [*ours[0]] != [*right[0]]:
        return [f"columns {[*ours[0]]}, not {[*right[0]]}"]
    groups = [_by_exact(rows, near) for rows in (ours, right)]
    told = [f"{len(ours)} rows, not {len(right)}"] if len(ours) != len(right) else []
    for key in groups[0].keys() | groups[1].keys():
        mine, theirs = (sorted(one.get(key, ()), key=_rank) for one in groups)
        if len(mine) != len(theirs) or not all(
            all(_alike(a, b, near.get(name, 0)) for (name, a), (_, b) in zip(x, y, strict=True))
            for x, y in zip(mine, theirs, strict=True)
        ):
            told.append(f"{key}: {mine[:3]}, not {theirs[:3]}")
    return told[:6]


def _by_exact(rows: Sequence[Row], near: Mapping[str, float]) -> dict[str, list[list[tuple[str, Any]]]]:
    """The inexact values of rows, by all other values of theirs."""
    found: dict[str, list[list[tuple[str, Any]]]] = defaultdict(list)
    for row in rows:
        inexact = {name for name, value in row.items() if isinstance(value, float) or name in near}
        exact = json.dumps([repr(canonical(value)) for name, value in row.items() if name not in inexact])
        found[exact].append([(name, row[name]) for name in row if name in inexact])
    return found


def _rank(row: Sequence[tuple[str, Any]]) -> list[tuple[bool, Any]]:
    return [(value is None, rank(float(value)) if value is not None else 0) for _, value in row]


def _alike(one: Any, other: Any, off: float) -> bool:
    if one is None or other is None or math.isnan(one) or math.isnan(other):
        return one is other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))
    return math.isclose(one, other, rel_tol=1e-9 + off, abs_tol=1 if off > 0.01 else 1e-9 + off)
