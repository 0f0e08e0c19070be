"""What may be chosen for one run of a spec: a closed list of fields, none of which names code, SQL or a path.

A form, a trigger's conf and a command give these by their short names. They are held to the spec's own
model, once where they are given and once more in the job: there is no second list of limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import JsonValue, ValidationError

from skewless.document import sentence_of, shortened
from skewless.errors import SpecError, nearest
from skewless.spec.spec import JobSpec

#: Short name -> field of the spec.
OPTIONS: dict[str, tuple[str, ...]] = {
    "accept": ("quality", "accept"),
    "policy": ("routing", "policy", "name"),
    "reducers": ("routing", "reducers"),
    "waves": ("routing", "waves"),
    "budget": ("routing", "budget"),
    "late": ("window", "late"),
    "missing": ("window", "missing"),
}


def option_values(spec: JobSpec) -> dict[str, Any]:
    """What the spec itself says for each option that it can have, as JSON values."""
    raw = spec.model_dump(mode="json")
    left_out = {name for name, path in OPTIONS.items() if raw[path[0]] is None}
    left_out |= set() if spec.quality.quarantines else {"accept"}
    return {name: _at(raw, path) for name, path in OPTIONS.items() if name not in left_out}


def option_schema(name: str) -> dict[str, Any]:
    """The JSON schema of an option as the spec's model has it, without references."""
    schema = _spec_schema()
    found: dict[str, Any] = schema
    for part in OPTIONS[name]:
        found = _section(schema, found)["properties"][part]
    return dict(_flat(found))


def with_options(spec: JobSpec, given: Mapping[str, JsonValue], where: str) -> JobSpec:
    """The spec with the options given for one run, by their short names; a ``SpecError`` if it may not have them."""
    unknown = next((name for name in given if name not in OPTIONS), None)
    if unknown is not None:
        raise SpecError(where, "known options", shortened(unknown), nearest(unknown[:80], OPTIONS))
    raw, has = spec.model_dump(mode="json"), option_values(spec)
    for name, value in given.items():
        *parents, last = OPTIONS[name]
        if name not in has:
            raise SpecError(where, f"{name} only of a job with a {parents[0]}", "one without")
        section = _at(raw, tuple(parents))
        if name == "policy" and value != has[name]:
            section.clear()  # what else it has is of the other policy
        section[last] = value
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None


def parse_options(text: str, where: str) -> dict[str, JsonValue]:
    """Options that were written as one JSON object; anything else is a ``SpecError``."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise SpecError(where, "a JSON object of options", repr(text[:120]))
    return given


def refuse_more_waves(spec: JobSpec, most: int | None, where: str) -> None:
    """Refuse, by a ``SpecError``, more waves than whoever runs the stages has stages for."""
    if most is not None and len(spec.routing.waves) > most:
        raise SpecError(
            f"{where}, field routing.waves", f"at most {most} waves, as the DAG has stages for so many",
            f"{len(spec.routing.waves)}", "change the spec, and let Airflow parse the DAG again",
        )  # fmt: skip


@cache
def _spec_schema() -> dict[str, Any]:
    """Of the whole spec: it takes a tenth of a second to make, and DAG files are parsed often."""
    return JobSpec.model_json_schema()


def _at(raw: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = raw
    for part in path:
        found = found[part]
    return found


def _section(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The model that a part of a schema refers to, perhaps beside a short form; or the part itself."""
    choices = [part, *part.get("anyOf", ())]
    name = next((one["$ref"].rpartition("/")[2] for one in choices if "$ref" in one), None)
    found: dict[str, Any] = part if name is None else schema["$defs"][name]
    return found


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """One of several types, or null, written as ``type: [..., null]``."""
    choices = schema.get("anyOf")
    if choices is None:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    some = {} if {"type": "null"} not in choices else choices[0]
    return {**rest, **some, "type": [choice["type"] for choice in choices]}
