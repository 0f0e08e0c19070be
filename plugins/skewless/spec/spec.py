"""The job spec: what to compute, from where, routed how. Reviewed YAML, never a form."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from skewless.document import Document, unmet
from skewless.errors import SpecError
from skewless.spec.aggregate_call import AggregateCall
from skewless.spec.clusters import Sharing, SparkSizing
from skewless.spec.input import ColumnName, Input, Map, States
from skewless.spec.part import refuse_shared_paths
from skewless.spec.result import Output, Quality, Verify
from skewless.spec.routing import Routing
from skewless.spec.schedule import Schedule

_NAME = r"[A-Za-z][A-Za-z0-9_]{0,99}"


def _valid_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError("should be at most 100 letters, digits and underscores, a letter first")
    return name


Name = Annotated[str, AfterValidator(_valid_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})]


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
    window: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="The result covers so many parts, days or hours, the run's own the last; states of parts are kept, "
        "and only rows that changed are read.",
        examples=[28],
    )
    states: States | None = Field(
        default=None, description="With window: the states that are kept.", examples=[{"keep": 60}]
    )
    late: Literal["recompute", "fail"] = Field(
        default="recompute",
        description="With window: what changed in an older part is computed anew, or fails the run.",
        examples=["fail"],
    )
    missing: Literal["allow", "fail"] = Field(
        default="allow",
        description="With window: whether a part without files is left out of the result, or fails the run.",
        examples=["fail"],
    )
    verify: Verify | None = Field(
        default=None,
        description="With a window: some keys are compared with all rows before anything is published.",
        examples=[{"keys": 1000}],
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
    engine: Literal["auto", "combine", "bypass", "staged"] = Field(
        default="auto",
        description="combine: states are made where rows are read, and merged; bypass: each row is sent to one task, "
        "which makes the only state of its key, and heavy keys are split; staged: rows are routed to their tasks, wave "
        "by wave; auto takes what costs less.",
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
        description="A state of a Python aggregate that is written may be so large, in MiB; more ends the run.",
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

    @model_validator(mode="after")
    def _window_of_parts(self) -> Self:
        """A window is made of parts, and needs their states."""
        if self.window is None:
            fields = type(self).model_fields
            given = [one for one in ("states", "late", "missing") if getattr(self, one) != fields[one].default]
            given += ["input.parts"] if self.input.parts is not None else []
            if given:
                raise unmet(f"{given[0]} only with a window", "no window")
            return self
        if self.state == "forward":
            raise unmet("state: merge with a window", "state: forward")
        kept = self.states.keep if self.states else None
        if kept is not None and kept < self.window:
            raise unmet(f"states.keep of at least the window, {self.window}", str(kept))
        if not (self.states and self.states.path) and "{date" in self.output.path:
            raise unmet("states.path, as output.path differs from part to part", "none")
        self._require_parts()
        return self

    @model_validator(mode="after")
    def _verified_window(self) -> Self:
        if self.verify is not None and self.window is None:
            raise unmet("verify only with a window", "no window")
        return self

    def _require_parts(self) -> None:
        """Refuse an input whose parts cannot be told apart."""
        unit, path = self.schedule.unit, str(self.input.path)
        if self.input.table is not None:
            raise unmet("input.path with a window", "a table, whose parts cannot be told yet")
        if self.input.parts is not None:
            if unit == "hour":
                raise unmet("days as parts with input.parts", "a job of hours, whose parts only a path can name yet")
            return
        field = "{hour}" if unit == "hour" else "{date}"
        if field[:-1] not in path:
            required = f"{field} in input.path, or the partition column in input.parts: a window is made of parts"
            raise unmet(required, f"the path {path[:80]!r}")
        try:
            refuse_shared_paths(path, unit, "input.path")
        except SpecError as err:
            raise unmet(err.required or "a path that names each part", err.came) from None

    @property
    def kept_parts(self) -> int:
        """Of how many parts states are kept; 0 without a window."""
        if self.window is None:
            return 0
        return (self.states.keep if self.states else None) or self.window + 7
