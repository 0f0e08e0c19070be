"""The job spec: what to compute, from where, routed how. Reviewed YAML, never a form."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from skewless.document import Section, shortened, unmet
from skewless.errors import SpecError
from skewless.spec.calls import AggregateCall, Map
from skewless.spec.clusters import Sharing, SparkSettings
from skewless.spec.input import TABLES, ColumnName, FileFormat, Input
from skewless.spec.part import Part, refuse_shared_paths, resolve_path
from skewless.spec.result import QUARANTINE_COLUMNS, Length, NoWindow, Output, Quality, Window, as_window
from skewless.spec.routing import AskedEngine, Routing
from skewless.spec.schedule import AirflowSettings, Schedule

if TYPE_CHECKING:
    from skewless.query.understood import Joined, Result, Understood

#: Names the result of all rows of the run itself, computed anew.
FRESH = "fresh"
_QUERY = re.compile(r"\s*(SELECT|WITH|FROM|VALUES|TABLE)\b(?![./-])", re.IGNORECASE)


def is_query(other: str) -> bool:
    """Whether the text that names another result is a query.

    >>> is_query("select * from old.clicks"), is_query("/lake/old"), is_query("values.csv"), is_query("table/old")
    (True, False, False, False)
    """
    return _QUERY.match(other) is not None


def input_of(other: str) -> dict[str, Any]:
    """The format and the path of a text that names another result, as the section ``input`` of a spec has them.

    >>> input_of("iceberg:local.marts.clicks"), input_of("/lake/old/{date}.csv")["format"], input_of("old")["format"]
    ({'format': 'iceberg', 'path': 'local.marts.clicks'}, 'csv', 'parquet')
    """
    kind, sign, path = other.partition(":")
    if sign and (kind in (*get_args(FileFormat), *TABLES, "catalog") or re.match(r"[a-z]{2,}:[^/]", other)):
        return {"format": kind, "path": path}
    ending = posixpath.splitext(other.rstrip("/"))[1].removeprefix(".")
    return {"format": ending if ending in get_args(FileFormat) else "parquet", "path": other}


def _meaningful(other: str) -> str:
    if other != FRESH and not is_query(other):
        try:
            path = "" if re.search(r"\sFROM\s", other, re.IGNORECASE) else other.strip()
            Input.model_validate(input_of(path))
        except ValueError:
            required = "a path, FORMAT:PATH as input of a spec has them, or a query that begins with SELECT"
            raise unmet(required, repr(other)[:80]) from None
    return other.strip()


class Shadow(Section):
    """What a result is compared with instead of being published: the other job goes on as it was, and is not touched.

    It is reviewed code, as all of a spec: neither the trigger form nor the conf of a run can name another query.
    """

    other: Annotated[str, AfterValidator(_meaningful)] = Field(
        alias="with",
        min_length=1,
        max_length=10_000,
        examples=["parquet:/lake/old/{date}", "SELECT * FROM old.clicks WHERE day = DATE '{date}'"],
    )
    """The other result: a path whose ending tells the format (Parquet if it does not), FORMAT:PATH, or a query, which
    may rename and cast columns; {date} and {hour} are the part that the run computes. Or fresh: the result of all its
    rows, computed anew."""
    tolerance: float = Field(default=1e-9, ge=0, le=1, examples=[1e-6])
    """How far floats may be apart, relative to the larger one."""
    differences: Literal["warn", "fail"] = Field(default="warn", examples=["fail"])
    """Whether a run that finds differences only says so, or fails."""


_NAME = r"[A-Za-z][A-Za-z0-9_]{0,99}"


def _valid_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError("should be at most 100 letters, digits and underscores, a letter first")
    return name


Name = Annotated[str, AfterValidator(_valid_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})]

_TABLE = rf"{_NAME}(\.{_NAME}){{0,2}}"


def _valid_table(name: str) -> str:
    if not re.fullmatch(_TABLE, name):
        raise ValueError("should be a name, or up to three with dots, of letters, digits and underscores")
    return name


_TableName = Annotated[str, AfterValidator(_valid_table), WithJsonSchema({"type": "string", "pattern": f"^{_TABLE}$"})]

_KeyInput = ColumnName | Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=16)]


#: What a query says, and a spec without one writes itself.
_OF_QUERY = ("input", "map", "key", "aggregates")


def _is_input(given: Any) -> bool:
    """Whether it is one; if not, that is said of the table, and once."""
    try:
        return bool(Input.model_validate(given))
    except ValidationError:
        return False


def _either_way(schema: dict[str, Any]) -> None:
    written = ["input", "key", "aggregates"]
    schema["required"] = [name for name in schema["required"] if name not in written]
    schema["anyOf"] = [{"required": ["query", "tables"]}, {"required": written}]


class JobSpec(Section):
    """What to compute. Strict: a field that is not listed here is an error.

    A `query` and its `tables` stand in place of `input`, `map`, `key` and `aggregates`: what it is understood to be,
    `skewless check` prints.
    """

    model_config = ConfigDict(json_schema_extra=_either_way)

    name: Name = Field(examples=["clicks_by_page"])
    """Name of the job, and of its DAG."""
    description: str = Field(default="", examples=["Clicks of each page and day."])
    """What the job is for, as Airflow shows it."""
    schedule: Schedule = Field(default=Schedule(), examples=[{"cron": "0 2 * * *"}])
    """When Airflow starts it."""
    input: Input = Field(examples=[{"path": "/lake/clicks/{date}"}])
    """The rows to aggregate."""
    map: Map | None = Field(default=None, examples=[{"select": ["explode(pages) AS page"]}])
    """What is made of each row before it is aggregated; by default the row as it is."""
    query: str | None = Field(
        default=None,
        min_length=1,
        max_length=100_000,
        exclude_if=lambda query: query is None,
        examples=["SELECT page, count(*) AS clicks FROM clicks GROUP BY page"],
    )
    """What to compute, as Spark SQL: one aggregation of the first table of FROM, the input; all others are lookups."""
    tables: dict[_TableName, Input] = Field(
        default_factory=dict,
        max_length=100,
        exclude_if=lambda tables: not tables,
        examples=[{"clicks": {"path": "/lake/clicks/{date}"}, "pages": {"format": "delta", "path": "/lake/pages"}}],
    )
    """The tables of the query, by their names there."""
    window: Window | None = Field(default=None, examples=[28, "all", [1, 7, 28], {"length": 28, "late": "ignore"}])
    """The result covers several parts, days or hours, whose states are kept, and only rows that changed are read; by
    default the run's own part, of which all rows are read."""
    key: tuple[ColumnName, ...] = Field(min_length=1, max_length=16, examples=["page", ["site", "page"]])
    """The column, or the columns, by which rows are grouped."""
    aggregates: dict[Name, AggregateCall] = Field(
        min_length=1,
        max_length=100,
        examples=[{"clicks": "count", "visitors": {"function": "approx_count_distinct", "column": "visitor"}}],
        json_schema_extra={"additionalProperties": False},
    )
    """Columns of the result by their names, each with what it is; with the key columns and `date`, they differ in more
    than their case."""
    engine: AskedEngine = Field(default="auto", examples=["staged"])
    """combine: states are made where rows are read, and merged; bypass: each row is sent to one task, which makes the
    only state of its key, and heavy keys are split; staged: rows are routed to their tasks, wave by wave; auto takes
    what costs less."""
    state: Literal["merge", "forward", "join"] | None = Field(default=None, examples=["forward"])
    """forward: a key lives in one task, sees its rows in the order of the input, and its state moves with it; merge:
    its states are merged at the end; join: and lookups are joined then, to states in place of rows; by default as the
    aggregates need it, and join where it costs less."""
    routing: Routing = Field(default=Routing(), examples=[{"policy": "adaptive", "reducers": 64}])
    """How rows are spread."""
    spark: SparkSettings = Field(
        default=SparkSettings(), exclude=True, examples=[{"conf": {"spark.driver.memory": "4g"}}]
    )
    """How Airflow submits its Spark steps."""
    airflow: AirflowSettings = Field(
        default=AirflowSettings(), exclude=True, examples=[{"owner": "team-data", "retries": 5}]
    )
    """What Airflow knows of its DAG beside the schedule."""
    sharing: Sharing = Field(default=Sharing(), examples=[{"lease_seconds": 30}])
    """Leases: of the steps, and of virtual tasks where several Spark clusters share a run."""
    quality: Quality = Field(default=Quality(), examples=[{"expectations": []}])
    """What must hold of the result."""
    output: Output = Field(examples=[{"path": "/lake/marts/clicks_by_page"}])
    """Where the result is published."""
    shadow: Shadow | None = Field(default=None, examples=[{"with": "parquet:/lake/old/{date}"}])
    """The result is compared with that of another job, and nothing is published; by default it is published."""

    @property
    def of_run(self) -> JobSpec:
        """The spec as a run's documents have it: without what Airflow alone knows, which may change meanwhile."""
        return self.model_copy(update={"airflow": AirflowSettings(), "spark": SparkSettings()})

    @model_validator(mode="before")
    @classmethod
    def _understood(cls, raw: Any) -> Any:
        """A query as the fields that it stands for."""
        if not isinstance(raw, dict) or not isinstance(raw.get("query"), str):
            if isinstance(raw, dict) and isinstance(raw.get("map"), dict) and "query" in raw["map"]:
                raise unmet("query and tables in place of a map with joins", "map.query")
            return raw
        if twice := next((name for name in _OF_QUERY if raw.get(name) is not None), None):
            raise unmet(f"either query or {twice}", "both")
        tables = raw.get("tables")
        if "tables" not in raw and not raw.keys() <= cls.model_fields.keys():
            return raw  # a misspelt field explains the missing one
        if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
            raise unmet("tables, each with a path, beside query", "none" if tables is None else shortened(tables))
        from skewless.query.understood import understood  # noqa: PLC0415  # a second of imports, which few specs need

        try:
            found = understood(raw["query"], frozenset(tables))
        except PydanticCustomError as err:
            raise unmet(**{**(err.context or {}), "at": "query"}) from None
        state, nightly = raw.get("state"), [name for name, one in tables.items() if one.get("as_of") == "night"]
        below = found.below_join(state, raw.get("window"), nightly)
        if state == "join" and below is None:
            raise unmet(f"state: merge, as rows have to be joined ({found.unjoined or 'to nothing'})", "state: join")
        rows = below.rows if below else found.rows
        made = {
            "input": tables[found.input] if _is_input(tables[found.input]) else {"path": "told below tables"},
            "map": rows and {"query": rows},
            "key": list(below.key if below else found.key),
            "aggregates": found.aggregates,
        }
        output = raw.get("output")
        if found.order and isinstance(output, dict):
            if output.get("sort"):
                raise unmet("either ORDER BY or output.sort", "both")
            made["output"] = {**output, "sort": list(found.order)}
        return {**raw, **made}

    @model_serializer(mode="wrap")
    def _as_asked(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what a query says."""
        written, query = dict(dump(self)), self.understood
        if query is None:
            return written
        if "output" in written and query.order:
            written["output"] = {**written["output"], "sort": []}
        return {name: value for name, value in written.items() if name not in _OF_QUERY}

    @property
    def understood(self) -> Understood | None:
        """What its query is; None if it has none."""
        if self.query is None:
            return None
        from skewless.query.understood import understood  # noqa: PLC0415  # see above

        return understood(self.query, frozenset(self.tables))

    @cached_property
    def result(self) -> Result | None:
        """What of its query stands above keys and aggregates; None if just these are published."""
        query = self.understood
        return query.result if query else None

    def field_of(self, given: Input) -> str:
        """The field in which its author wrote a table: `input` is that of a spec without a query."""
        return next((f"tables.{name}" for name, one in self.tables.items() if one == given), "input")

    @property
    def lookups(self) -> dict[str, Input]:
        """The tables of its query that the rows of the input, or results, are joined to."""
        query = self.understood
        return {name: table for name, table in self.tables.items() if query and name != query.input}

    @property
    def below(self) -> frozenset[str]:
        """What the query of its map reads, in lower case: of the tables, those that rows are joined to."""
        from skewless.query.sql import read_in  # noqa: PLC0415  # see above

        return frozenset(read_in(self.map.sql)) if self.map and self.map.sql else frozenset()

    @property
    def joined(self) -> Joined | None:
        """How its states are joined to lookups when they are merged; None where rows are."""
        nightly, found = (name for name, table in self.tables.items() if table.as_of == "night"), self.understood
        return None if found is None else found.below_join(self.state, self.window, nightly)

    @property
    def joining(self) -> JobSpec:
        """The spec with states that are joined in place of rows, if nothing keeps them from it."""
        found = self.understood
        if self.state is not None or self.covered.lengths or found is None or found.joined is None:
            return self
        rows = found.joined.rows
        made = {"state": "join", "key": found.joined.key, "map": Map(query=rows) if rows else None}
        return self.model_copy(update=made)

    @property
    def joins(self) -> str:
        """What is joined to the lookups below its aggregation, in words; empty if there are none."""
        found = self.understood
        if found is None or not (found.joined or found.unjoined):
            return ""
        if self.joined is not None:
            return f"states by {', '.join(self.key)}, when they are merged"
        nightly = "as_of: night" if self.covered.lengths else ""
        why = found.unjoined or (f"state: {self.state}" if self.state else nightly)
        return f"rows, before they are aggregated{f': {why}' if why else ', as that costs less'}"

    @property
    def of_results(self) -> JobSpec:
        """The spec as its results have it, whose key is that of the query."""
        found = self.understood
        if found is None or self.joined is None:
            return self
        return self.model_copy(update={"key": found.key, "state": "merge"})

    @property
    def published(self) -> tuple[str, ...]:
        """The columns of the result: by default keys and aggregates."""
        if self.result is None:
            return (*self.result_key, *self.aggregates)
        return (*self.result.reads, *self.covered.columns)

    @property
    def values(self) -> dict[str, AggregateCall | None]:
        """The columns of the result beside its key, each with the aggregate that it is, if it is one."""
        if self.result is None:
            return dict(self.aggregates)
        calls = {own: self.aggregates.get(name) for name, own in self.result.plain.items()}
        return {name: calls.get(name) for name in self.published if name not in self.result_key}

    @property
    def keyed(self) -> bool:
        """Whether no two rows of the result are alike in its key."""
        return self.result is None or len(self.result_key) == len(self.of_results.key) + len(self.covered.columns)

    @property
    def of_all_rows(self) -> bool:
        """Whether the result is one row, of all rows, and also of none."""
        return self.result is not None and self.of_results.key == ("all_rows",) and "all_rows" not in self.result.plain

    @field_validator("window", mode="before", json_schema_input_type=Length | Window | None)
    @classmethod
    def _window_or_length(cls, window: Any) -> Any:
        return as_window(window)

    @field_validator("key", mode="before", json_schema_input_type=_KeyInput)
    @classmethod
    def _one_key(cls, key: Any) -> Any:
        if isinstance(key, bool | int | float):
            raise unmet("the name of a column, in quotes, or a list of names", shortened(key))
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
        taken |= dict.fromkeys(self.covered.columns, "the column that tells windows apart")
        if self.quality.quarantines:
            taken |= dict.fromkeys(QUARANTINE_COLUMNS, "a column of the quarantine")
        roles = [(column, "a key column") for column in self.of_results.key]
        roles += [(name, "an aggregate") for name in self.aggregates]
        if self.result is not None:
            roles = [(name, "a column of the result") for name in self.result.reads]
        for name, role in roles:
            if self.output.is_table and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                required = "result columns of letters, digits and underscores where the output is a table"
                raise unmet(required, f"{shortened(name)}, {role} (map.select renames it)")
            if name.lower() in taken:
                clash = f"{name!r} twice: as {taken[name.lower()]} and as {role}"
                raise unmet("result columns whose names differ, in more than their case", clash)
            taken[name.lower()] = role
        return self

    @model_validator(mode="after")
    def _lookups_of_its_map(self) -> Self:
        if self.tables and self.query is None:
            raise unmet("tables only with a query", "none")
        if self.input.as_of != "run":
            raise unmet("as_of only of a lookup", f"as_of: {self.input.as_of} of the input")
        if not self.covered.lengths and any(one.as_of != "run" for one in self.lookups.values()):
            raise unmet("as_of: night only with a window", "no window")
        return self

    @model_validator(mode="after")
    def _one_window_of_joined_results(self) -> Self:
        if self.result is not None and self.result.query is not None and self.covered.columns:
            raise unmet("one length in window where results are joined to lookups", str(self.covered.lengths))
        return self

    @model_validator(mode="after")
    def _rows_by_their_key(self) -> Self:
        """A row that is set apart, or compared, is known by its key."""
        if self.keyed or self.of_all_rows:
            return self
        if self.quality.quarantines or self.shadow is not None:
            section = "shadow" if self.shadow is not None else "expectations of severity quarantine"
            left_out = next(name for name in self.of_results.key if not self.result or name not in self.result.plain)
            raise unmet(f"all keys among the published columns, with {section}", f"none that is {left_out!r}")
        return self

    @model_validator(mode="after")
    def _accepted_keys_of_its_columns(self) -> Self:
        accept, columns = self.quality.accept, len(self.of_results.key)
        if odd := [key for key in accept if accept != "all" and len(key) != columns]:
            raise unmet(f"keys of {columns} columns in quality.accept", shortened(list(odd[0])))
        return self

    @model_validator(mode="after")
    def _compared_with_a_part(self) -> Self:
        if self.shadow is not None:
            part = Part(dt.date(2000, 1, 1), "00" if self.schedule.unit == "hour" else None)
            try:
                resolve_path(self.shadow.other, part, "shadow.with")
            except SpecError as err:
                raise unmet(err.required, err.came, err.hint, "shadow.with") from None
        return self

    @model_validator(mode="after")
    def _sorted_by_its_columns(self) -> Self:
        """A result is sorted by its own columns, by each once; within a part, its day says nothing."""
        have, seen = {*self.published}, set[str]()
        for name, _ in self.output.order:
            if name not in have or name in seen:
                came = shortened(name) + (" twice" if name in seen else "")
                raise unmet("columns of the result in output.sort, each once", came)
            seen.add(name)
        return self

    @model_validator(mode="after")
    def _window_of_parts(self) -> Self:
        if self.window is None:
            if self.input.parts is not None:
                raise unmet(f"{self.field_of(self.input)}.parts only with a window", "no window")
            return self
        if self.state == "forward":
            raise unmet("state: merge with a window, which keeps states", "state: forward")
        if self.covered.states is None and not self.output.is_table and "{date" in self.output.path:
            raise unmet("window.states, as output.path differs from part to part", "none")
        self._require_parts()
        return self

    def _require_parts(self) -> None:
        unit, path, given = self.schedule.unit, self.input.path, self.field_of(self.input)
        if not self.input.takes(self.input.format, "parts"):
            raise unmet("an input whose parts can be told, with a window", f"format {self.input.format}")
        if self.input.pinned and self.input.parts is None:
            raise unmet(f"{given}.parts, the partition column whose days are the parts of a window", "none")
        if self.input.parts is not None:
            if unit == "hour":
                raise unmet(f"days as parts with {given}.parts", "a job of hours, whose parts only a path can name yet")
            return
        field = "{hour}" if unit == "hour" else "{date}"
        if field[:-1] not in path:
            required = f"{field} in {given}.path, or the partition column in {given}.parts: a window is made of parts"
            raise unmet(required, f"the path {path[:80]!r}")
        try:
            refuse_shared_paths(path, unit, given)
        except SpecError as err:
            raise unmet(err.required, err.came, err.hint, f"{given}.path") from None

    @property
    def covered(self) -> Window | NoWindow:
        """Its window, or what stands for none."""
        return self.window or NoWindow()

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns of the result that are its key, and of several windows the window; see ``keyed``."""
        key = self.of_results.key
        names = key if self.result is None else [self.result.plain[one] for one in key if one in self.result.plain]
        return (*names, *self.covered.columns)
