"""Types of columns in Spark SQL and in Arrow, and their values from texts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from skewless.errors import SpecError
from skewless_spark.sources.formats.input_files import quoted

#: Assumed types for an input without files, which has no schema.
EMPTY_KEY_TYPE, EMPTY_COLUMN_TYPE = "string", "bigint"

#: The prefix of the type of a column that Spark cannot read, or that a job may not use.
UNSUPPORTED = "unsupported "


def by_name(columns: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The type of each column by its name; one that no job may use if several columns have the name."""
    found: dict[str, str] = {}
    for name, kind in columns:
        found[name] = f"{UNSUPPORTED}{kind}, of several columns with this name" if name in found else kind
    return found


def spark_type_of(kind: pa.DataType, physical: str = "") -> str:
    """The Spark SQL type as which Spark reads a Parquet column of an Arrow type.

    Args:
        physical: the physical type in the file. Spark reads INT96 as a timestamp, which Arrow takes for one without a
            zone.
    """
    kind = getattr(kind, "storage_type", kind)  # an extension, as JSON: to Spark it is what it is stored as
    if pa.types.is_dictionary(kind):
        found = spark_type_of(kind.value_type, physical)
    elif pa.types.is_decimal(kind) and kind.precision <= 38:  # Spark has no more digits
        found = f"decimal({kind.precision},{kind.scale})"
    elif pa.types.is_timestamp(kind):
        found = "timestamp" if kind.tz or physical == "INT96" else "timestamp_ntz"
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _nested("array", spark_type_of(kind.value_type, physical))
    elif pa.types.is_map(kind):
        found = _nested("map", spark_type_of(kind.key_type, physical), spark_type_of(kind.item_type, physical))
    elif pa.types.is_struct(kind) and kind.num_fields:
        fields = [kind.field(number) for number in range(kind.num_fields)]
        found = _nested("struct", *(f"{_named(one.name)}:{spark_type_of(one.type, physical)}" for one in fields))
    else:
        found = "binary" if pa.types.is_fixed_size_binary(kind) else _PLAIN_TYPES.get(str(kind), f"{UNSUPPORTED}{kind}")
    return found


def _nested(what: str, *inner: str) -> str:
    text = f"{what}<{','.join(inner)}>"
    return f"{UNSUPPORTED}{text.replace(UNSUPPORTED, '')}" if UNSUPPORTED in text else text


#: A name of a field that needs no quotes within a type.
EXACT = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _named(name: str) -> str:
    return name if EXACT.fullmatch(name) else quoted(name)


_PLAIN_TYPES = {
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    **dict.fromkeys((f"duration[{unit}]" for unit in ("s", "ms", "us", "ns")), "bigint"),
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)",
    "float": "float", "halffloat": "float", "double": "double", "bool": "boolean",
    "string": "string", "large_string": "string", "string_view": "string",
    "binary": "binary", "large_binary": "binary", "date32[day]": "date",
}  # fmt: skip

_ARROW_TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip

#: Synonyms of types in Spark SQL.
_SYNONYMS = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}

#: Its precision and its scale.
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def arrow_type_of(spark_type: str) -> pa.DataType:
    """The Arrow type in which Spark exchanges values of a Spark SQL type."""
    decimal = DECIMAL.fullmatch(spark_type)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    what, _, inner = spark_type.partition("<")
    if not inner:
        return _ARROW_TYPES[spark_type]
    parts = split_type(inner[:-1])
    if what == "struct":
        return pa.struct([(name, arrow_type_of(kind)) for name, kind in map(field_of, parts)])
    kinds = list(map(arrow_type_of, parts))
    return pa.map_(*kinds) if what == "map" else pa.list_(*kinds)


_PIECE = re.compile(r"`(?:[^`]|``)*`|[<>(),]|[^`<>(),]+")


def split_type(inner: str) -> list[str]:
    """What stands between the brackets of a type, cut at its own commas."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(inner):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def field_of(text: str) -> tuple[str, str]:
    """Name and type of a field of a struct, as ``split_type`` has it."""
    if text.startswith("`"):
        name = re.match(r"`((?:[^`]|``)*)`", text)
        return (name[1].replace("``", "`"), text[name.end() + 1 :]) if name else ("", text)
    name_, _, kind = text.partition(":")
    return name_, kind


def fields_within(types: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The fields of structs, by the names that a spec has for them, each with its way: column, field, field ...

    >>> fields_within({"user": "struct<id:string,at:struct<x:int>>"})
    {'user.id': ('user', 'id'), 'user.at': ('user', 'at'), 'user.at.x': ('user', 'at', 'x')}
    """
    found: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[tuple[str, ...], str]] = [((name,), kind) for name, kind in types.items()]
    while waiting:
        way, kind = waiting.pop(0)
        if kind.startswith("struct<"):
            inner = [((*way, name), inner) for name, inner in map(field_of, split_type(kind[len("struct<") : -1]))]
            found |= {".".join(one): one for one, _ in inner if ".".join(one) not in types}
            waiting += inner
    return found


def type_within(types: Mapping[str, str], way: Sequence[str]) -> str:
    """The type at the end of a way of ``fields_within``."""
    kind = types[way[0]]
    for name in way[1:]:
        kind = dict(map(field_of, split_type(kind[len("struct<") : -1])))[name]
    return kind


def declared_type(text: str, at: str, *, nested: bool) -> str:
    """A type as a spec writes it, in Spark SQL's own spelling.

    Raises:
        SpecError: it is not a type that a text can hold.
    """
    plain = re.sub(r"(`(?:[^`]|``)*`)|\s+", lambda piece: piece[1] or "", text)
    what, _, inner = plain.partition("<")
    what = _SYNONYMS.get(what.lower(), what.lower())
    if nested and inner.endswith(">") and what in {"array", "map", "struct"}:
        parts = [("", one) if what != "struct" else field_of(one) for one in split_type(inner[:-1])]
        kinds = [(_named(name), declared_type(kind, at, nested=True)) for name, kind in parts]
        return f"{what}<{','.join(f'{name}:{kind}' if what == 'struct' else kind for name, kind in kinds)}>"
    decimal = DECIMAL.fullmatch(what)
    good = not inner and what in _ARROW_TYPES and what != "binary"
    if not good and not (decimal and int(decimal[2]) <= int(decimal[1]) <= 38):
        known = ", ".join(sorted({*_ARROW_TYPES} - {"binary"}))
        raise SpecError(at, "a type that a text can hold", repr(text), f"these are {known} and decimal(p,s)")
    return what


_ZONED = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"


def cast_text(text: str | None, spark_type: str) -> pa.Scalar:
    """A text as a value of a type; None is null. A timestamp without a zone is in UTC.

    Raises:
        pa.ArrowInvalid: the text is not a value of the type.
    """
    kind = arrow_type_of(spark_type)
    if text is None or spark_type == "binary":
        return pa.scalar(text and text.encode(), kind)
    if spark_type.startswith("decimal"):  # Arrow's own cast wraps large numbers around (apache/arrow#49817)
        if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text, re.ASCII):
            raise pa.ArrowInvalid(f"no decimal: {text}")
        return pa.scalar(Decimal(text), kind)
    plain = spark_type == "timestamp" and not re.search(_ZONED, text)
    return pa.scalar(text).cast(pa.timestamp("us") if plain else kind).cast(kind)


_NUMBER = r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|NaN|-?Infinity"
_WRITTEN = dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "-?[0-9]+") | {
    "boolean": "(?i:true|false)", "float": _NUMBER, "double": _NUMBER,
}  # fmt: skip


def is_value(text: str, spark_type: str) -> bool:
    """Whether a text in the name of a folder is a value of a type to Spark, too: Arrow also takes 0x10, 1 and nan."""
    if not re.fullmatch(_WRITTEN.get(spark_type, ".*"), text, re.ASCII | re.DOTALL):
        return False
    try:
        cast_text(text, spark_type)
    except pa.ArrowInvalid:
        return False
    return True
