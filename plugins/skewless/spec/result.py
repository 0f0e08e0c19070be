"""What must hold of a result, and where it is published."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from skewless.document import Frozen, shortened, unmet
from skewless.spec.input import PINNED, PathText, refuse_large
from skewless.spec.tagged import Tagged


class Expectation(Frozen):
    """One Great Expectations expectation of the result's columns, by its snake-case type."""

    type: str = Field(
        pattern=r"^expect_[a-z0-9_]+$",
        description="Its name; what it takes is told by Great Expectations.",
        examples=["expect_column_values_to_be_between"],
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Its arguments.", examples=[{"column": "clicks", "min_value": 1}]
    )

    @field_validator("kwargs", mode="before")
    @classmethod
    def _plain_kwargs(cls, kwargs: Any) -> Any:
        """As the frozen job will hold them, so that what is read back is what was given: a date is a text there."""
        return _as_json(kwargs, "kwargs")


#: How deep lists and mappings may be nested in the arguments of an expectation.
_DEEPEST = 8


def _as_json(value: Any, name: str, depth: int = 0) -> Any:
    """A value of YAML as one of JSON."""
    if isinstance(value, dt.date):  # a datetime is one too
        return value.isoformat()
    if depth > _DEEPEST:
        raise unmet(f"lists and mappings at most {_DEEPEST} deep", f"deeper ones in {name}"[:120])
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(below, key, depth + 1) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(below, name, depth + 1) for below in value]
    finite = isinstance(value, float) and math.isfinite(value)
    if not finite and not isinstance(value, bool | int | str | None):
        raise unmet("texts, finite numbers, true, false, null, lists and mappings", f"{name}: {shortened(value)}"[:120])
    refuse_large(name, value)
    return value


class Quality(Frozen):
    """What must hold of the result, beside the ledger, before it is published."""

    expectations: tuple[Expectation, ...] = Field(
        default=(),
        description="All of them must hold, or nothing is published.",
        examples=[[{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "visitors"}}]],
    )
    freshness: str | None = Field(
        default=None, min_length=1,
        description="With a window: a column of the input, a timestamp or a date; the quality report has its "
        "greatest value in each part.",
        examples=["clicked_at"],
    )  # fmt: skip


class SortColumn(NamedTuple):
    """A column that a result is sorted by. As in Spark, null comes before all values, or after them if descending."""

    name: str
    descending: bool

    @classmethod
    def parse(cls, text: str) -> SortColumn:
        """What a spec says: the column, and perhaps ``desc`` or ``asc``."""
        found = re.fullmatch(r"(.*\S)\s+(asc|desc)", text.strip(), re.IGNORECASE | re.DOTALL)
        return cls(text.strip(), descending=False) if found is None else cls(found[1], found[2].lower() == "desc")


class Output(Tagged):
    """Where the result is published: a folder with a folder for each day, or a table with a partition for each day.

    In a folder it is `path/date=YYYY-MM-DD/part-*`, or `path/date=YYYY-MM-DD/hour=HH/part-*` for hours. Replaced
    versions are kept for some time in a sibling of the folder, `.NAME.skewless`. In a table, which is made on first
    use, the day is a column, and each publication is a snapshot.
    """

    TAG = WORD = "format"
    FIELDS_OF: ClassVar = {
        **dict.fromkeys(("parquet", "orc", "csv", "json"), ("grace_hours", "allow_gap")),
        **dict.fromkeys(PINNED, ("schema",)),
    }

    model_config = ConfigDict(serialize_by_alias=True)

    format: Literal["parquet", "orc", "csv", "json", "iceberg", "delta"] = Field(
        default="parquet",
        description="What the files of a folder are, or which kind of table; csv has a header, and a table has Parquet "
        "files.",
        examples=["orc"],
    )
    path: PathText = Field(
        min_length=1,
        description="A folder; of delta, the table's folder or URL; of iceberg, catalog.namespace.table, where the "
        "catalog local is at the data root, and others are those of pyiceberg's configuration. Relative paths start at "
        "the data root, and stay below it; {date} is the day that the run computes.",
        examples=["/lake/marts/clicks_by_page", "local.marts.clicks_by_page"],
    )
    partition: str = Field(
        default="date",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$",
        description="The column, a date, that says which day a row is of: of the folders, or of a table, which is "
        "partitioned by it.",
        examples=["day"],
    )
    columns: Literal["fail", "evolve"] = Field(
        default="fail", alias="schema",
        description="Whether a result with other columns than the table is refused, or adds its columns to the table.",
        examples=["evolve"],
    )  # fmt: skip
    files: int = Field(default=4, ge=1, le=10_000, description="Files of the published result, at most.", examples=[16])
    sort: tuple[str, ...] = Field(
        default=(), max_length=100,
        description="Columns of the result that it is sorted by, each perhaps with `desc`. Every file is sorted, and "
        "the files follow each other, so readers pass over files that cannot have what they look for. An Iceberg table "
        "that is made gets this sort order. It costs a second pass over the result.",
        examples=[["country desc"]],
    )  # fmt: skip
    grace_hours: float = Field(
        default=24, ge=0, le=8760,
        description="Hours that a replaced version is kept beside the folder, for readers that still use it and for "
        "going back to it.",
        examples=[72],
    )  # fmt: skip
    allow_gap: bool = Field(
        default=False,
        description="Publish also on a file system that cannot exchange two folders at once (NFS, say): a day that is "
        "published again is then absent for an instant.",
        examples=[True],
    )

    @field_validator("path")
    @classmethod
    def _name_of_table(cls, path: str, info: ValidationInfo) -> str:
        """Refuse what is not the name of an Iceberg table that every reader of tables can spell."""
        parts = path.split(".")
        named = len(parts) >= 3 and all(re.fullmatch(r"[A-Za-z0-9_]+", part) for part in parts)
        if info.data.get("format") == "iceberg" and not named:
            raise ValueError("should be catalog.namespace.table, of letters, digits and underscores")
        return path

    @property
    def order(self) -> tuple[SortColumn, ...]:
        """The columns that the result is sorted by."""
        return tuple(SortColumn.parse(text) for text in self.sort)

    @property
    def is_table(self) -> bool:
        """Whether the result is published in a table."""
        return self.format in PINNED

    @property
    def file_format(self) -> str:
        """What its files are."""
        return "parquet" if self.is_table else self.format
