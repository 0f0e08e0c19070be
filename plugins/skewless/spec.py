"""The job spec: what to compute, from where, routed how. Reviewed YAML, never a form."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from skewless.document import Document, Frozen, sentence_of, unmet
from skewless.errors import SpecError, nearest


def _valid_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name):
        raise ValueError("should be at most 100 letters, digits and underscores, a letter first")
    return name


Name = Annotated[str, AfterValidator(_valid_name)]
ColumnName = Annotated[str, Field(min_length=1)]
PolicyName = Literal[
    "static",
    "halving",
    "doubling",
    "virtual_tasks",
    "partial_key",
    "d_choices",
    "w_choices",
    "bounded_load",
    "adaptive",
]


class Schedule(Frozen):
    """When Airflow starts the job: by cron expressions, or after assets; with neither, only by hand."""

    cron: str | tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1, description="Cron expression, five fields, or a list of them."
    )
    asset: str | tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description="Instead of cron: the name of an asset, such as skewless:NAME, after each event of which the job "
        "runs; of several, after an event of each.",
    )
    timezone: str = Field(default="UTC", description="IANA time zone the cron expression is read in.")
    start: dt.date = Field(default=dt.date(2026, 1, 1), description="No run is scheduled before this day.")

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError("should be an IANA time zone like 'Europe/Zurich'") from None
        return zone

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.cron is not None and self.asset is not None:
            raise unmet("either cron or asset", "both")
        return self

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


InputFormat = Literal["parquet", "orc", "csv", "json", "text"]
#: The format that each option is of, beside those of all.
_OPTIONS_OF = {"header": ("csv",), "delimiter": ("csv",), "columns": ("csv", "json")}


class Input(Frozen):
    """The rows to aggregate: files, or a table of Spark's catalog that is made of files."""

    path: str | None = Field(
        default=None,
        min_length=1,
        description="A file, a folder or a glob; relative paths start at the data root; {date} is the run's day.",
    )
    table: str | None = Field(default=None, min_length=1, description="Instead of a path: a table that Spark knows.")
    format: InputFormat = "parquet"
    header: bool | None = Field(
        default=None, description="csv: the first line of each file names its columns; by default it does."
    )
    delimiter: str | None = Field(default=None, description="csv: one character, or '\\t'; by default a comma.")
    columns: dict[ColumnName, str] | None = Field(
        default=None,
        min_length=1,
        description="csv, json: Spark SQL type of each column; all columns in order where a csv has no header.",
    )
    cut_bytes: int = Field(
        default=64 << 20,
        ge=1 << 16,
        description="A larger file is cut into pieces of about so many bytes; smaller ones where files are few.",
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
        if (self.path is None) == (self.table is None):
            raise unmet("either a path or a table", "neither" if self.path is None else "both")
        for option, formats in _OPTIONS_OF.items():
            if getattr(self, option) is not None and (self.table is not None or self.format not in formats):
                what = "a table" if self.table is not None else f"format {self.format}"
                raise unmet(f"{option} only with format {' or '.join(formats)}", what)
        if self.format == "csv" and self.header is False and self.columns is None:
            raise unmet("columns for a csv without header", "none")
        return self


class Map(Frozen):
    """One row in, any number out, without state: a select list of Spark SQL, or a registered Python mapper."""

    select: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1, max_length=1000, description="Spark SQL expressions with names, over input columns."
    )
    where: str | None = Field(default=None, min_length=1, description="Only with select: which input rows it sees.")
    mapper: str | None = Field(default=None, min_length=1, description="Name of a registered Python mapper.")
    options: dict[str, bool | int | float | str | list[str] | None] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _further_names_are_options(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and "mapper" in raw and "options" not in raw:
            own = {name: raw[name] for name in ("mapper", "select", "where") if name in raw}
            return {**own, "options": {name: value for name, value in raw.items() if name not in own}}
        return raw

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.select is None) == (self.mapper is None):
            raise unmet("either select or mapper", "neither" if self.select is None else "both")
        if self.mapper is not None and self.where is not None:
            raise unmet("where only with select", "where with a mapper")
        if self.select is not None and self.options:
            raise unmet("options only with a mapper", "options with select")
        return self


class AggregateCall(Frozen):
    """One aggregate: a function by its registered name, a column, and the function's options."""

    function: str = Field(min_length=1)
    column: str | None = None
    options: dict[str, bool | int | float | str | list[float] | None] = Field(default_factory=dict)

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
                raise unmet("a text, a number, true, false, null or a list of numbers", f"{name}: {value!r}"[:120])
        return options


class Routing(Frozen):
    """How rows are spread over reducers, and how fast the plan may learn."""

    policy: PolicyName = Field(default="adaptive", description="Who decides where keys go.")
    reducers: int = Field(default=8, ge=1, le=10_000, description="Reducers on the ring to begin with.")
    min_reducers: int | None = Field(
        default=None, ge=1, le=10_000, description="adaptive may remove reducers down to so many; by default none."
    )
    max_reducers: int | None = Field(
        default=None, ge=1, le=10_000, description="adaptive may add reducers up to so many; by default none."
    )
    slots: int | None = Field(
        default=None, ge=1, le=100_000,
        description="Tasks that the cluster runs side by side; by default as many as there are reducers.",
    )  # fmt: skip
    waves: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(1, 4, 15, 80),
        min_length=1,
        max_length=32,
        description="Relative sizes of the slices of the input that the stages admit; adaptive may join them.",
    )
    budget: float | None = Field(
        default=None,
        ge=1.0,
        le=100.0,
        description="Rows a task may reduce in a stage, as a multiple of the fair share of what is queued; "
        "by default the planner chooses.",
    )
    stage_overhead: float | None = Field(
        default=None, ge=0, le=86_400,
        description="Seconds that a stage costs beside its rows; by default they are measured. 0 plans as many "
        "stages as there are waves, whatever they cost.",
    )  # fmt: skip
    budget_seconds: float | None = Field(
        default=None, gt=0, le=86_400,
        description="Seconds that a task may reduce rows in a stage, as far as a fair share takes no longer, by what "
        "rows have cost so far; a guard beside the budget, from the second stage on. By default none.",
    )  # fmt: skip
    ring_bits: int = Field(default=12, ge=4, le=16, description="The ring has 2**ring_bits slots.")
    tokens: int | None = Field(
        default=None, ge=1, le=4096,
        description="Tokens of each reducer to begin with: 64, a power of two for halving, always 1 for doubling.",
    )  # fmt: skip
    head_limit: int = Field(default=4096, ge=0, le=100_000, description="At most so many keys are placed one by one.")
    threshold: float = Field(
        default=0.2, ge=0, le=100,
        description="halving, doubling, virtual_tasks: how far the longest queue may pass the next one (tau).",
    )  # fmt: skip
    rounds: int = Field(default=4, ge=0, le=50, description="halving, doubling: how often one reducer may be relieved.")
    choices: int = Field(default=2, ge=1, le=64, description="partial_key: candidate tasks of each key (d).")
    capacity: float = Field(
        default=1.1, ge=1, le=100, description="bounded_load: rows a task may have, as a multiple of the fair share."
    )
    max_factor: int = Field(
        default=8, ge=1, le=1024, description="virtual_tasks, adaptive: key buckets of one reducer at most."
    )
    task_states: int | None = Field(
        default=None, ge=1, description="virtual_tasks: states that one task should hold at most."
    )
    approve_forwarding: float | None = Field(
        default=None, ge=0, le=1,
        description="A plan that forwards more than this part of a stage's queued rows waits in Airflow until somebody "
        "approves it; by default none does.",
    )  # fmt: skip
    warm_start: bool = Field(default=True, description="Plan the first stage from the job's last run, if there is one.")
    probe: bool = Field(
        default=False,
        description="Begin with a small stage that measures what the rows of each key cost, as long as no earlier run "
        "has: for Python aggregates to which keys are unlike.",
    )
    key_sample: bool = Field(
        default=True,
        description="Plan the first stage from a sample of the input's keys where no earlier run is a guide.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.policy == "doubling" and self.tokens not in {None, 1}:
            raise unmet("one token each at the start, as doubling needs", f"tokens: {self.tokens}")
        if self.policy == "halving" and self.initial_tokens & (self.initial_tokens - 1):
            raise unmet("a power of two of tokens, as halving needs", f"tokens: {self.tokens}")
        if self.max_factor & (self.max_factor - 1):
            raise unmet("a power of two as max_factor", f"max_factor: {self.max_factor}")
        low, high = self.min_reducers or self.reducers, self.max_reducers or self.reducers
        if not low <= self.reducers <= high:
            raise unmet("min_reducers <= reducers <= max_reducers", f"{low}, {self.reducers}, {high}")
        return self

    @property
    def initial_tokens(self) -> int:
        """Tokens of each reducer on the first ring."""
        return 1 if self.policy == "doubling" else self.tokens or 64

    @property
    def slot_count(self) -> int:
        """Tasks that run side by side."""
        return self.slots or self.max_reducers or self.reducers


#: As Java reads it, from a mebibyte up.
MEMORY = r"^[1-9][0-9]{0,6}[mgMG]$"


class SparkSizing(Frozen):
    """How large the Spark application of a step is; what is not given is left to the connection and to Spark."""

    driver_memory: str | None = Field(default=None, pattern=MEMORY, description="Memory of the driver, like 2g.")
    executor_memory: str | None = Field(
        default=None, pattern=MEMORY, description="Memory of each executor, like 4g; local Spark has none."
    )
    executor_cores: int | None = Field(default=None, ge=1, le=1024, description="Cores of each executor.")
    cores: int | None = Field(
        default=None, ge=1, le=100_000, description="Cores of all executors together, on a standalone cluster."
    )


class Expectation(Frozen):
    """One Great Expectations expectation, by its snake-case type."""

    type: str = Field(pattern=r"^expect_[a-z0-9_]+$")
    kwargs: dict[str, Any] = Field(default_factory=dict)


class Quality(Frozen):
    """What must hold of the result, beside the ledger, before it is published."""

    expectations: tuple[Expectation, ...] = ()


class Output(Frozen):
    """Where the result is published: ``path/date=YYYY-MM-DD/part-*``."""

    path: str = Field(
        min_length=1, description="A folder; relative paths start at the data root; {date} is the run's day."
    )
    format: Literal["parquet", "orc", "csv", "json"] = Field(default="parquet", description="csv has a header.")
    files: int = Field(default=4, ge=1, le=10_000, description="Files of the published result.")


class _PlainLoader(yaml.SafeLoader):
    """YAML without keys that are given twice, of which PyYAML keeps the last, and without aliases.

    A spec has no use for aliases, and a few lines of them can stand for gigabytes, or for themselves.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            node_mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "an alias (*name)", node_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in written if written.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} given twice", node.start_mark)
        return super().construct_mapping(node, deep)


class JobSpec(Document):
    """What to compute. Strict: a field that is not listed here is an error."""

    name: Name
    description: str = ""
    schedule: Schedule = Schedule()
    input: Input
    map: Map | None = None
    key: tuple[ColumnName, ...] = Field(min_length=1, max_length=16)
    aggregates: dict[Name, AggregateCall] = Field(min_length=1, max_length=100)
    engine: Literal["auto", "combine", "staged"] = Field(
        default="auto",
        description="combine: states are made where rows are read, and merged; staged: rows are routed to their "
        "tasks; auto takes what costs less.",
    )
    state: Literal["merge", "forward"] | None = Field(
        default=None,
        description="forward: a key lives in one task, sees its rows in the order of the input, and its state moves "
        "with it; by default as the aggregates need it.",
    )
    state_limit_mb: int = Field(
        default=256,
        ge=1,
        le=2047,
        description="A state of a Python aggregate may be so large, in MiB; more ends the run.",
    )
    mode: Literal["run", "observe"] = Field(
        default="run",
        description="observe: the policy decides and its decisions are recorded, but rows go as with policy static.",
    )
    routing: Routing = Routing()
    spark: SparkSizing = SparkSizing()
    quality: Quality = Quality()
    output: Output

    @property
    def enacted(self) -> JobSpec:
        """The spec whose plans are enacted: this one, or in mode ``observe`` the same one with policy ``static``."""
        if self.mode == "run":
            return self
        routing = self.routing.model_copy(update={"policy": "static"})
        return self.model_copy(update={"mode": "run", "routing": routing})

    @field_validator("key", mode="before")
    @classmethod
    def _one_key(cls, key: Any) -> Any:
        return (key,) if isinstance(key, str) else key

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        """Result columns must differ without regard to case, as Spark sees them."""
        taken = {"date": "the partition column of the published result"}
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
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as err:  # a ValueError is text that is no UTF-8, or a path with NUL
        reason = getattr(err, "strerror", None) or type(err).__name__
        raise SpecError(where, "a readable YAML file", reason, "check the path") from None
    return parse_spec(text, where, overrides)


def parse_spec(text: str, where: str = "spec", overrides: tuple[str, ...] = ()) -> JobSpec:
    """Like ``load_spec``, from the text itself."""
    try:
        raw = _yaml(text)
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        spot = f" at line {mark.line + 1}" if mark else ""
        raise SpecError(where, "valid YAML", f"{getattr(err, 'problem', None) or 'bad syntax'}{spot}") from None
    except (ValueError, RecursionError) as err:  # PyYAML's own: a 30th of February, ten thousand brackets
        raise SpecError(where, "values that YAML can hold", str(err), "quote what is no date or number") from None
    if not isinstance(raw, dict):
        raise SpecError(where, "a YAML mapping", "nothing" if raw is None else f"a {type(raw).__name__}")
    for override in overrides:
        _apply(raw, override)
    version = raw.get("version", JobSpec.VERSION)
    if version != JobSpec.VERSION:
        raise SpecError(where, f"job spec version {JobSpec.VERSION}", f"version {version!r}")
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None


def _yaml(text: str) -> Any:
    return yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader that is stricter still


def _apply(raw: dict[str, Any], override: str) -> None:
    """Set one dotted field in the raw mapping; numbers step into lists."""
    dotted, equals, text = override.partition("=")
    where = f"override {override!r}"
    if not equals or not all(dotted.split(".")):
        raise SpecError(where, "path.to.field=value", "something else", "for example routing.policy=static")
    try:
        value = _yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SpecError(where, "a YAML value after '='", repr(text), "quote it") from None
    *parents, last = dotted.split(".")
    target: Any = raw
    for part in parents:
        target = _step(target, part, where)
    if isinstance(target, list):
        target[_index(target, last, where)] = value
    else:
        target[last] = value


def _step(target: Any, part: str, where: str) -> Any:
    below = target[_index(target, part, where)] if isinstance(target, list) else target.setdefault(part, {})
    if not isinstance(below, dict | list):
        raise SpecError(where, f"{part!r} to hold further fields", f"the value {below!r}")
    return below


def _index(target: list[Any], part: str, where: str) -> int:
    known = [str(number) for number in range(len(target))]
    if part not in known:
        raise SpecError(where, f"a position below {len(target)}", repr(part), nearest(part, known) if known else "")
    return int(part)
