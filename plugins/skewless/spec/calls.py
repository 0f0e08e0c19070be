"""What a job calls by its name, with options beside it: its aggregates, and its mapper or select list."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from skewless.document import Section, shortened, unmet
from skewless.spec.input import refuse_large


class Call(Section):
    """A function by its name, whose options stand beside the other fields."""

    @classmethod
    def apart(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """What is written, with all that is no field as ``options``; in Python they may be given by that name."""
        own = {name: value for name, value in raw.items() if name in cls.model_fields and name != "options"}
        options = {name: value for name, value in raw.items() if name not in own}
        if isinstance(options.get("options"), dict):
            options |= options.pop("options")
        for name, value in options.items():
            refuse_large(name, value)
        return {**own, "options": options}

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written = dict(dump(self))
        return {**{name: value for name, value in written.items() if name != "options"}, **written["options"]}


_CallOption = bool | int | float | str | list[float] | None


def _short_call(schema: dict[str, Any]) -> None:
    whole = {name: schema.pop(name) for name in ("type", "properties", "required")}
    options = whole["properties"].pop("options")["additionalProperties"]
    schema.pop("additionalProperties")
    schema["anyOf"] = [{"type": "string", "minLength": 1}, {**whole, "additionalProperties": options}]


class AggregateCall(Call):
    """One aggregate: a function by its registered name, a column, and the function's options.

    `clicks: count` is short for `clicks: {function: count}`, and options stand beside the function:
    `{function: approx_percentile, column: ms, percentage: 0.99}`.
    """

    model_config = ConfigDict(json_schema_extra=_short_call)

    function: str = Field(min_length=1, examples=["approx_percentile"])
    """Name of a native or a registered Python aggregate."""
    column: str | None = Field(default=None, examples=["ms"])
    """The column it is of; `count` needs none, and then counts rows."""
    # Left out by default, so that what shapes the states of other jobs is what it was.
    publish: Literal["result", "state"] = Field(
        default="result", exclude_if=lambda publish: publish == "result", examples=["state"]
    )
    """With `state`, the sketch itself is published in place of its number: Apache DataSketches' bytes."""
    options: dict[str, _CallOption] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _options_beside(cls, raw: Any) -> Any:
        """``count`` means ``{function: count}``; names beside function and column are options."""
        if isinstance(raw, str):
            return {"function": raw}
        if not isinstance(raw, dict) or "function" not in raw:
            return raw
        call = cls.apart(raw)
        for name, value in call["options"].items():
            numbers = isinstance(value, list) and all(isinstance(one, int | float) for one in value)
            if not numbers and not isinstance(value, bool | int | float | str | None):
                raise unmet(
                    "a text, a number, true, false, null or a list of numbers", f"{name}: {shortened(value)}"[:120]
                )
            for one in value if isinstance(value, list) else ():
                if isinstance(one, int) and int(float(one)) != one:  # the list becomes one of floats
                    raise unmet("numbers that a double holds", f"{name}: {one}"[:120])
        return call


_MapOption = bool | int | float | str | list[str] | None


def _map_options(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = schema["properties"].pop("options")["additionalProperties"]
    schema["if"] = {"not": {"required": ["mapper"]}}
    schema["then"] = {"propertyNames": {"enum": ["select", "where"]}}
    schema["properties"].pop("query")


class Map(Call):
    """One row in, any number out, without state: a select list of Spark SQL, or a registered Python mapper.

    A mapper's options stand beside its name: `map: {mapper: tokens, column: value}`.
    """

    model_config = ConfigDict(json_schema_extra=_map_options)

    select: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1, max_length=1000, examples=[["explode(split(tags, ',')) AS tag", "ms"]]
    )
    """Spark SQL expressions with names, over input columns."""
    where: str | None = Field(default=None, min_length=1, examples=["ms IS NOT NULL"])
    """Only with select: which input rows it sees."""
    #: Of the query of a spec: its part below the aggregation, whose FROM begins with ``input``.
    query: str | None = Field(default=None, exclude_if=lambda query: query is None)
    mapper: str | None = Field(default=None, min_length=1, examples=["tokens"])
    """Instead of select: the name of a registered Python mapper."""
    options: dict[str, _MapOption] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _further_names_are_options(cls, raw: Any) -> Any:
        called = isinstance(raw, dict) and (raw.get("mapper") is not None or "options" in raw)
        return cls.apart(raw) if called else raw

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("select", "query", "mapper") if getattr(self, name) is not None]
        if len(ways) != 1:
            raise unmet("either select or mapper", " and ".join(ways) or "none of them")
        if self.select is None and self.where is not None:
            raise unmet("where only with select", f"where with a {ways[0]}")
        if self.mapper is None and self.options:
            raise unmet("options only with a mapper", f"options with {ways[0]}")
        return self

    @property
    def sql(self) -> str | None:
        """The query of rows, of which a select list is the short form; None of a mapper.

        >>> print(Map(select=("a", "b + 1 AS c"), where="a > 0").sql)
        SELECT a,
        b + 1 AS c
        FROM input
        WHERE a > 0
        """
        if self.select is None:
            return self.query
        where = f"\nWHERE {self.where}" if self.where is not None else ""
        # A line ends a comment.
        return "SELECT " + ",\n".join(self.select) + f"\nFROM input{where}"
