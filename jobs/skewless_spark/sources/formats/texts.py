"""What the driver looks at in texts before Spark reads them: headers of CSV, fields of JSON, the length of a line."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import zstandard
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from skewless.errors import InputError, SpecError
from skewless_spark.sources.formats.column_types import EXACT
from skewless_spark.sources.formats.input_files import COMPRESSED, open_file, quoted

#: The number of files that are sampled for the length of a line, and the bytes of each sample, at most 5 % of a large
#: input.
SAMPLED_FILES, LEAST_SAMPLE, LARGEST_SAMPLE = 8, 16 << 10, 256 << 10
_SAMPLED_PART = 0.05
#: Endings of compressed files that Spark takes for what they are not, cuts, or reads only with further libraries.
_UNREAD = (".zstd", ".xz", ".lzma", ".zip", ".7z", ".rar", ".br", ".z", ".lz4", ".lzo", ".snappy", ".sz", ".deflate")
#: How a refusal names an ending of a line within a text, which Spark's lines do not have.
_MARK = "\ufeff"


def refuse_unread(path: str) -> None:
    """Refuse a compressed text that Spark would take for something else."""
    if path.lower().endswith(_UNREAD):
        known = f"a text that is plain or ends in {', '.join(COMPRESSED)}"
        raise InputError(f"input file {path}", known, "another ending", "compress it anew")


def sample_length(sizes: Sequence[int]) -> int:
    """The bytes of a sample of one file."""
    return min(LARGEST_SAMPLE, max(LEAST_SAMPLE, int(sum(sizes) * _SAMPLED_PART / SAMPLED_FILES)))


def sample_of(path: str, length: int) -> bytes:
    """The first lines of a file, about ``length`` bytes; whole lines if there is a line end."""
    with readable(path), open_file(path) as opened:
        raw = opened.read(length)
        while b"\n" not in raw and b"\r" not in raw and (more := opened.read(length)):
            raw += more
    end = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    return raw[:end] if len(raw) >= length and end else raw


def decoded(raw: bytes, options: Mapping[str, str]) -> str:
    """A text in the encoding that the options say, without the mark at its beginning."""
    encoding = options.get("encoding", "UTF-8")
    try:
        return raw.decode(encoding, errors="replace").removeprefix(_MARK)
    except LookupError:
        known = "a character set, as ISO-8859-1"
        raise SpecError("spec, field input.options.encoding", known, repr(encoding)) from None


def first_row(path: str, options: Mapping[str, str]) -> list[str]:
    """The first row of a CSV that is neither empty nor a comment; empty if there is none.

    Spark compares it with the names that it is given, so that none is taken for another one.
    """
    text = decoded(sample_of(path, LEAST_SAMPLE), options)
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")
    sep = {"\\t": "\t"}.get(given := options.get("sep", ","), given)
    lines: Iterator[str] = iter(text.split(options["lineSep"]) if "lineSep" in options else io.StringIO(text, None))
    comment = options.get("comment")
    lines = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    if len(sep) != 1 or len(quote) != 1:  # csv knows neither longer delimiters nor texts without quotes
        return next(lines, "").rstrip("\n").split(sep) if text else []
    dialect: dict[str, Any] = {} if escape == quote else {"escapechar": escape}
    try:
        return next(csv.reader(lines, delimiter=sep, quotechar=quote, **dialect), [])
    except csv.Error as err:
        raise InputError(f"input file {path}, line 1", "a header", str(err)[:200], _BARE) from None


_BARE = "or say options: {header: false}"


def names_in(path: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The column names in the header of a CSV; none in an empty file.

    Raises:
        InputError: a name is empty, or occurs twice.
    """
    names = first_row(path, options)
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
        lines = [line for line in decoded(sample, options).replace(_MARK, "").splitlines() if line.strip()]
        if not lines:
            return {}
        # A row that is made of constants needs no Spark job.
        listed = spark.sql("VALUES 1").select(F.schema_of_json(F.lit("[" + ",\n".join(lines) + "\n]"), dict(options)))
        kind = DataType.fromDDL(str(listed.collect()[0][0]))
    except (PySparkException, Py4JJavaError) as err:
        raise InputError(f"input file {path}", "a JSON object in each line", _first_line(err)) from None
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        raise InputError(f"input file {path}", "a JSON object in each line", f"values of type {type_text(kind)}")
    return {one.name: type_text(one.dataType) for one in kind.elementType}


def _first_line(err: Exception) -> str:
    text = str(err.java_exception.getMessage()) if isinstance(err, Py4JJavaError) else str(err)
    return next((line.strip()[:200] for line in text.splitlines() if line.strip()), "others")


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
        raise InputError(f"input file {path}", "a readable file", str(err)[:200], "remove or rewrite it") from None
