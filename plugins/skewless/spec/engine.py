"""The engines, as the planner and the pages know them; what they do with rows is in ``skewless_spark.engines``."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator, WithJsonSchema


class EngineTraits(NamedTuple):
    """What a plan of an engine means.

    Attributes:
        in_stages: whether waves are taken in stage by stage, and the plan is made anew after each; if not, one stage
            takes in all rows that are left.
        in_tasks: whether rows are sent to the tasks of the plan; if not, they are reduced where they are read.
        places: whether it takes in all rows in tasks of its own number, on which heavy keys are placed by a sample.
    """

    in_stages: bool = False
    in_tasks: bool = True
    places: bool = False


#: By their names in specs and plans.
ENGINES: dict[str, EngineTraits] = {
    "combine": EngineTraits(in_tasks=False),
    "bypass": EngineTraits(places=True),
    "staged": EngineTraits(in_stages=True),
}


def _one_of(*also: str) -> AfterValidator:
    def known(name: str) -> str:
        *some, last = names = [*also, *ENGINES]
        if name not in names:
            raise ValueError(f"should be {', '.join(map(repr, some))} or {last!r}")
        return name

    return AfterValidator(known)


EngineName = Annotated[str, _one_of()]
#: What a spec may ask for.
AskedEngine = Annotated[str, _one_of("auto"), WithJsonSchema({"enum": ["auto", *ENGINES], "type": "string"})]
