"""The job spec: what to compute, from where, routed how. Reviewed YAML, never a form."""

from __future__ import annotations

import datetime as dt
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from skewless.document import Document, Frozen, one_line, sentence_of, shortened, unmet
from skewless.errors import SpecError
from skewless.spec.cron import cron_fault
from skewless.spec.input import ColumnName, Input, InputFormat, Map, PathText, refuse_large
from skewless.spec.override import apply_override
from skewless.spec.part import Part, PartUnit, part_at
from skewless.spec.plain_yaml import LONGEST_TEXT, read_yaml
from skewless.spec.routing import PolicyName, Routing
from skewless.spec.sharing import Sharing

__all__ = [
    "AggregateCall", "Expectation", "Input", "InputFormat", "JobSpec", "Map", "Output", "PolicyName", "Quality",
    "Routing", "Schedule", "Sharing", "SparkSizing", "load_spec", "parse_spec",
]  # fmt: skip

_NAME = r"[A-Za-z][A-Za-z0-9_]{0,99}"


def _valid_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError("should be at most 100 letters, digits and underscores, a letter first")
    return name


Name = Annotated[str, AfterValidator(_valid_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})]


#: Which part a run computes, seen from the moment it is for.
_Covered = Literal["previous", "current"] | Annotated[int, Field(strict=True, ge=-10_000, le=10_000)]


class Schedule(Frozen):
    """When Airflow starts the job: by cron expressions, or after assets; with neither, only by hand.

    And which part of the input a run computes: a day, or an hour.
    """

    cron: str | tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description="Cron expression, five fields, or a list of them.",
        examples=["0 2 * * *", ["0 2 * * 1-5", "0 6 * * 0"]],
    )
    asset: str | tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description="Instead of cron: the name of an asset, such as skewless:NAME, after each event of which the job "
        "runs; of several, after an event of each.",
        examples=["skewless:clicks_by_page"],
    )
    timezone: str = Field(
        default="UTC",
        description="IANA time zone the cron expression is read in; days and hours are those of this zone.",
        examples=["Europe/Zurich"],
    )
    day: _Covered | None = Field(
        default=None,
        description="The day that a run computes: previous, the day before the run; current, the day of the run; or an "
        "offset in days, where previous is -1. By default previous where the DAG has a schedule, else current.",
        examples=["previous", -2],
    )
    hour: _Covered | None = Field(
        default=None,
        description="Instead of day: a run computes an hour. previous, current, or an offset in hours; {hour} in paths "
        "is that hour.",
        examples=["previous", -2],
    )
    start: dt.date = Field(
        default=dt.date(2026, 1, 1),
        description="The schedule computes no day before this one.",
        examples=[dt.date(2026, 3, 1)],
    )

    @field_validator("cron")
    @classmethod
    def _known_cron(cls, cron: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for expression in _several(cron):
            fault = cron_fault(expression)
            if fault:
                raise unmet("a cron expression that Airflow takes", f"{shortened(expression)}: {fault}"[:200])
        return cron

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # an OSError is a folder of zones, or too long a name
            raise ValueError("should be an IANA time zone like 'Europe/Zurich'") from None
        return zone

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.cron is not None and self.asset is not None:
            raise unmet("either cron or asset", "both")
        if self.day is not None and self.hour is not None:
            raise unmet("either day or hour", "both")
        return self

    @property
    def unit(self) -> PartUnit:
        """What a run computes: a day, or an hour."""
        return "day" if self.hour is None else "hour"

    @property
    def offset(self) -> int:
        """The part that a run computes, counted from the part of its moment: -1 for the one before."""
        covered = self.hour if self.day is None else self.day
        if covered is None:
            covered = "previous" if self.crons or self.assets else "current"
        return {"previous": -1, "current": 0}[covered] if isinstance(covered, str) else covered

    def of_dag(self, *, scheduled: bool) -> Schedule:
        """This schedule in a DAG of somebody's own, whose cron expression or asset it does not know."""
        by_default = self.day is None and self.hour is None
        return self.model_copy(update={"day": "previous"}) if by_default and scheduled else self

    def part_of(self, moment: dt.datetime) -> Part:
        """The part that a run of a moment computes."""
        return part_at(moment, self.timezone, self.unit, self.offset)

    @property
    def crons(self) -> tuple[str, ...]:
        """All cron expressions."""
        return _several(self.cron)

    @property
    def assets(self) -> tuple[str, ...]:
        """The names of all assets that are waited for."""
        return _several(self.asset)


def _several(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else given


_CallOption = bool | int | float | str | list[float] | None


def _short_call(schema: dict[str, Any]) -> None:
    """Tell editors of what a validator takes: a name alone, or options beside the function."""
    whole = {"type": schema.pop("type"), "properties": schema.pop("properties"), "required": schema.pop("required")}
    options = whole["properties"]["options"]["additionalProperties"]
    schema.pop("additionalProperties")
    schema["anyOf"] = [{"type": "string", "minLength": 1}, {**whole, "additionalProperties": options}]


class AggregateCall(Frozen):
    """One aggregate: a function by its registered name, a column, and the function's options.

    `clicks: count` is short for `clicks: {function: count}`, and options stand beside the function:
    `{function: approx_percentile, column: ms, percentage: 0.99}`.
    """

    model_config = ConfigDict(json_schema_extra=_short_call)

    function: str = Field(
        min_length=1,
        description="Name of a native or of a registered Python aggregate.",
        examples=["approx_percentile"],
    )
    column: str | None = Field(
        default=None, description="The column it is of; `count` needs none, and then counts rows.", examples=["ms"]
    )
    options: dict[str, _CallOption] = Field(
        default_factory=dict,
        description="Options of the function; they may stand beside it instead.",
        examples=[{"percentages": [0.5, 0.99]}],
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, raw: Any) -> Any:
        """``count`` means ``{function: count}``; further names of the long form are options."""
        if isinstance(raw, str):
            return {"function": raw}
        if isinstance(raw, dict) and "function" in raw and "options" not in raw:
            options = {name: value for name, value in raw.items() if name not in ("function", "column")}
            named = {name: raw[name] for name in ("function", "column") if name in raw}
            return {**named, "options": options}
        return raw

    @field_validator("options", mode="before")
    @classmethod
    def _plain_options(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        for name, value in options.items():
            numbers = isinstance(value, list) and all(isinstance(one, int | float) for one in value)
            if not numbers and not isinstance(value, bool | int | float | str | None):
                raise unmet(
                    "a text, a number, true, false, null or a list of numbers", f"{name}: {shortened(value)}"[:120]
                )
            refuse_large(name, value)
        return options


#: As Java reads it, from a mebibyte up.
MEMORY = r"^[1-9][0-9]{0,6}[mgMG]$"


class SparkSizing(Frozen):
    """How large the Spark application of a step is; what is not given is left to the connection and to Spark."""

    driver_memory: str | None = Field(
        default=None, pattern=MEMORY, description="Memory of the driver, like 2g.", examples=["4g"]
    )
    executor_memory: str | None = Field(
        default=None, pattern=MEMORY, description="Memory of each executor, like 4g; local Spark has none.",
        examples=["8g"],
    )  # fmt: skip
    executor_cores: int | None = Field(default=None, ge=1, le=1024, description="Cores of each executor.", examples=[4])
    cores: int | None = Field(
        default=None, ge=1, le=100_000, description="Cores of all executors together, on a standalone cluster.",
        examples=[64],
    )  # fmt: skip


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
    files: int = Field(default=4, ge=1, le=10_000, description="Files of the published result.", examples=[16])
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


_KeyInput = ColumnName | Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=16)]


class JobSpec(Document):
    """What to compute. Strict: a field that is not listed here is an error."""

    version: int = Field(
        default=1,
        description="Version of the form of specs; this release reads version 1.",
        examples=[1],
        json_schema_extra={"const": 1},
    )
    name: Name = Field(description="Name of the job, and of its DAG.", examples=["clicks_by_page"])
    description: str = Field(
        default="", description="What the job is for, as Airflow shows it.", examples=["Clicks of each page and day."]
    )
    schedule: Schedule = Field(
        default=Schedule(), description="When Airflow starts it.", examples=[{"cron": "0 2 * * *"}]
    )
    input: Input = Field(description="The rows to aggregate.", examples=[{"path": "/lake/clicks/{date}"}])
    map: Map | None = Field(
        default=None,
        description="What is made of each row before it is aggregated; by default the row as it is.",
        examples=[{"select": ["explode(pages) AS page"]}],
    )
    key: tuple[ColumnName, ...] = Field(
        min_length=1,
        max_length=16,
        description="The column, or the columns, by which rows are grouped.",
        examples=["page", ["site", "page"]],
    )
    aggregates: dict[Name, AggregateCall] = Field(
        min_length=1,
        max_length=100,
        description="Columns of the result by their names, each with what it is; with the key columns and `date`, "
        "they differ in more than their case.",
        examples=[{"clicks": "count", "visitors": {"function": "approx_count_distinct", "column": "visitor"}}],
        json_schema_extra={"additionalProperties": False},
    )
    engine: Literal["auto", "combine", "staged"] = Field(
        default="auto",
        description="combine: states are made where rows are read, and merged; staged: rows are routed to their "
        "tasks; auto takes what costs less.",
        examples=["staged"],
    )
    state: Literal["merge", "forward"] | None = Field(
        default=None,
        description="forward: a key lives in one task, sees its rows in the order of the input, and its state moves "
        "with it; merge: its states are merged at the end; by default as the aggregates need it.",
        examples=["forward"],
    )
    state_limit_mb: int = Field(
        default=256,
        ge=1,
        le=2047,
        description="A state of a Python aggregate may be so large, in MiB; more ends the run.",
        examples=[1024],
    )
    mode: Literal["run", "observe"] = Field(
        default="run",
        description="observe: the policy decides and its decisions are recorded, but rows go as with policy static.",
        examples=["observe"],
    )
    routing: Routing = Field(
        default=Routing(), description="How rows are spread.", examples=[{"policy": "adaptive", "reducers": 64}]
    )
    spark: SparkSizing = Field(
        default=SparkSizing(), description="How large its Spark applications are.", examples=[{"driver_memory": "4g"}]
    )
    sharing: Sharing = Field(
        default=Sharing(),
        description="Leases: of the steps, and of virtual tasks where several Spark clusters share a run.",
        examples=[{"store": "redis://leases:6379/0"}],
    )
    quality: Quality = Field(
        default=Quality(), description="What must hold of the result.", examples=[{"expectations": []}]
    )
    output: Output = Field(
        description="Where the result is published.", examples=[{"path": "/lake/marts/clicks_by_page"}]
    )

    @property
    def enacted(self) -> JobSpec:
        """The spec whose plans are enacted: this one, or in mode ``observe`` the same one with policy ``static``."""
        if self.mode == "run":
            return self
        routing = self.routing.model_copy(update={"policy": "static"})
        return self.model_copy(update={"mode": "run", "routing": routing})

    @field_validator("key", mode="before", json_schema_input_type=_KeyInput)
    @classmethod
    def _one_key(cls, key: Any) -> Any:
        return (key,) if isinstance(key, str) else key

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        """Result columns must differ without regard to case, as Spark sees them."""
        taken = {"date": "the partition column of the published result"}
        if self.schedule.unit == "hour":
            taken["hour"] = taken["date"]
        roles = [(column, "a key column") for column in self.key]
        roles += [(name, "an aggregate") for name in self.aggregates]
        for name, role in roles:
            if name.lower() in taken:
                clash = f"{name!r} twice: as {taken[name.lower()]} and as {role}"
                raise unmet("result columns whose names differ, in more than their case", clash)
            taken[name.lower()] = role
        return self


def load_spec(path: str | Path, overrides: tuple[str, ...] = ()) -> JobSpec:
    """Read a spec file and apply ``path.to.field=value`` overrides, the value read as YAML.

    Raises:
        SpecError: the file is missing, is no YAML mapping, or breaks the schema.
    """
    where = f"spec {path}"
    try:
        with Path(path).open(encoding="utf-8") as opened:
            text = opened.read(LONGEST_TEXT + 1)
    except (OSError, ValueError) as err:  # a ValueError is text that is no UTF-8, or a path with NUL
        reason = getattr(err, "strerror", None) or type(err).__name__
        raise SpecError(where, "a readable YAML file", reason, "check the path") from None
    return parse_spec(text, where, overrides)


def parse_spec(text: str, where: str = "spec", overrides: tuple[str, ...] = ()) -> JobSpec:
    """Like ``load_spec``, from the text itself."""
    try:
        raw = read_yaml(text)
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        spot = f" at line {mark.line + 1}" if mark else ""
        problem = one_line(str(getattr(err, "problem", None) or getattr(err, "reason", None) or "bad syntax"), 200)
        raise SpecError(where, "valid YAML", f"{problem}{spot}") from None
    except (ValueError, RecursionError) as err:  # PyYAML's own: a 30th of February, ten thousand brackets
        came = one_line(str(err), 200)
        raise SpecError(where, "values that YAML can hold", came, "quote what is no date or number") from None
    if not isinstance(raw, dict):
        raise SpecError(where, "a YAML mapping", "nothing" if raw is None else f"a {type(raw).__name__}")
    for override in overrides:
        apply_override(raw, override)
    version = raw.get("version", JobSpec.VERSION)
    if version != JobSpec.VERSION:
        raise SpecError(where, f"job spec version {JobSpec.VERSION}", f"version {shortened(version)}")
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None
