"""What many native aggregates share: simple merges, and states that are the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import Column

from skewless_spark.aggregates.definition import NativeAggregate

#: An aggregate function of Spark, over a column or the name of one.
Function = Callable[["Column | str"], Column]


class Options(BaseModel):
    """Base of the options of native aggregates; values are not converted to other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def no_floats(spark_types: Sequence[str]) -> bool:
    """For ``combines_exactly``: floating-point sums are rounded at each step, and 0.0 equals -0.0."""
    return not any("float" in kind or "double" in kind for kind in spark_types)


def of_itself(name: str, accepts: Callable[[str], str], function: Function) -> NativeAggregate:
    """An aggregate whose state is its result, and whose states it merges itself, like ``max``."""
    return NativeAggregate(
        name,
        accepts=accepts,
        update=lambda arguments, _: (function(arguments.columns[0]),),
        merge=merged_by(function),
        evaluate=the_state,
        combines_exactly=no_floats,
    )


def merged_by(function: Callable[[str], Column]) -> Callable[[Sequence[str], object, str], Sequence[Column]]:
    """For ``merge``: every state column is merged by one aggregate function, like counts by ``sum``."""
    return lambda states, _, __: tuple(function(name) for name in states)


def publishing(definition: NativeAggregate, **fields: Any) -> NativeAggregate:
    """The aggregate, and what it is with ``publish: state``: other in some fields, and its result is its state."""
    return replace(definition, published=replace(definition, **{"evaluate": the_state, **fields}))


def of_state(function: Callable[[Column], Column]) -> Callable[[Sequence[Column], object, str], Column]:
    """For ``evaluate``: the result is made of the only state column, whatever the options and the type."""
    return lambda states, _, __: function(states[0])


#: For ``evaluate``: the state is the result.
the_state = of_state(lambda state: state)
