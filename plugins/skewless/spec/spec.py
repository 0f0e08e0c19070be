"""The job spec: what to compute, from where, routed how. Reviewed YAML, never a form."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from skewless.document import Document, shortened, unmet
from skewless.errors import SpecError
from skewless.spec.aggregate_call import AggregateCall
from skewless.spec.clusters import Sharing, SparkSizing
from skewless.spec.input import ColumnName, Input, Map, States
from skewless.spec.part import refuse_shared_paths
from skewless.spec.result import Output, Quality, Verify
from skewless.spec.routing import AskedEngine, Routing
from skewless.spec.schedule import Schedule

_NAME = r"[A-Za-z][A-Za-z0-9_]{0,99}"


def _valid_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError("should be at most 100 letters, digits and underscores, a letter first")
    return name


Name = Annotated[str, AfterValidator(_valid_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})]


_LONGEST_WINDOW = 1000
#: A window of so many parts.
WindowLength = Annotated[int, Field(ge=1, le=_LONGEST_WINDOW)]


def _number_or_all(given: Any) -> Any:
    """Say once what a window may be: of a value that is neither of two types pydantic tells twice."""
    number = isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= _LONGEST_WINDOW
    if not number and given != "all":
        raise unmet(f"a number of parts, 1 to {_LONGEST_WINDOW:,}, or all", shortened(given))
    return given


#: With several windows: the column of the result that says which one a row is of.
WINDOW_COLUMN = "window"

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
    window: Annotated[WindowLength | Literal["all"], BeforeValidator(_number_or_all)] | None = Field(
        default=None,
        description="The result covers so many parts, days or hours, the run's own the last, or all up to that one; "
        "states of parts are kept, and only rows that changed are read.",
        examples=[28, "all"],
    )
    windows: Annotated[tuple[WindowLength, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Instead of window: several lengths, ascending; the result has a row for each key and window, and "
        "the length of the window in the column `window`, an integer.",
        examples=[[1, 7, 28]],
    )
    states: States | None = Field(
        default=None,
        description="The states that are kept of each part; without a window the run's own part alone is computed, and "
        "a further run of it reads only what changed.",
        examples=[{"keep": 60}],
    )
    late: Literal["recompute", "ignore", "fail"] = Field(
        default="recompute",
        description="With a window: what changed in an older part that has states is computed anew, is left out and "
        "counted, or fails the run.",
        examples=["ignore"],
    )
    missing: Literal["allow", "fail"] = Field(
        default="allow",
        description="With a window: whether a part without files is left out of the result, or fails the run.",
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
    engine: AskedEngine = Field(
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
        partition = self.output.partition
        taken = {partition.lower(): "output.partition, where another name may stand,"}
        if self.schedule.unit == "hour":
            if partition.lower() == "hour":
                raise unmet("another name than that of the column of hours in output.partition", repr(partition))
            taken["hour"] = "the partition column of hours"
        if self.windows is not None:
            taken[WINDOW_COLUMN] = "the column that tells windows apart"
        roles = [(column, "a key column") for column in self.key]
        roles += [(name, "an aggregate") for name in self.aggregates]
        for name, role in roles:
            if self.output.is_table and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                required = "result columns of letters, digits and underscores where the output is a table"
                raise unmet(required, f"{shortened(name)}, {role}")
            if name.lower() in taken:
                clash = f"{name!r} twice: as {taken[name.lower()]} and as {role}"
                raise unmet("result columns whose names differ, in more than their case", clash)
            taken[name.lower()] = role
        return self

    @model_validator(mode="after")
    def _sorted_by_its_columns(self) -> Self:
        """A result is sorted by its own columns, by each once; within a part, its day says nothing."""
        have, seen = {*self.result_key, *self.aggregates}, set[str]()
        for name, _ in self.output.order:
            if name not in have or name in seen:
                came = shortened(name) + (" twice" if name in seen else "")
                raise unmet("columns of the result in output.sort, each once", came)
            seen.add(name)
        return self

    @model_validator(mode="after")
    def _window_of_parts(self) -> Self:
        """A window is made of parts, and needs their states."""
        if self.window is not None and self.windows is not None:
            raise unmet("either window or windows", "both")
        if self.windows is not None and list(self.windows) != sorted(set(self.windows)):
            raise unmet("windows in ascending order, each once", str(list(self.windows)))
        if self.window is None and self.windows is None:
            given = [one for one in ("late", "missing") if getattr(self, one) != type(self).model_fields[one].default]
            if given:
                raise unmet(f"{given[0]} only with a window", "no window")
        if not self.lengths:
            if self.input.parts is not None:
                raise unmet("input.parts only with a window or with states", "neither")
            return self
        if self.state == "forward":
            raise unmet("state: merge where states are kept", "state: forward")
        self._require_kept()
        if not (self.states and self.states.path) and "{date" in (self.output.path or ""):
            raise unmet("states.path, as output.path differs from part to part", "none")
        self._require_parts()
        return self

    @model_validator(mode="after")
    def _verified_window(self) -> Self:
        if self.verify is not None and not self.lengths:
            raise unmet("verify only with a window or with states", "neither")
        if self.verify is not None and self.late == "ignore":
            raise unmet("late: recompute or fail with verify, which reads all rows", "late: ignore")
        if self.quality.freshness is not None and not self.lengths:
            raise unmet("quality.freshness only with a window or with states", "neither")
        return self

    def _require_kept(self) -> None:
        """Refuse to keep fewer parts than a window needs."""
        kept, needed = self.states.keep if self.states else None, self.lengths[-1]
        if kept is None:
            return
        if needed is None:
            raise unmet("no states.keep with window: all, which needs the states of all parts", str(kept))
        if kept < needed:
            raise unmet(f"states.keep of at least the longest window, {needed}", str(kept))

    def _require_parts(self) -> None:
        """Refuse an input whose parts cannot be told apart."""
        unit, path = self.schedule.unit, str(self.input.path)
        if self.input.table is not None:
            raise unmet("input.path where states are kept", "a table, whose parts cannot be told yet")
        if self.input.pinned and self.input.parts is None:
            raise unmet(
                "input.parts, the partition column whose days are the parts: states of a table are kept", "none"
            )
        if self.input.parts is not None:
            if unit == "hour":
                raise unmet("days as parts with input.parts", "a job of hours, whose parts only a path can name yet")
            return
        field = "{hour}" if unit == "hour" else "{date}"
        if field[:-1] not in path:
            what = "states are kept" if self.window is None and self.windows is None else "a window is made"
            required = f"{field} in input.path, or the partition column in input.parts: {what} of parts"
            raise unmet(required, f"the path {path[:80]!r}")
        try:
            refuse_shared_paths(path, unit, "input.path")
        except SpecError as err:
            raise unmet(err.required or "a path that names each part", err.came) from None

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """How many parts each window covers, ascending, and None for all parts; empty if the job keeps no states.

        A job that keeps states and has no window has one of a single part.
        """
        if self.windows is not None:
            return self.windows
        if self.window is not None:
            return (None if self.window == "all" else self.window,)
        return () if self.states is None else (1,)

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns in which no two rows of the result are alike: the key, and with ``windows`` the window."""
        return self.key if self.windows is None else (*self.key, WINDOW_COLUMN)

    @property
    def kept_parts(self) -> int | None:
        """Of how many parts states are kept: None for all; 0 for a job that keeps none."""
        if not self.lengths:
            return 0
        longest = self.lengths[-1]
        return longest and ((self.states.keep if self.states else None) or longest + 7)
