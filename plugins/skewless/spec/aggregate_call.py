"""One aggregate of a job: a function, a column and options."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from skewless.document import Frozen, shortened, unmet
from skewless.spec.input import refuse_large

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
            for one in value if isinstance(value, list) else ():
                if isinstance(one, int) and int(float(one)) != one:  # the list becomes one of floats
                    raise unmet("numbers that a double holds", f"{name}: {one}"[:120])
        return options
