"""What a job reads: files or a table."""

import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from skewless.document import Tagged, one_of, shortened, unmet
from skewless.errors import nearest

ColumnName = Annotated[str, Field(min_length=1)]
#: Our own columns have this prefix wherever they stand beside columns of an input, none of which may have it.
OWN_PREFIX = "__skewless_"
#: No file system takes a longer path.
_LONGEST_PATH = 4096


def _plain_path(path: str) -> str:
    if len(path) > _LONGEST_PATH:
        raise unmet(f"a path of at most {_LONGEST_PATH:,} characters", f"{len(path):,}")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        raise ValueError("should be a path without control characters")
    if ".." in re.split(r"[/\\]", path):
        raise ValueError("should be a path without a step up ('..')")
    return path


PathText = Annotated[str, AfterValidator(_plain_path)]


def refuse_large(name: object, value: object) -> None:
    """Refuse a whole number that neither Spark nor JSON's readers can hold."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, int) and not -(1 << 63) <= one < 1 << 63:
            raise unmet("whole numbers of at most 64 bits", f"{name}: {shortened(one)}"[:120])


#: Of files, and of tables: of Iceberg and Delta, of which a run reads one snapshot, and those that Spark knows.
FileFormat = Literal["parquet", "orc", "csv", "json", "text"]
#: The name endings of compressed texts that Spark reads, in any case.
COMPRESSED = (".gz", ".bz2", ".zst")


#: Options of Spark's own readers, by format (Spark 4.1, "Data Sources"): it passes over names that it does not know.
_OF_TEXTS = (
    "columnNameOfCorruptRecord", "dateFormat", "enableDateTimeParsingFallback", "encoding", "lineSep", "locale", "mode",
    "multiLine", "timeZone", "timestampFormat", "timestampNTZFormat",
)  # fmt: skip
OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": (
        *_OF_TEXTS, "charToEscapeQuoteEscaping", "columnPruning", "comment", "emptyValue", "escape", "header",
        "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "maxCharsPerColumn", "maxColumns", "nanValue",
        "negativeInf", "nullValue", "positiveInf", "quote", "sep", "unescapedQuoteHandling",
    ),
    "json": (
        *_OF_TEXTS, "allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers",
        "allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames",
        "dropFieldIfAllNull", "inferTimestamp", "prefersDecimal", "primitivesAsString", "useUnsafeRow",
    ),
    "text": ("lineSep", "wholetext"),
}  # fmt: skip
#: Options that say which files are read, or what may be wrong with them: a run reads just the files that it has pinned.
_PINNED = ("path", "paths", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "basePath",
           "ignoreCorruptFiles", "ignoreMissingFiles", "mergeSchema")  # fmt: skip
_MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
#: Options that would have Spark look for types: a run reads the types that it has pinned.
_TYPED = ("inferSchema", "samplingRatio", "prefersDate", "enforceSchema", "schema")


class TableTraits(NamedTuple):
    """What a spec says of tables of a format; what is done with them is in ``skewless_lake.formats``."""

    named: bool = False
    """Whether a path is ``catalog.namespace.table``, and no folder."""
    state: str = "version"
    """What the states of a table are called, of which a run reads one."""


#: The formats of tables with states of their own, by their names in specs.
TABLES: dict[str, TableTraits] = {"iceberg": TableTraits(named=True, state="snapshot"), "delta": TableTraits()}
TableName = Annotated[str, one_of(TABLES)]
_FILES = get_args(FileFormat)
_InputFormat = Annotated[
    str, one_of(_FILES, TABLES, ("catalog",)), WithJsonSchema({"enum": [*_FILES, *TABLES, "catalog"], "type": "string"})
]
_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]


def is_named(kind: str) -> bool:
    """Whether a format is one of tables whose paths are ``catalog.namespace.table``."""
    return kind in TABLES and TABLES[kind].named


#: What holds unless options say otherwise. A quoted empty text stays apart from an empty field, which is null: Spark
#: takes for null what equals ``nullValue``, and for the value of an empty field this one.
_DEFAULTS = {
    "csv": {"header": "true", "mode": "FAILFAST", "timeZone": "UTC", "escape": '"', "nullValue": "\0skewless\0"},
    "json": {"mode": "FAILFAST", "timeZone": "UTC"},
}  # fmt: skip


def _spellings(kind: str) -> dict[str, str]:
    known = {name.lower(): name for name in OPTIONS.get(kind, ())}
    return {**known, "delimiter": "sep", "charset": "encoding"} if "sep" in known else known


class Input(Tagged):
    """The rows to aggregate: files, or a table that is made of files: of Spark's catalog, of Iceberg or of Delta."""

    TAG = WORD = "format"
    FIELDS_OF: ClassVar = {
        **dict.fromkeys(("parquet", "orc"), ("parts", "columns", "schema")),
        "csv": ("parts", "options", "columns", "schema"),
        "json": ("parts", "options", "columns"),
        "text": ("parts", "options", "columns"),
        **dict.fromkeys(TABLES, ("at", "parts")),
        "catalog": (),
    }

    format: _InputFormat = Field(default="parquet", examples=["csv"])
    """What the files are, or which kind of table; catalog is a table of files that Spark knows."""
    path: PathText = Field(min_length=1, examples=["/lake/clicks/{date:%Y/%m/%d}", "local.lake.clicks"])
    """A file, a folder or a glob; of delta, the table's folder; of iceberg, catalog.namespace.table; of catalog, the
    name that Spark knows. Relative paths start at the data root, and stay below it; {date} is the day that the run
    computes, {hour} its hour. The Iceberg catalog local is in the data root; all others are configured as pyiceberg
    says."""
    at: Literal["latest", "{date}"] | _Number = Field(default="latest", examples=["{date}", 42])
    """Which snapshot or version of the table is read; a number is its id, and {date} stands for the last one that was
    committed before the end of the day that the run computes, in UTC."""
    parts: str | None = Field(default=None, min_length=1, examples=["date"])
    """With a window: the partition column whose values, days like 2026-01-31, are the parts; by default the path itself
    names the part, by {date}. A table needs it; in Iceberg it may be a column of times that partitions the table by day
    or by hour."""
    options: dict[str, str | bool | int | float] | None = Field(
        default=None,
        min_length=1,
        examples=[{"sep": ";", "encoding": "ISO-8859-1", "multiLine": True, "dateFormat": "dd.MM.yyyy"}],
    )
    """Options of Spark's own reader of csv, json or text, as Spark documents them; a csv has a header by default,
    quotes within quotes are doubled, and what does not parse ends the run."""
    columns: dict[ColumnName, str] | None = Field(
        default=None, min_length=1, examples=[{"ms": "bigint", "at": "timestamp", "store": "string"}]
    )
    """Spark SQL type of columns of the files or of their folders; by default files and folders tell it. All columns in
    order where a csv has no header."""
    missing_columns: Literal["fail", "evolve"] = Field(default="fail", alias="schema", examples=["evolve"])
    """Whether a file without a column that is read is refused, or has null there."""
    as_of: Literal["run", "night"] = Field(default="run", exclude_if=lambda as_of: as_of == "run", examples=["night"])
    """Of a lookup, with a window. run: each part is joined to the lookup as it is now, so a changed one makes all parts
    anew; night: a part keeps what it was joined to."""

    @field_validator("path")
    @classmethod
    def _name_of_table(cls, path: str, info: ValidationInfo) -> str:
        named = path.count(".") >= 2 and all(part.strip() for part in path.split("."))
        if is_named(info.data.get("format", "")) and not named:
            raise unmet("catalog.namespace.table, like local.lake.clicks", repr(path)[:80])
        return path

    @field_validator("options")
    @classmethod
    def _of_its_reader(cls, options: dict[str, Any] | None, info: ValidationInfo) -> dict[str, Any] | None:
        if (kind := info.data.get("format", "")) not in OPTIONS:  # which is refused as a whole
            return options
        known, named = _spellings(kind), set[str]()
        for name in options or {}:
            if name.lower() in map(str.lower, _PINNED):
                raise unmet("options that do not change which files are read", f"{name}; name the files in path")
            if name.lower() in map(str.lower, _TYPED):
                raise unmet("options that do not change the types", f"{name}; say types in columns")
            if name.lower() not in known:
                raise unmet("options of Spark's reader", f"{name!r}; {nearest(name, known.values())}")
            if name.lower() == "mode" and str((options or {})[name]).upper() not in _MODES:  # Spark would be permissive
                raise unmet(f"a mode of {', '.join(_MODES)}", repr((options or {})[name]))
            if known[name.lower()] in named:
                raise unmet("each option once", f"{known[name.lower()]!r} twice")
            named.add(known[name.lower()])
        return options

    @model_validator(mode="after")
    def _named_columns(self) -> Self:
        if self.format == "csv" and not self.header and self.columns is None:
            raise unmet("columns for a csv without header", "none")
        if self.format == "csv" and not self.header and self.missing_columns == "evolve":
            raise unmet("schema: evolve only with a header", "header: false")
        return self

    @property
    def reader_options(self) -> dict[str, str]:
        """The options as Spark takes them, by their names there, with our defaults."""
        known = _spellings(self.format)
        texts = {
            known[name.lower()]: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (self.options or {}).items()
        }
        return {**_DEFAULTS.get(self.format, {}), **texts}

    @property
    def header(self) -> bool:
        """Of a csv, whether the first line of each file names its columns."""
        return self.reader_options.get("header", "false").lower() == "true"

    @property
    def named(self) -> bool:
        """Whether its path is the name of a table."""
        return self.format == "catalog" or is_named(self.format)

    @property
    def pinned(self) -> bool:
        """Whether it is a table with snapshots of its own, of which a run reads one."""
        return self.format in TABLES
