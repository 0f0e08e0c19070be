"""Over how many parts a result is, what must hold of it, and where it is published."""

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from skewless.document import LARGEST_COUNT, Section, Tagged, one_of, shortened, unmet
from skewless.spec.input import TABLES, PathText, is_named, refuse_large


def _as_at_most(given: Any) -> Any:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not (0 < given < 1 or (isinstance(given, int) and 1 <= given <= LARGEST_COUNT)):
        raise unmet("a number of keys, at least 1, or a share between 0 and 1", shortened(given))
    return given


#: What the keys in quarantine have beside the columns of the result: which expectations a row fails, and the values.
QUARANTINE_COLUMNS = ("quarantine_reason", "quarantine_value")
#: At most so many keys are accepted by name.
MOST_ACCEPTED = 10_000
#: A number of keys, or a share of them.
AtMost = Annotated[int | float, BeforeValidator(_as_at_most)]


_SEVERITIES = {"critical": "fail", "warning": "warn", "info": "warn"}
#: What an item of a suite may have beside; it is kept in its `meta`.
_IN_META = ("id", "notes", "description", "rendered_content")


class Expectation(Section):
    """One Great Expectations expectation of the result's columns, by its snake-case type.

    An item of a suite of Great Expectations 1.x is one as it is; its severities `critical`, `warning` and `info` are
    `fail`, `warn` and `warn`. `mostly`, an argument of Great Expectations, says when it holds; `severity`, what happens
    when it does not.
    """

    type: str = Field(pattern=r"^(un)?expect(ed)?_[a-z0-9_]+$", examples=["expect_column_values_to_be_between"])
    """Its name; what it takes is told by Great Expectations."""
    kwargs: dict[str, Any] = Field(default_factory=dict, examples=[{"column": "clicks", "min_value": 1}])
    """Its arguments."""
    severity: Annotated[
        Literal["fail", "warn", "quarantine"],
        BeforeValidator(
            lambda severity: _SEVERITIES.get(severity, severity) if isinstance(severity, str) else severity,
            json_schema_input_type=Literal["fail", "warn", "quarantine", "critical", "warning", "info"],
        ),
    ] = Field(default="fail", examples=["quarantine"])
    """What it does where it does not hold: nothing is published; the result is published, and its report, page, event
    and messages say so; or the keys that fail it are left out of the published result, and lie beside it. One that
    could not be evaluated always fails the run."""
    at_most: AtMost | None = Field(default=None, examples=[100, 0.01])
    """With warn or quarantine, of an expectation of single rows: a number of keys, or a share below 1 of all keys of
    the result. More keys that fail than that fail the run. quarantine requires it."""

    meta: dict[str, Any] = Field(default_factory=dict, examples=[{"owner": "sales"}])
    """Notes for people and tools, which the validation result repeats; of an item of a suite, also its id, notes and
    description."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_suite(cls, item: Any) -> Any:
        if not isinstance(item, dict) or not {*item} & {*_IN_META}:
            return item
        beside = {name: item[name] for name in _IN_META if item.get(name) is not None}
        return {name: value for name, value in item.items() if name not in _IN_META} | {
            "meta": {**(item.get("meta") or {}), **beside}
        }

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.severity == "quarantine" and self.at_most is None:
            raise unmet("at_most with severity quarantine: more failing keys than that fail the run", "none")
        if self.severity == "quarantine" and "mostly" in self.kwargs:
            raise unmet("at_most in place of mostly with severity quarantine", f"mostly: {self.kwargs['mostly']}"[:80])
        if self.severity == "fail" and self.at_most is not None:
            raise unmet("severity warn or quarantine with at_most, or mostly among the kwargs", "severity fail")
        return self

    def too_many(self, failing: int, keys: int) -> bool:
        """Whether more keys fail it than may; a share is that of the decimal number as it was written."""
        if self.at_most is None:
            return False
        return failing > (self.at_most if self.at_most >= 1 else Decimal(str(self.at_most)) * keys)

    @field_validator("kwargs", "meta", mode="before")
    @classmethod
    def _plain_values(cls, values: Any, info: ValidationInfo) -> Any:
        """As the frozen job will hold them, so that what is read back is what was given: a date is a text there."""
        return {} if values is None else _as_json(values, info.field_name or "")


#: How deep lists and mappings may be nested in the arguments of an expectation.
_DEEPEST = 8


def _as_json(value: Any, name: str, depth: int = 0) -> Any:
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


AcceptedKey = Annotated[tuple[str | None, ...], Field(min_length=1)]


def _as_accepted(accept: Any) -> Any:
    """Say once what a key may be, and have each as a list of texts: a whole number is its digits."""
    if accept == "all":
        return accept
    form = "all, or a list of keys, each a text, or for several key columns a list of texts and nulls"
    if not isinstance(accept, list | tuple) or len(accept) > MOST_ACCEPTED:
        size = f", {MOST_ACCEPTED:,} at most" if isinstance(accept, list | tuple) else ""
        raise unmet(f"{form}{size}", f"{len(accept):,}" if size else shortened(accept))
    keys = [tuple(key) if isinstance(key, list | tuple) else (key,) for key in accept]
    for key in keys:
        if not key or not all(value is None or type(value) in {str, int} for value in key):
            raise unmet(form, shortened(list(key)))
    return tuple(tuple(value if value is None else str(value) for value in key) for key in keys)


class Quality(Section):
    """What must hold of the input before it is read, and of the result, beside the ledger, before it is published."""

    expectations: tuple[Expectation, ...] = Field(
        default=(), examples=[[{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "visitors"}}]]
    )
    """Those of severity fail must hold, or nothing is published."""
    suite: str | None = Field(default=None, min_length=1, max_length=1000, examples=["suite.json"])
    """A suite of Great Expectations 1.x: the path of its JSON file, relative to that of the spec. Its expectations come
    before those above."""
    show: tuple[str, ...] = Field(default=(), max_length=20, examples=[["visitors"]])
    """Columns of the result that are shown of keys that fail, beside their key and what fails."""
    input: tuple[Expectation, ...] = Field(
        default=(), examples=[[{"type": "expect_column_to_exist", "kwargs": {"column": "user"}}]]
    )
    """Of the input, before anything is computed: columns, their types and nulls, and the number of rows, by footers and
    tables where these tell, else by a pass of Spark. Severity fail or warn."""
    accept: Annotated[
        Literal["all"] | tuple[AcceptedKey, ...],
        BeforeValidator(_as_accepted, json_schema_input_type=Literal["all"] | list[str | int | list[str | int | None]]),
    ] = Field(default=(), examples=["all", ["pen"]])
    """Keys that are published although they fail an expectation of severity quarantine: all, or a list. A key is its
    text, or for several key columns a list of texts and nulls; bytes are hexadecimal digits."""
    bands: Literal["warn", "off", "fail"] = Field(default="warn", examples=["fail"])
    """If figures of the run (rows, keys, rows without a key, rows of the heaviest key, means and nulls of the result)
    are outside of the band of the nights around it: the run says so, or does not look, or fails."""

    @field_validator("input")
    @classmethod
    def _without_keys(cls, given: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        if any(one.severity == "quarantine" or one.at_most is not None for one in given):
            raise unmet("severity fail or warn, without at_most: an input has no keys to leave out yet", "quarantine")
        return given

    @model_validator(mode="after")
    def _accepted_of_some(self) -> Self:
        if self.accept and not self.quarantines:
            raise unmet("an expectation of severity quarantine with accept", "none")
        return self

    @field_validator("bands", mode="before")
    @classmethod
    def _off_is_a_word(cls, bands: Any) -> Any:
        """YAML takes a bare ``off`` for false."""
        return "off" if bands is False else bands

    @property
    def quarantines(self) -> bool:
        """Whether keys may be left out of the published result."""
        return any(one.severity == "quarantine" for one in self.expectations)


_LONGEST, _MOST = 1000, 16
#: With a list of lengths: the column of the result that says which one a row is of.
WINDOW_COLUMN = "window"


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= _LONGEST


def _as_length(given: Any) -> Any:
    """Say once what a length may be: of a value that is of none of several types pydantic tells several times."""
    if isinstance(given, list | tuple):
        if not (1 <= len(given) <= _MOST and all(map(_is_number, given)) and list(given) == sorted(set(given))):
            raise unmet(f"at most {_MOST} numbers of parts, 1 to {_LONGEST:,}, ascending, each once", shortened(given))
    elif not _is_number(given) and given != "all":
        raise unmet(f"a number of parts, 1 to {_LONGEST:,}, a list of such numbers, or all", shortened(given))
    return given


_Parts = Annotated[int, Field(ge=1, le=_LONGEST)]
#: A number of parts, all of them, or several numbers at once.
Length = Annotated[
    _Parts | Literal["all"] | Annotated[tuple[_Parts, ...], Field(min_length=1, max_length=_MOST)],
    BeforeValidator(_as_length),
]


def as_window(given: Any) -> Any:
    """A window as it is written: a length alone is short for a mapping with nothing else."""
    return given if given is None or isinstance(given, dict | Window) else {"length": _as_length(given)}


class Window(Section):
    """The parts that a result covers. Their states are kept, so that a later run reads only what has changed.

    `window: 28` is short for `window: {length: 28}`, and `window: 1` covers the run's own part alone.
    """

    length: Length = Field(examples=[28, "all", [1, 7, 28]])
    """The result covers so many parts, days or hours, the run's own the last, or all up to that one. Of a list,
    ascending, it has a row for each key and length, and the length in the column `window`, an integer."""
    late: Literal["recompute", "ignore", "fail"] = Field(default="recompute", examples=["ignore"])
    """What changed in an older part that has states is computed anew, is left out and counted, or fails the run."""
    missing: Literal["allow", "fail"] = Field(default="allow", examples=["fail"])
    """Whether a part without files is left out of the result, or fails the run."""
    keep: int | None = Field(default=None, ge=1, le=10_000, examples=[60])
    """States of so many parts are kept, at least those of the longest length; by default seven more than that, or with
    all those of all parts."""
    final_after: int | None = Field(default=None, ge=1, le=190, examples=[7])
    """A day is told to be final so many days after it; by default never."""
    states: PathText | None = Field(default=None, min_length=1, examples=["/lake/states"])
    """Where states are kept: a folder or a URL; by default beside the folder of the output."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        needed = self.lengths[-1]
        if self.keep is not None and needed is None:
            raise unmet("no keep with length all, which needs the states of all parts", str(self.keep))
        if self.keep is not None and needed is not None and self.keep < needed:
            raise unmet(f"keep of at least the longest length, {needed}", str(self.keep))
        if self.final_after is not None and needed is not None and self.final_after >= needed:
            raise unmet(
                f"final_after below the longest length, {needed}, as older days are not seen", str(self.final_after)
            )
        return self

    @property
    def several(self) -> tuple[int, ...] | None:
        """The lengths of a list, for each of which the result has rows; None if one length stands alone."""
        return self.length if isinstance(self.length, tuple) else None

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """All lengths, ascending, and None for all parts."""
        return self.several or (None if self.length == "all" else self.length,)  # type: ignore[return-value]

    @property
    def kept_parts(self) -> int | None:
        """Of how many parts states are kept: None for all."""
        longest = self.lengths[-1]
        return longest and (self.keep or longest + 7)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it adds to the key of a result."""
        return (WINDOW_COLUMN,) if self.several else ()


class NoWindow(NamedTuple):
    """What a job without a window has in its place: it keeps no states, so it has no lengths."""

    lengths: tuple[int | None, ...] = ()
    several: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()
    states: str | None = None
    final_after: int | None = None
    kept_parts: int | None = 0


class SortColumn(NamedTuple):
    """A column that a result is sorted by. As in Spark, null comes before all values, or after them if descending."""

    name: str
    descending: bool

    @classmethod
    def parse(cls, text: str) -> "SortColumn":
        """What a spec says: the column, and perhaps ``desc`` or ``asc``."""
        found = re.fullmatch(r"(.*\S)\s+(asc|desc)", text.strip(), re.IGNORECASE | re.DOTALL)
        return cls(text.strip(), descending=False) if found is None else cls(found[1], found[2].lower() == "desc")


_FILES = ("parquet", "orc", "csv", "json")
_OutputFormat = Annotated[str, one_of(_FILES, TABLES), WithJsonSchema({"enum": [*_FILES, *TABLES], "type": "string"})]


MOST_FILES = 10_000


class Output(Tagged):
    """Where the result is published: a folder with a folder for each day, or a table with a partition for each day.

    In a folder it is `path/date=YYYY-MM-DD/part-*`, or `path/date=YYYY-MM-DD/hour=HH/part-*` for hours. Replaced
    versions are kept for some time in a sibling of the folder, `.NAME.skewless`; in a bucket they are not. In a table,
    which is made on first use, the day is a column, and each publication is a snapshot.
    """

    TAG = WORD = "format"
    FIELDS_OF: ClassVar = {
        "parquet": ("grace_hours", "allow_gap", "table"),
        **dict.fromkeys(_FILES[1:], ("grace_hours", "allow_gap")),
        **dict.fromkeys(TABLES, ("schema",)),
    }

    format: _OutputFormat = Field(default="parquet", examples=["orc"])
    """What the files of a folder are, or which kind of table; csv has a header, and a table has Parquet files."""
    path: PathText = Field(min_length=1, examples=["/lake/marts/clicks_by_page", "local.marts.clicks_by_page"])
    """A folder; of delta, the table's folder or URL; of iceberg, catalog.namespace.table, where the catalog local is at
    the data root, and others are those of pyiceberg's configuration. Relative paths start at the data root, and stay
    below it; {date} is the day that the run computes."""
    partition: str = Field(default="date", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$", examples=["day"])
    """The column, a date, that says which day a row is of: of the folders, or of a table, which is partitioned by
    it."""
    columns: Literal["fail", "evolve"] = Field(default="fail", alias="schema", examples=["evolve"])
    """Whether a result with other columns than the table is refused, or adds its columns to the table."""
    files: int = Field(default=4, ge=1, le=MOST_FILES, examples=[16])
    """Files of the published result, at most."""
    sort: tuple[str, ...] = Field(default=(), max_length=100, examples=[["country desc"]])
    """Columns of the result that it is sorted by, each perhaps with `desc`. Every file is sorted, and the files follow
    each other, so readers pass over files that cannot have what they look for. An Iceberg table that is made gets this
    sort order. It costs a second pass over the result."""
    grace_hours: float = Field(default=24, ge=0, le=8760, examples=[72])
    """Hours that a replaced version is kept beside the folder, for readers that still use it and for going back to it.
    Not in a bucket."""
    allow_gap: bool = Field(default=False, examples=[True])
    """A folder in a bucket, without table, requires it: who lists the folder while a day is replaced may see two
    versions of it, until the old one is removed."""

    table: str | None = Field(
        default=None, pattern=r"^(hive|glue)\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+$", examples=["glue.marts.clicks_by_page"]
    )
    """A table of a metastore, hive or glue, with a partition for each day: readers by the catalog see one version,
    whole. Its name is catalog.database.table; it is made on first use."""

    @model_validator(mode="after")
    def _one_way_to_publish(self) -> Self:
        if self.allow_gap and self.table is not None:
            raise unmet("no allow_gap with table, which has no gap", "both")
        return self

    @field_validator("path")
    @classmethod
    def _name_of_table(cls, path: str, info: ValidationInfo) -> str:
        parts = path.split(".")
        named = len(parts) >= 3 and all(re.fullmatch(r"[A-Za-z0-9_]+", part) for part in parts)
        if is_named(info.data.get("format", "")) and not named:
            raise ValueError("should be catalog.namespace.table, of letters, digits and underscores")
        return path

    @property
    def order(self) -> tuple[SortColumn, ...]:
        """The columns that the result is sorted by."""
        return tuple(SortColumn.parse(text) for text in self.sort)

    @property
    def is_table(self) -> bool:
        """Whether the result is published in a table."""
        return self.format in TABLES

    @property
    def in_catalog(self) -> bool:
        """Whether a catalog or a table's history, not a manifest in a folder, says what is published."""
        return self.is_table or self.table is not None

    @property
    def file_format(self) -> str:
        """What its files are."""
        return "parquet" if self.is_table else self.format
