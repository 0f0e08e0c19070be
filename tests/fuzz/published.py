"""What is published, read by the libraries of each kind of output, and the rows of a result compared with an oracle."""

import base64
import datetime as dt
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import orc

from skewless.run.directory import RunDirectory
from skewless_cli.certify import certificate_of
from skewless_cli.check_certificate import Audit
from skewless_lake.catalogs import open_catalog
from tests.fuzz.aggregates import Call
from tests.fuzz.files import published_csv
from tests.fuzz.values import Row, canonical, rank

Key = tuple[Any, ...]
_TICK, _EPOCH = dt.timedelta(microseconds=1), dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a time on a wall


def alarms(run: RunDirectory) -> list[str]:
    """What the checker of a certificate says is wrong with a run that has published."""
    return [line for line in Audit(certificate_of(run).sealed(), 3, 0).lines if line.startswith("WRONG")]


def grouped(rows: Sequence[Row], key: Sequence[str]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(canonical(row[name]) for name in key)].append(row)
    return found


def differences(
    result: Sequence[Row], rows: Mapping[Key, Sequence[Row]], key: Sequence[str], calls: Mapping[str, Call]
) -> list[str]:
    """What is wrong with a result, in words; nothing if it is right."""
    found: dict[Key, Row] = {}
    told = []
    for row in result:
        of = tuple(canonical(row[name]) for name in key)
        if of in found:
            told.append(f"key {of!r} comes twice")
        found[of] = row
    told += [f"key {of!r} is missing ({len(rows[of])} rows)" for of in rows if of not in found]
    told += [f"key {of!r} is in no row" for of in found if of not in rows]
    for of, row in found.items():
        for name, one in calls.items():
            if of in rows and not one.holds(row[name], rows[of]):
                told.append(f"{name} {one.call} of key {of!r} is {row[name]!r:.500} of {len(rows[of])} rows")
    return told


def read_published(section: Mapping[str, Any], root: Path, day: dt.date) -> list[Row]:
    """The published rows of a day, in the order of the files; of CSV and JSON as those have values."""
    kind = section.get("format", "parquet")
    if kind == "delta":
        table = DeltaTable(str(root / section["path"])).to_pyarrow_table(filters=[("date", "=", day)])
        return _without_day(table)
    if kind == "iceberg":
        catalog, _, name = section["path"].partition(".")
        table = open_catalog(catalog, str(root)).load_table(name).scan(row_filter=f"date = '{day}'").to_arrow()
        return _without_day(table)
    folder = root / section["path"] / f"date={day}"
    paths = sorted(path for path in folder.glob("*") if path.suffix == f".{kind}")
    if kind == "csv":
        rows: list[Row] = []
        for path in paths:
            header, *lines = published_csv(path.read_bytes())
            rows += [dict(zip(map(str, header), line, strict=True)) for line in lines]
        return rows
    if kind == "json":
        return [json.loads(line) for path in paths for line in path.read_text().split("\n") if line]
    tables = [orc.read_table(path) if kind == "orc" else pq.ParquetFile(path).read() for path in paths]
    return [row for table in tables for row in table.to_pylist()]


def _without_day(table: pa.Table) -> list[Row]:
    return table.drop_columns(["date"]).to_pylist()


def published_differences(section: Mapping[str, Any], published: Sequence[Row], result: Sequence[Row]) -> list[str]:
    """Whether the published rows are those of the result, as far as the format tells values apart."""
    kind = section.get("format", "parquet")
    own = {"csv": _as_text, "json": _as_json, "orc": _as_orc}.get(kind, canonical)
    form = _as_text if kind == "csv" else own
    ours, right = (
        sorted(repr([(name, one(value)) for name, value in row.items()]) for row in rows)
        for rows, one in ((published, own), (result, form))
    )
    if ours == right:
        return []
    only = [one for one in ours if one not in right][:2], [one for one in right if one not in ours][:2]
    return [
        f"published {len(ours)} rows, result {len(right)}",
        f"only published {only[0]!r:.600}; only in the result {only[1]!r:.600}",
    ]


def _as_orc(value: Any) -> Any:
    """A value as ORC has it: Spark writes a time without a zone as its microseconds, which only Spark turns back."""
    if isinstance(value, dict):
        return tuple((name, _as_orc(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(_as_orc(one) for one in value)
    found = canonical(value)
    return (found - _EPOCH) // _TICK if isinstance(found, dt.datetime) else found


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return _as_time(value)
    if value is None:
        return None
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text) if isinstance(value, float) else text
    number = re.fullmatch(r"-?\d+(\.\d+([eE][+-]?\d+)?|[eE][+-]?\d+)", text)
    return _digits(float(text)) if number else text


def _digits(value: float) -> str:
    """A number by the digits that a float of four bytes is written with, which are fewer than Python has for it.

    Rounded to a number of digits, it and what is read of its text may end on two sides of a half.
    """
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return repr(single if np.isfinite(single) and (single or not value) else value)


def _as_time(value: dt.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_as_json(one) for one in value)
    if isinstance(value, dict):
        return tuple((name, _as_json(one)) for name, one in value.items())
    if isinstance(value, bool) or value is None:
        return value
    whole = isinstance(value, Decimal) and not value.as_tuple().exponent
    if (isinstance(value, float | Decimal) and not whole) or value in {"Infinity", "-Infinity", "NaN"}:
        return _digits(float(value) + 0.0)
    if isinstance(value, dt.datetime):
        return _as_time(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def sort_faults(rows: Sequence[Row], order: Sequence[str]) -> list[str]:
    """Whether rows are in an order as a spec gives it: null comes first, or last if descending."""
    for one, other in pairwise(rows):
        for text in order:
            name, _, way = text.partition(" ")
            a, b = ((row[name] is not None, rank(row[name]) if row[name] is not None else 0) for row in (one, other))
            if a != b:
                if (a > b) != (way == "desc"):
                    return [f"{name} {one[name]!r} is before {other[name]!r} with sort {list(order)}"]
                break
    return []
