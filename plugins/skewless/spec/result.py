"""What must hold of a result, and where it is published."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, Literal

from pydantic import Field, field_validator

from skewless.document import Frozen, shortened, unmet
from skewless.spec.input import PathText, refuse_large


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


class Verify(Frozen):
    """A sample of keys that is computed from all rows of the window each night, whatever states are kept."""

    keys: int = Field(
        ge=1,
        le=1_000_000,
        description="About so many keys, other ones for each part; it costs a read of the whole window.",
        examples=[1000],
    )


class Output(Frozen):
    """Where the result is published: `path/date=YYYY-MM-DD/part-*`, or `path/date=YYYY-MM-DD/hour=HH/part-*` for hours.

    Replaced versions are kept for some time in a sibling of the folder, `.NAME.skewless`.
    """

    path: PathText = Field(
        min_length=1,
        description="A folder; relative paths start at the data root, and stay below it; {date} is the day "
        "that the run computes.",
        examples=["/lake/marts/clicks_by_page"],
    )
    format: Literal["parquet", "orc", "csv", "json"] = Field(
        default="parquet", description="What the files are; csv has a header.", examples=["orc"]
    )
    files: int = Field(default=4, ge=1, le=10_000, description="Files of the published result, at most.", examples=[16])
    grace_hours: float = Field(
        default=24,
        ge=0,
        le=8760,
        description="Hours that a replaced version is kept beside the folder, for readers that still use it and for "
        "going back to it.",
        examples=[72],
    )
    allow_gap: bool = Field(
        default=False,
        description="Publish also on a file system that cannot exchange two folders at once (NFS, say): a day that is "
        "published again is then absent for an instant.",
        examples=[True],
    )
