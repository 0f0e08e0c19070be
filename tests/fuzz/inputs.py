"""Random inputs: columns, rows, and the files, folders or table that they are in."""

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake

from tests.fuzz.files import KINDS_OF, arrow_table, draw_writing, folder_value, write_file
from tests.fuzz.values import KINDS, Kind, Row
from tests.lake_tables import iceberg_table

DATE = dt.date(2026, 11, 20)
FORMATS = ("parquet",) * 6 + ("csv", "csv", "json", "json", "orc", "orc", "text", "delta", "iceberg")
ODD_NAMES = (
    "my key", "ключ", "sum", "a-b", "select", "Key", "ü", "x$y", "_id", "100", "n a'm\"e", "order", "null", "é%20",
)  # fmt: skip
#: What a partition column may be, so that its type follows from its folders.
_OF_FOLDERS = {
    "int": Kind("int", "int", KINDS["int"].arrow, lambda chance: chance.randint(-3, 30)),
    "text": Kind(
        "text", "string", KINDS["text"].arrow, lambda chance: chance.choice(["ch", "de at", "l'é", "a=b", "日", "a%b"])
    ),
    "date": KINDS["date"],
}


@dataclass
class Input:
    """An input that is written.

    Attributes:
        rows: its rows, in the order of the input if ``ordered``.
        told: how it was written, for the report of a failure.
    """

    section: dict[str, Any]
    columns: dict[str, Kind]
    rows: list[Row]
    ordered: bool
    told: dict[str, Any] = field(default_factory=dict)


def draw_columns(chance: random.Random, kinds: Sequence[str], *, odd: bool) -> dict[str, Kind]:
    names = [f"c{number}" for number in range(chance.randint(2, 6))]
    if odd and chance.random() < 0.15:
        names[: len(names) // 2] = chance.sample(ODD_NAMES, len(names) // 2)
    return {name: KINDS[chance.choice(kinds)] for name in names}


def draw_rows(chance: random.Random, columns: Mapping[str, Kind], count: int) -> list[Row]:
    """Rows whose values repeat: of some columns few values, of some many, some skewed, some with many nulls."""
    drawn: dict[str, list[Any]] = {}
    for name, kind in columns.items():
        missing = chance.choice([0.0, 0.0, 0.1, 0.1, 0.6, 1.0 if chance.random() < 0.1 else 0.0])
        if chance.random() < 0.6:
            pool = [kind.draw(chance) for _ in range(chance.choice([1, 2, 5, 12, 40]))]
            values = [pool[min(int(chance.paretovariate(0.7)) - 1, len(pool) - 1)] for _ in range(count)]
        else:
            values = [kind.draw(chance) for _ in range(count)]
        drawn[name] = [None if chance.random() < missing else value for value in values]
    return [dict(zip(drawn, values, strict=True)) for values in zip(*drawn.values(), strict=True)]


def draw_input(chance: random.Random, folder: Path, *, formats: Sequence[str] = FORMATS) -> Input:
    kind = chance.choice(formats)
    count = chance.choice((0, 1, 2, 5, 20, 20, 100, 100, 300, 300, 1000, 2500))
    if kind == "text":
        columns = {"value": KINDS["text"]}
    else:
        columns = draw_columns(chance, KINDS_OF[kind], odd=kind not in {"delta", "iceberg"})
    if kind in {"delta", "iceberg"}:
        return _table(chance, folder, kind, columns, draw_rows(chance, columns, count))
    return _files(chance, folder, kind, columns, count)


def section_of(how: Mapping[str, Any], columns: Mapping[str, Kind], path: str) -> dict[str, Any]:
    section: dict[str, Any] = {"path": path}
    if how["format"] != "parquet":
        section["format"] = how["format"]
    if how["format"] == "csv":
        options = {"sep": how["delimiter"]} if how["delimiter"] != "," else {}
        options |= {} if how["header"] else {"header": False}
        section |= {"options": options} if options else {}
    if how["format"] in {"csv", "json"}:
        section["columns"] = {name: kind.spark for name, kind in columns.items()}
    return section


def _files(chance: random.Random, folder: Path, kind: str, columns: dict[str, Kind], count: int) -> Input:
    how = draw_writing(chance, kind)
    top = folder / chance.choice(["in", "in", "in put", "ein%20gang", "été", "a+b", "x,y"])
    layout = chance.choice(["folder", "folder", "folder", "file", "glob", "date", "partitions", "partitions"])
    partitions: dict[str, Kind] = {}
    if layout == "partitions":
        partitions = {
            f"p{number}": _OF_FOLDERS[chance.choice(list(_OF_FOLDERS))] for number in range(chance.choice([1, 1, 2]))
        }
    place = top / f"date={DATE}" if layout == "date" else top
    files = 1 if layout == "file" else chance.choice([1, 2, 3, 5, 9])
    padded = kind != "text" and count and chance.random() < 0.15
    written = dict(columns)
    if padded:
        # Wide enough for files that are cut.
        written["padding"] = KINDS["text"]
    rows: list[tuple[str, list[Row]]] = []
    sure = {name: one.draw(chance) for name, one in partitions.items()}
    for number in range(files):
        share = count if files == 1 else chance.choice([0, 1, count // files, count // files, 2 * count // files])
        drawn = draw_rows(chance, columns, share)
        if kind == "csv" and (len(written) == 1 or how["delimiter"] == "\t"):
            drawn = [row for row in drawn if {*row.values()} != {None}]  # Spark passes over lines of white space
        values = {
            name: None if number and chance.random() < 0.1 else one.draw(chance) for name, one in partitions.items()
        }
        values = values if number else sure
        at = place.joinpath(*(f"{name}={folder_value(value)}" for name, value in values.items()))
        full = [row | {"padding": "".join(chance.choices("abcdefgh", k=600))} for row in drawn] if padded else drawn
        if kind == "text":
            full = [row for row in drawn if row["value"] is not None]
            # Spark takes a mark at the begin of a file for none of its text.
            drawn = [{"value": one["value"].removeprefix("" if line else "\ufeff")} for line, one in enumerate(full)]
        name = write_file(at, f"{chance.choice('abcz_é')[:1].replace('_', 'A')}-{number}", full, written, how)
        rows.append((str(at / name), [row | values for row in drawn]))
    path = {"file": rows[0][0], "glob": str(place / "*-*"), "date": str(top / "date={date}")}.get(layout, str(place))
    if chance.random() < 0.3 and layout != "file":
        (place / "_SUCCESS").touch()
        (place / f".hidden.{kind}").write_bytes(b"not data")
    section = section_of(how, written, path)
    in_order = [row for _, of_file in sorted(rows) for row in of_file]
    told = {**how, "layout": layout, "files": {name.removeprefix(str(folder)): len(of) for name, of in sorted(rows)}}
    if padded and chance.random() < 0.7:
        told["cut_bytes"] = 65_536
    return Input(section, columns | partitions, in_order, ordered=True, told=told)


def _table(chance: random.Random, folder: Path, kind: str, columns: dict[str, Kind], rows: list[Row]) -> Input:
    pieces = chance.choice([1, 2, 4])
    step = -(-len(rows) // pieces) or 1
    tables = [arrow_table(rows[at : at + step], columns) for at in range(0, len(rows), step)]
    tables = tables or [arrow_table([], columns)]
    if kind == "delta":
        by = [name for name, one in columns.items() if one.name in {"int", "date", "boolean", "bigint"}]
        parts = chance.sample(by, 1) if by and chance.random() < 0.4 and len(columns) > 1 else None
        for one in tables:
            write_deltalake(str(folder / "table"), one, mode="append", partition_by=parts)
        deleted = next((name for name, one in columns.items() if one.name in {"int", "bigint", "smallint"}), None)
        told: dict[str, Any] = {"format": kind, "pieces": len(tables), "partition_by": parts}
        if deleted and rows and chance.random() < 0.4:
            DeltaTable(str(folder / "table")).delete(f"{deleted} > 20")
            rows = [row for row in rows if row[deleted] is None or row[deleted] <= 20]
            told["deleted"] = f"{deleted} > 20"
        return Input({"format": "delta", "path": "table"}, columns, rows, ordered=False, told=told)
    table = iceberg_table(folder, tables[0].schema, name="rows")
    for one in tables:
        table.append(one)
    return Input(
        {"format": "iceberg", "path": "local.db.rows"},
        columns,
        rows,
        ordered=False,
        told={"format": kind, "pieces": len(tables)},
    )
