"""What a job reads: files or a table, and what is made of each row before it is aggregated."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from skewless.document import Frozen, shortened, unmet

ColumnName = Annotated[str, Field(min_length=1)]
#: Our own columns have this prefix wherever they stand beside columns of an input, none of which may have it.
OWN_PREFIX = "__skewless_"
#: No file system takes a longer path.
_LONGEST_PATH = 4096


def _plain_path(path: str) -> str:
    """Refuse what leads elsewhere than it seems to, and what no file system can have."""
    if len(path) > _LONGEST_PATH:
        raise unmet(f"a path of at most {_LONGEST_PATH:,} characters", f"{len(path):,}")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        raise ValueError("should be a path without control characters")
    if ".." in re.split(r"[/\\]", path):
        raise ValueError("should be a path without a step up ('..')")
    return path


PathText = Annotated[str, AfterValidator(_plain_path)]


def _table_name(name: str) -> str:
    """Refuse a name that no catalog can have a table of."""
    _plain_path(name)
    if name.count(".") < 2 or not all(part.strip() for part in name.split(".")):
        raise unmet("catalog.namespace.table, like local.lake.clicks", repr(name)[:80])
    return name


def refuse_large(name: object, value: object) -> None:
    """Refuse a whole number that neither Spark nor JSON's readers can hold."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, int) and not -(1 << 63) <= one < 1 << 63:
            raise unmet("whole numbers of at most 64 bits", f"{name}: {shortened(one)}"[:120])


InputFormat = Literal["parquet", "orc", "csv", "json", "text"]
#: The formats that each option is of, beside those of all.
_OPTIONS_OF = {"header": ("csv",), "delimiter": ("csv",), "schema": ("parquet", "orc", "csv")}


#: Just one of these fields says where the rows are.
_PLACES = ("path", "table", "iceberg", "delta")
#: What a table's own metadata tells, and its spec therefore may not.
_OF_FILES = ("format", "header", "delimiter", "columns", "schema")
_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]


class Input(Frozen):
    """The rows to aggregate: files, or a table that is made of files: of Spark's catalog, of Iceberg or of Delta."""

    model_config = ConfigDict(serialize_by_alias=True)

    path: PathText | None = Field(
        default=None,
        min_length=1,
        description="A file, a folder or a glob; relative paths start at the data root, and stay below it; {date} is "
        "the day that the run computes, {hour} its hour.",
        examples=["/lake/clicks/{date:%Y/%m/%d}"],
    )
    table: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of a path: a table that Spark knows. Of path, table, iceberg and delta, one is given.",
        examples=["lake.clicks"],
    )
    iceberg: Annotated[str, AfterValidator(_table_name)] | None = Field(
        default=None,
        description="Instead of a path: an Iceberg table, as catalog.namespace.table. The catalog local is in the data "
        "root; all others are configured as pyiceberg says.",
        examples=["local.lake.clicks"],
    )
    snapshot: Literal["latest", "{date}"] | _Number | None = Field(
        default=None,
        description="iceberg: which snapshot is read, by default the latest one; a number is its id, and {date} stands "
        "for the last one that was committed before the end of the day that the run computes, in UTC.",
        examples=["{date}"],
    )
    delta: PathText | None = Field(
        default=None,
        min_length=1,
        description="Instead of a path: the folder of a Delta table, which is written like a path.",
        examples=["/lake/clicks"],
    )
    version: Literal["latest", "{date}"] | _Number | None = Field(
        default=None,
        description="delta: which version is read, by default the latest one; {date} as with snapshot.",
        examples=[42],
    )
    parts: str | None = Field(
        default=None,
        min_length=1,
        description="Where states are kept: the partition column whose values, days like 2026-01-31, are the parts; by "
        "default the path itself names the part, by {date}. A table needs it; in Iceberg it may be a column of times "
        "that partitions the table by day or by hour.",
        examples=["date"],
    )
    format: InputFormat = Field(
        default="parquet", description="What the files are; of a table Spark knows it.", examples=["csv"]
    )
    header: bool | None = Field(
        default=None,
        description="csv: the first line of each file names its columns; by default it does.",
        examples=[False],
    )
    delimiter: str | None = Field(
        default=None, description="csv: one character, or '\\t'; by default a comma.", examples=[";"]
    )
    columns: dict[ColumnName, str] | None = Field(
        default=None,
        min_length=1,
        description="Spark SQL type of columns of the files or of their folders; by default files and folders tell "
        "it. All columns in order where a csv has no header.",
        examples=[{"ms": "bigint", "at": "timestamp", "store": "string"}],
    )
    missing_columns: Literal["fail", "evolve"] = Field(
        default="fail",
        alias="schema",
        description="parquet, orc, csv: whether a file without a column that is read is refused, or has null there.",
        examples=["evolve"],
    )
    cut_bytes: int = Field(
        default=64 << 20,
        ge=1 << 16,
        le=1 << 40,
        description="A larger file is cut into pieces of about so many bytes; smaller ones where files are few.",
        examples=[128 << 20],
    )

    @field_validator("delimiter")
    @classmethod
    def _one_sign(cls, delimiter: str | None) -> str | None:
        if delimiter is None:
            return None
        sign = {"\\t": "\t"}.get(delimiter, delimiter)
        if len(sign) != 1 or not sign.isascii() or sign in '"\r\n':
            raise ValueError("should be one ASCII character, no quote and no line end")
        return sign

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = [name for name in _PLACES if getattr(self, name) is not None]
        if len(given) != 1:
            raise unmet(f"one of {', '.join(_PLACES[:-1])} and {_PLACES[-1]}", " and ".join(given) or "none of them")
        for option, place in (("snapshot", "iceberg"), ("version", "delta")):
            if getattr(self, option) is not None and given != [place]:
                raise unmet(f"{option} only with {place}", f"{option} with {given[0]}")
        fields = type(self).model_fields.items()
        told = {one.alias or name: getattr(self, name) for name, one in fields if getattr(self, name) != one.default}
        odd = next((name for name in _OF_FILES if name in told), None) if self.pinned else None
        if odd is not None:
            raise unmet(f"no {odd} with {given[0]}, whose metadata tells it", str(told[odd])[:40])
        for option, formats in _OPTIONS_OF.items():
            if option in told and (self.table is not None or self.format not in formats):
                what = "a table" if self.table is not None else f"format {self.format}"
                raise unmet(f"{option} only with format {' or '.join(formats)}", what)
        if self.columns is not None and self.table is not None:
            raise unmet("columns only with path", "a table")
        if self.format == "csv" and self.header is False and self.columns is None:
            raise unmet("columns for a csv without header", "none")
        if self.header is False and self.missing_columns == "evolve":
            raise unmet("schema: evolve only with a header", "header: false")
        return self

    @property
    def pinned(self) -> bool:
        """Whether it is a table with snapshots of its own, of which a run reads one."""
        return self.iceberg is not None or self.delta is not None


class States(Frozen):
    """The states that are kept of each part, so that a later run need not read the part again."""

    keep: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="States of so many parts are kept, at least those of the longest window; by default seven more "
        "than that, or with window: all those of all parts.",
        examples=[60],
    )
    path: PathText | None = Field(
        default=None,
        min_length=1,
        description="Where they are kept: a folder or a URL; by default beside the folder of the output.",
        examples=["/lake/states"],
    )


_MapOption = bool | int | float | str | list[str] | None


def _map_options(schema: dict[str, Any]) -> None:
    """Tell editors of what a validator takes: the options of a mapper, beside its name."""
    schema["additionalProperties"] = schema["properties"]["options"]["additionalProperties"]
    schema["if"] = {"not": {"required": ["mapper"]}}
    schema["then"] = {"propertyNames": {"enum": ["select", "where", "options"]}}


class Map(Frozen):
    """One row in, any number out, without state: a select list of Spark SQL, or a registered Python mapper.

    A mapper's options stand beside its name: `map: {mapper: tokens, column: value}`.
    """

    model_config = ConfigDict(json_schema_extra=_map_options)

    select: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Spark SQL expressions with names, over input columns.",
        examples=[["explode(split(tags, ',')) AS tag", "ms"]],
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="Only with select: which input rows it sees.",
        examples=["ms IS NOT NULL"],
    )
    mapper: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of select: the name of a registered Python mapper.",
        examples=["tokens"],
    )
    options: dict[str, _MapOption] = Field(
        default_factory=dict,
        description="Options of the mapper; they may stand beside its name instead.",
        examples=[{"column": "value"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _further_names_are_options(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and "mapper" in raw and "options" not in raw:
            own = {name: raw[name] for name in ("mapper", "select", "where") if name in raw}
            return {**own, "options": {name: value for name, value in raw.items() if name not in own}}
        return raw

    @field_validator("options")
    @classmethod
    def _small_options(cls, options: dict[str, _MapOption]) -> dict[str, _MapOption]:
        for name, value in options.items():
            refuse_large(name, value)
        return options

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.select is None) == (self.mapper is None):
            raise unmet("either select or mapper", "neither" if self.select is None else "both")
        if self.mapper is not None and self.where is not None:
            raise unmet("where only with select", "where with a mapper")
        if self.select is not None and self.options:
            raise unmet("options only with a mapper", "options with select")
        return self
