"""How an input lies there: what its files are, and the folders or file names in which it has its days."""

import csv
import datetime as dt
import io
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from skewless.errors import InputError
from skewless.run.folder import as_written, plain_path
from skewless.spec.input import COMPRESSED
from skewless_spark.sources.formats.input_files import find, open_file, open_input
from skewless_spark.sources.formats.texts import decoded, readable

#: Bytes of a file by which its format, its delimiter and the types of its columns are told.
_HEAD_BYTES = 1 << 20
_ENDINGS = {
    ".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json",
}  # fmt: skip
_MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"{": "json"}
_DELIMITERS = ",;\t|"
#: A day in a path: 2026-01-31, 20260131, 2026/01/31, year=2026/month=01/day=31.
_SIGNS = r"[-_.]?|/(?:\w+=)?"
_DAY = re.compile(rf"(?<!\d)((?:19|20)\d\d)({_SIGNS})(0[1-9]|1[0-2])({_SIGNS})(0[1-9]|[12]\d|3[01])(?!\d)")
_IDENTIFIER = re.compile(r"[^\W\d][\w .:/()%€$£#&'+-]*")
#: By so many rows the delimiter and the header are told.
_ROWS = 200


class Days(NamedTuple):
    """An input that has its days in its paths."""

    path: str
    """Of a day, as a spec has it, with ``{date}``."""
    last: dt.date


def located(path: str, root: str) -> str:
    """A path as a command has it, which starts in the current folder, as a spec has it: absolute, or below the root."""
    if is_table_name(path):
        return path
    path = plain_path(path)
    if "://" in path:
        return path.rstrip("/")
    here, below = Path(os.path.normpath(Path.cwd() / path)), Path(root).absolute()
    if Path(path).is_absolute():
        return str(here)
    if "://" not in root and here != below and here.is_relative_to(below):
        return here.relative_to(below).as_posix()
    exists = any(Path.cwd().glob(path)) if re.search(r"[*?\[]", path) else here.exists()
    return str(here) if exists else os.path.normpath(path)


def is_table_name(path: str) -> bool:
    """Whether it is the name of an Iceberg table, and no path."""
    return "/" not in path and path.count(".") >= 2 and not Path(path).exists()


def days_of(path: str, files: Sequence[str]) -> Days | None:
    """The days of an input, if each of its files is of one, by its folders or by its name.

    >>> days_of("/lake/clicks", ["/lake/clicks/date=2026-01-30/a.parquet", "/lake/clicks/date=2026-01-31/b.parquet"])
    Days(path='/lake/clicks/date={date}', last=datetime.date(2026, 1, 31))
    >>> days_of("/lake/20260131.csv", ["/lake/20260131.csv"]).path
    '/lake/{date:%Y%m%d}.csv'
    """
    begin = len(path.rstrip("/").rpartition("/")[0])
    matches = [match for match in (_DAY.search(file, begin) for file in files) if match is not None]
    if len(matches) < len(files) or not all(file.startswith(path) for file in files):  # a glob
        return None
    try:
        last = max(dt.date(*map(int, match.group(1, 3, 5))) for match in matches)
    except ValueError:  # the 31st of a shorter month: these digits are no days
        return None
    fields = {_field(match) for match in matches}
    paths = [
        f"{match.string[: match.start()]}{_field(match)}{match.string[match.end() :].partition('/')[0]}".split("/")
        for match in matches
    ]
    if len(fields) > 1 or len(set(map(len, paths))) > 1:
        return None
    return Days("/".join(_common(set(pieces)) for pieces in zip(*paths, strict=True)), last)


def _field(match: re.Match[str]) -> str:
    first, second = match[2], match[4]
    if "=" in first + second:
        return f"{{date:%Y}}{first}{{date:%m}}{second}{{date:%d}}"
    return "{date}" if first == second == "-" else f"{{date:%Y{first}%m{second}%d}}"


def _common(pieces: set[str]) -> str:
    """A piece of all paths, with a glob behind the name of a partition column or the day, where they differ."""
    if len(pieces) == 1:
        return pieces.pop()
    endings = {posixpath.splitext(piece)[1] for piece in pieces}
    begin = re.match(r".*[=}]|", posixpath.commonprefix([*pieces]))
    return f"{begin[0] if begin else ''}*{endings.pop() if len(endings) == 1 else ''}"


def format_of(path: str, files: Sequence[str]) -> str:
    """What the files of an input are, by their endings, or by how the first one begins."""
    if not files:
        raise InputError(f"input {path}", "files", "none", "name a file or a folder that has some")
    if any("/metadata/" in file and file.endswith(".metadata.json") for file in files):
        raise InputError(
            f"input {path}", "files, or a table by its name", "the folder of an Iceberg table",
            "name it as catalog.namespace.table",
        )  # fmt: skip
    name, ending = posixpath.splitext(files[0].lower())
    known = _ENDINGS.get(posixpath.splitext(name)[1] if ending in COMPRESSED else ending)
    if known is not None:
        return known
    start = head_of(files[0])[:64].lstrip()
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "csv")


def files_at(path: str) -> list[str]:
    """The data files at a path, spelled like it."""
    fs, _ = open_input(path)
    return [as_written(fs, path, file) for file in find(path)]


def head_of(path: str) -> bytes:
    """The first bytes of a file, decompressed; an ``InputError`` if it cannot be read."""
    with readable(path), open_file(path) as opened:
        return opened.read(_HEAD_BYTES)


def csv_fields(path: str) -> dict[str, Any]:
    """Fields of the section ``input`` for a CSV, by its beginning: encoding, delimiter, lines in fields, header."""
    raw = head_of(path)
    encoding = _encoding(raw)
    text = decoded(raw, {"encoding": encoding})
    if len(raw) == _HEAD_BYTES:
        text = text[: text.rfind("\n") + 1] or text
    if not text.strip():
        raise InputError(f"input file {path}", "lines of fields", "an empty file", "name another file")
    rows = {sign: [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=sign) if row][:_ROWS]
            for sign in _DELIMITERS}  # fmt: skip
    # The sign that cuts all rows into the same number of fields, the most; a comma if none does.
    fields = {sign: len(cut[0]) if len(set(map(len, cut))) == 1 else 0 for sign, cut in rows.items()}
    best = max(_DELIMITERS, key=lambda sign: fields[sign])
    sep = best if fields[best] > 1 else ","
    options: dict[str, Any] = {"sep": sep} if sep != "," else {}
    if encoding != "UTF-8":
        options["encoding"] = encoding
    if any("\n" in value or "\r" in value for row in rows[sep] for value in row):
        options["multiLine"] = True
    columns = {}
    if not _has_header(rows[sep]):
        options["header"] = False
        columns = {f"c{at + 1}": "string" for at in range(len(rows[sep][0]))}
    return {name: value for name, value in (("options", options), ("columns", columns)) if value}


def _encoding(raw: bytes) -> str:
    """By the mark at the beginning, or UTF-8 if all is; else the character set of western Europe."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    try:
        raw[: raw.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        return "windows-1252" if any(0x80 <= sign < 0xA0 for sign in raw) else "ISO-8859-1"
    return "UTF-8"


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row looks like names: words, each once, none of which is a value further down its column."""
    first, rest = rows[0], rows[1:]
    named = [name for name in first if name]  # a line that ends in a delimiter has a last field without a name
    names = bool(named) and all(map(_IDENTIFIER.fullmatch, named)) and len(set(first)) == len(first)
    values = [{row[at] for row in rest if at < len(row)} for at in range(len(first))]
    return names and not any(name and name in values[at] for at, name in enumerate(first))


class TextKind(NamedTuple):
    """A type that texts may be of, with the options of Spark's reader that it needs."""

    kind: str
    pattern: str
    options: Mapping[str, str] = MappingProxyType({})


_INTEGER = r"[+-]?(0|[1-9]\d{0,17})"
_TIME = r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?"
#: Numbers that begin with 0 are codes, and so texts. The first that fits counts.
TEXT_KINDS = (
    TextKind("bigint", _INTEGER),
    TextKind("double", r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"),
    TextKind("boolean", r"(?i:true|false)"),
    TextKind("date", r"\d{4}-\d\d-\d\d"),
    TextKind("timestamp", rf"\d{{4}}-\d\d-\d\d{_TIME}"),
    TextKind("date", r"\d\d\.\d\d\.\d{4}", {"dateFormat": "dd.MM.yyyy"}),
    TextKind("decimal(18,{scale})", r"[+-]?(\d{1,3}(\.\d{3})+|0|[1-9]\d*)(,\d{1,6})?", {"locale": "de"}),
)
#: In a file with such decimals 1.652 is no fraction.
GERMAN_NUMBER = TEXT_KINDS[-1]


def text_kind(texts: pa.ChunkedArray, kinds: Sequence[TextKind] = TEXT_KINDS) -> TextKind | None:
    """What all texts of a column are; None if that is just texts.

    >>> text_kind(pa.chunked_array([["2.652,19", "7", None]])).kind
    'decimal(18,2)'
    """
    filled = pc.filter(texts, pc.fill_null(pc.not_equal(texts, ""), fill_value=False))
    if not len(filled):
        return None
    found = next((one for one in kinds if pc.all(pc.match_substring_regex(filled, f"^({one.pattern})$")).as_py()), None)
    if found is None or "{scale}" not in found.kind:
        return found
    scales = pc.utf8_length(pc.replace_substring_regex(filled, r"^[^,]*,?", ""))
    return found._replace(kind=found.kind.format(scale=pc.max(scales).as_py()))
