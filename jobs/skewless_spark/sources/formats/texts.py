"""What the driver looks at in texts before Spark reads them: headers of CSV, fields of JSON, the length of a line."""

import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import zstandard
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from skewless.documents.job import Source, Unit
from skewless.errors import InputError, SpecError, first_line
from skewless.spec.input import COMPRESSED
from skewless_spark.sources.formats.column_types import EXACT
from skewless_spark.sources.formats.input_files import open_file, other_format, quoted

#: The number of files that are sampled for the length of a line, and the bytes of each sample, at most 5 % of a large
#: input.
SAMPLED_FILES, LEAST_SAMPLE, LARGEST_SAMPLE = 8, 16 << 10, 256 << 10
SAMPLED_PART = 0.05
#: Endings of compressed files that Spark takes for what they are not, cuts, or reads only with further libraries.
_UNREAD = (".zstd", ".xz", ".lzma", ".zip", ".7z", ".rar", ".br", ".z", ".lz4", ".lzo", ".snappy", ".sz", ".deflate")
_MARK = "\ufeff"


def refuse_unread(path: str) -> None:
    """Refuse a compressed text that Spark would take for something else."""
    if path.lower().endswith(_UNREAD):
        known = f"a text that is plain or ends in {', '.join(COMPRESSED)}"
        raise InputError(f"input file {path}", known, "another ending", "compress it anew")


def sample_of(path: str, length: int) -> bytes:
    """The first lines of a file, about ``length`` bytes; whole lines if there is a line end."""
    with readable(path), open_file(path) as opened:
        raw = opened.read(length)
        while b"\n" not in raw and b"\r" not in raw and (more := opened.read(length)):
            raw += more
    if foreign := other_format(raw, "csv", "json"):
        raise InputError(f"input file {path}", "text", *foreign)
    end = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    return raw[:end] if len(raw) >= length and end else raw


def decoded(raw: bytes, options: Mapping[str, str]) -> str:
    """A text in the encoding that the options say, without the mark at its beginning."""
    encoding = options.get("encoding", "UTF-8")
    try:
        return raw.decode(encoding, errors="replace").removeprefix(_MARK)
    except LookupError:
        known = "a character set, as ISO-8859-1"
        raise SpecError("spec, field options.encoding", known, repr(encoding)) from None


def first_rows(path: str, options: Mapping[str, str]) -> list[list[str]]:
    """The first rows of a CSV that are neither empty nor comments.

    Spark compares the first one with the names that it is given, so that none is taken for another one.
    """
    text = decoded(sample_of(path, LEAST_SAMPLE), options)
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")
    sep = {"\\t": "\t"}.get(given := options.get("sep", ","), given)
    ends = options.get("lineSep")  # an empty one is refused by Spark
    lines: Iterator[str] = iter(text.split(ends) if ends else io.StringIO(text, None))
    comment = options.get("comment")
    lines = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    if len(sep) != 1 or len(quote) != 1:  # csv knows neither longer delimiters nor texts without quotes
        if not sep:
            raise SpecError("spec, field options.sep", "a delimiter", "an empty text")
        return [line.rstrip("\n").split(sep) for line in islice(lines, _ROWS)]
    dialect: dict[str, Any] = {"escapechar": escape} if len(escape) == 1 and escape != quote else {}
    try:
        return list(islice(csv.reader(lines, delimiter=sep, quotechar=quote, **dialect), _ROWS))
    except csv.Error as err:
        raise InputError(f"input file {path}, line 1", "a header", str(err)[:200], _BARE) from None


#: By so many rows a title above the header is told from it.
_ROWS = 50
_BARE = "or say options: {header: false}"


def names_in(path: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The column names in the header of a CSV; none in an empty file.

    Raises:
        InputError: a name is empty, or occurs twice.
    """
    rows = first_rows(path, options)
    names = rows[0] if rows else []
    fields, alike = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    if len(names) == 1 < fields and alike > len(rows) / 2 and not re.search(r"[,;|\t]", names[0]):
        required = f"a header of {fields} names, as most lines have {fields} fields"
        raise InputError(f"input file {path}, line 1", required, repr(names[0])[:100], "take the lines above it away")
    if "true" in (options.get(one, "").lower() for one in ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")):
        names = [name.strip() for name in names]
    odd = next((name for name in names if names.count(name) > 1 or not name), None)
    if odd is not None:
        came = f"{odd!r} twice" if odd else "an empty one among them"
        raise InputError(f"input file {path}, line 1", "a header of different names", came, _BARE)
    if "\ufffd" in "".join(names) and "encoding" not in options:
        raise InputError(f"input file {path}, line 1", "a header in UTF-8", "other bytes", ENCODING)
    return tuple(names)


#: What to do where bytes are no UTF-8.
ENCODING = "say options: {encoding: ...}, as ISO-8859-1"


def json_types(spark: SparkSession, path: str, sample: bytes, options: Mapping[str, str]) -> dict[str, str]:
    """The Spark SQL types of the fields of JSON, as Spark finds them in some lines, or in a whole file of many lines.

    Raises:
        InputError: a line is no JSON object.
    """
    try:
        if options.get("multiLine", "").lower() == "true":
            from skewless_spark.sources.unit_reading import scanned_files  # noqa: PLC0415  # which reads texts, too

            found = scanned_files(spark, "json", None, [path], options).schema
            return {one.name: type_text(one.dataType) for one in found}
        end = re.escape(options["lineSep"]) if "lineSep" in options else "[\r\n]"
        lines = [line for line in re.split(end, decoded(sample, options).replace(_MARK, "")) if line.strip()]
        if not lines:
            return {}
        # A row that is made of constants needs no Spark job.
        listed = spark.sql("VALUES 1").select(F.schema_of_json(F.lit("[" + ",\n".join(lines) + "\n]"), dict(options)))
        kind = spark.createDataFrame(cast("list[Row]", []), f"found {listed.collect()[0][0]}").schema["found"].dataType
    except (PySparkException, Py4JJavaError) as err:
        raise InputError(f"input file {path}", "a JSON object in each line", first_line(
            err.java_exception.getMessage() if isinstance(err, Py4JJavaError) else err),
            "say options: {multiLine: true}, if objects span lines or are items of a list") from None  # fmt: skip
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        raise InputError(f"input file {path}", "a JSON object in each line", f"values of type {type_text(kind)}")
    return {one.name: type_text(one.dataType) for one in kind.elementType}


#: A number that Spark takes without a locale: it passes over commas, wherever they stand.
_WITHOUT_LOCALE = r"^[-+]?(\d{1,3}(,\d{3})+|\d*)(\.\d*)?([eE][-+]?\d+)?$"


def require_declared_types(spark: SparkSession, source: Source, unit: Unit, where: str) -> None:
    """Refuse a declared type that values at the beginning of a file do not have, as Spark parses each of them."""
    from skewless_spark.sources.unit_reading import scanned_files  # noqa: PLC0415  # which reads texts, too

    typed = {name: kind for name, kind in source.columns.items() if kind != "string" and name in source.reads}
    options = {name: value for name, value in source.options.items() if name not in {"header", "mode"}}
    if source.format == "csv":
        ddl = ", ".join(f"{quoted(name)} string" for name in unit.header or source.columns)
        rows = scanned_files(spark, "csv", ddl, [unit.path], source.options)
        raw = {name: F.col(quoted(name)) for name in typed}
        alone = {**options, "sep": "\1", "quote": ""}
        values = {name: F.from_csv(raw[name], f"v {kind}", alone)["v"] for name, kind in typed.items()}
    else:
        rows = scanned_files(spark, "text", None, [unit.path])
        raw = {name: F.from_json("value", f"{quoted(name)} string", options)[name] for name in typed}
        values = {name: F.from_json("value", f"{quoted(name)} {kind}", options)[name] for name, kind in typed.items()}
    odd = {name: raw[name].isNotNull() & values[name].isNull() for name in typed}
    for name, kind in typed.items():
        if kind.startswith("decimal") and source.format == "csv" and "locale" not in options:
            odd[name] |= raw[name].contains(",") & ~raw[name].rlike(_WITHOUT_LOCALE)
    try:
        firsts = [F.first(F.when(odd[name], raw[name]), ignorenulls=True) for name in typed]
        found = rows.limit(1_000).agg(*firsts).collect()[0]
    except (PySparkException, Py4JJavaError) as err:
        if "DATETIME_PATTERN" not in str(err):
            return  # the run tells what else is wrong with the file
        hint = "d is the day of the month, M the month, y the year, as in dd.MM.yyyy"
        raise SpecError(f"{where}, options of the input", "patterns of Spark", first_line(err), hint) from None
    for (name, kind), value in zip(typed.items(), found, strict=True):
        if value is not None:
            came = repr(value)[:100]
            raise InputError(f"input file {unit.path}, column {name!r}", f"a value of type {kind}", came,
                             _what_reads(value, name, kind))  # fmt: skip


def _what_reads(value: str, name: str, kind: str) -> str:
    if kind == "date" and re.search(r"\d\.\d", value):
        return "say options: {dateFormat: dd.MM.yyyy}"
    if not re.search(r"\d,\d", value):
        return "declare a string, and convert it in map.select"
    decimal = kind if kind.startswith("decimal") else "decimal(18,2)"
    plain = f"CAST(replace(replace({quoted(name)}, '.', ''), ',', '.') AS {decimal})"
    return f"declare a {decimal}, with options: {{locale: de}}, or a string, and {plain} in map.select"


def type_text(kind: DataType) -> str:
    """A type in Spark SQL, with the names of fields quoted where that is needed."""
    if isinstance(kind, StructType):
        fields = (f"{one.name if EXACT.fullmatch(one.name) else quoted(one.name)}:{type_text(one.dataType)}"
                  for one in kind)  # fmt: skip
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return kind.simpleString()


@contextmanager
def readable(path: str) -> Iterator[None]:
    """An ``InputError`` if a file cannot be read."""
    try:
        yield
    except (OSError, EOFError, ValueError, zlib.error, zstandard.ZstdError) as err:
        raise InputError(f"input file {path}", "a readable file", first_line(err), "remove or rewrite it") from None
