"""Rows as files of every format and layout, by other writers than ours."""

import bz2
import gzip
import io
import json
import math
import random
import shutil
import tempfile
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow import orc
from pyspark.sql import SparkSession

from skewless_spark.session.versions import local_frame
from tests.fuzz.values import KINDS, Kind, Row, spelled

#: The kinds of columns that each format can have, and that its readers in Spark agree on.
_ALL = tuple(KINDS)
_OF_TEXT = tuple(name for name in KINDS if name not in {"binary", "wall", "old date"})
KINDS_OF: dict[str, tuple[str, ...]] = {
    "parquet": _ALL,
    "orc": tuple(name for name in _ALL if name not in {"old date", "wall", "timestamp"}),
    "csv": tuple(name for name in _OF_TEXT if name != "lines"),
    "json": _OF_TEXT,
    "text": ("text",),
    "delta": tuple(name for name in _ALL if name != "old date"),
    "iceberg": tuple(name for name in _ALL if name not in {"old date", "tinyint", "smallint"}),
}
COMPRESSIONS = {"": lambda content: content, ".gz": gzip.compress, ".bz2": bz2.compress,
                ".zst": zstandard.ZstdCompressor().compress}  # fmt: skip


def arrow_table(rows: Sequence[Row], columns: Mapping[str, Kind]) -> pa.Table:
    return pa.table(
        [pa.array([row[name] for row in rows], kind.arrow) for name, kind in columns.items()],
        schema=pa.schema([(name, kind.arrow) for name, kind in columns.items()]),
    )


def write_file(
    folder: Path, stem: str, rows: Sequence[Row], columns: Mapping[str, Kind], how: Mapping[str, Any]
) -> str:
    """Write rows as one file.

    Args:
        stem: the name of the file, without what tells its format.
        how: format and what else of it is left to chance, as ``draw_writing`` drew it.

    Returns:
        Its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kind, chance = how["format"], random.Random(f"{how['seed']} {stem}")
    name = f"{stem}.{'txt' if kind == 'text' else kind}"
    if kind == "parquet":
        _write_parquet(folder / name, arrow_table(rows, columns), how, chance)
    elif kind == "orc":
        _write_orc(folder / name, arrow_table(rows, columns), chance)
    else:
        suffix = how["compression"]
        name += suffix
        content = {"csv": _csv, "json": _json, "text": _plain}[kind](rows, columns, how, chance)
        (folder / name).write_bytes(COMPRESSIONS[suffix](content))
    return name


def _write_orc(path: Path, table: pa.Table, chance: random.Random) -> None:
    codec = chance.choice(["uncompressed", "zlib", "snappy", "zstd"])
    if chance.random() < 0.5:
        orc.write_table(table, path, compression=codec)
        return
    rows = local_frame(SparkSession.active(), table).coalesce(1)
    with tempfile.TemporaryDirectory() as folder:
        rows.write.mode("overwrite").option("compression", codec).orc(folder)
        (written,) = Path(folder).glob("*.orc")
        shutil.copyfile(written, path)


def _write_parquet(path: Path, table: pa.Table, how: Mapping[str, Any], chance: random.Random) -> None:
    writer = how["writer"]
    if writer == "duckdb" and table.num_rows:
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("rows", table)
            database.execute(f"COPY rows TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
        return
    if writer == "polars" and table.num_rows:
        pl.DataFrame(table).write_parquet(path, row_group_size=max(1, table.num_rows // 3))
        return
    pq.write_table(
        table,
        path,
        row_group_size=chance.choice([1, 7, 100, 1 << 20]) if table.num_rows < 400 else chance.choice([100, 1 << 20]),
        compression=chance.choice(["none", "snappy", "zstd", "gzip"]),
        use_dictionary=chance.random() < 0.5,
        version=chance.choice(["1.0", "2.4", "2.6"]) if how["old"] else "2.6",
        data_page_version=chance.choice(["1.0", "2.0"]),
        write_page_index=chance.random() < 0.3,
        store_schema=chance.random() < 0.7,
    )


def _csv(rows: Sequence[Row], columns: Mapping[str, Kind], how: Mapping[str, Any], chance: random.Random) -> bytes:
    sign, end = how["delimiter"], how["end"]
    lines = [sign.join(_quoted(name, sign, chance) for name in columns)] if how["header"] else []
    lines += [
        sign.join("" if row[name] is None else _field(row[name], sign, chance) for name in columns) for row in rows
    ]
    # A line of one null field would be empty: no reader can tell it from no line.
    return _joined(lines, end, chance)


def _joined(lines: Sequence[str], end: str, chance: random.Random) -> bytes:
    last = end if chance.random() < 0.8 else ""
    return (end.join(lines) + last).encode() if lines else b""


def _field(value: Any, sign: str, chance: random.Random) -> str:
    text = spelled(value)
    return _quoted(text, sign, chance) if isinstance(value, str) else text


def _quoted(text: str, sign: str, chance: random.Random) -> str:
    plain = text and sign not in text and '"' not in text and text.strip() == text
    return text if plain and chance.random() < 0.8 else '"' + text.replace('"', '""') + '"'


def _json(rows: Sequence[Row], columns: Mapping[str, Kind], how: Mapping[str, Any], chance: random.Random) -> bytes:
    lines = []
    for row in rows:
        fields = [
            f"{json.dumps(name)}: {_json_value(row[name], chance, ascii_only=how['ascii'])}"
            for name in columns
            if row[name] is not None or chance.random() < 0.5
        ]
        chance.shuffle(fields)
        lines.append("{" + ", ".join(fields) + "}")
    return _joined(lines, how["end"], chance)


def _json_value(value: Any, chance: random.Random, *, ascii_only: bool) -> str:
    if isinstance(value, float) and not math.isfinite(value) and chance.random() < 0.5:
        return f'"{json.dumps(value)}"'  # as Spark writes numbers that JSON lacks; other writers leave the quotes out
    plain = value is None or isinstance(value, bool | int | float)
    text = json.dumps(value if plain else spelled(value), ensure_ascii=ascii_only)
    return json.loads(text) if type(value).__name__ == "Decimal" else text


def _plain(rows: Sequence[Row], columns: Mapping[str, Kind], how: Mapping[str, Any], chance: random.Random) -> bytes:
    (name,) = columns
    return _joined([row[name] for row in rows], how["end"], chance) if rows else b""


def folder_value(value: Any) -> str:
    """A value of a partition column as the name of its folder has it, by Hive's rule."""
    return "__HIVE_DEFAULT_PARTITION__" if value is None else urllib.parse.quote(spelled(value), safe=" äé日-_.")


def draw_writing(chance: random.Random, kind: str) -> dict[str, Any]:
    """How files of a format are written: what is left to chance of all files alike."""
    how: dict[str, Any] = {"format": kind, "seed": chance.randrange(1 << 30)}
    if kind == "parquet":
        how |= {"writer": chance.choice(["pyarrow", "pyarrow", "duckdb", "polars"]), "old": chance.random() < 0.2}
    if kind in {"csv", "json", "text"}:
        how |= {"compression": chance.choice(["", "", "", ".gz", ".bz2", ".zst"])}
        how |= {"end": "\n" if chance.random() < 0.8 else "\r\n"}
    if kind == "csv":
        how |= {"delimiter": chance.choice([",", ",", ";", "\t", "|"]), "header": chance.random() < 0.7}
    if kind == "json":
        how |= {"ascii": chance.random() < 0.5}
    return how


def published_csv(content: bytes) -> list[list[str | None]]:
    """The fields of a CSV file: an empty field is null, a quoted one is a text, in which a quote is doubled."""
    text, rows, row = io.StringIO(content.decode()).getvalue(), [], list[str | None]()
    at, field, quoted = 0, "", False
    while at < len(text):
        sign = text[at]
        if sign == '"' and not field and not quoted:
            at, quoted = at + 1, True
            while text[at] != '"' or text[at + 1] == '"':
                field, at = field + text[at], at + 1 + (text[at] == '"')
        elif sign in ",\n":
            row.append(field if field or quoted else None)
            field, quoted = "", False
            if sign == "\n":
                rows.append(row)
                row = []
        else:
            field += sign
        at += 1
    return rows
