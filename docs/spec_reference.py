"""The reference of job specs, as a page and as a JSON schema: both are what the models of ``skewless.spec.spec`` say.

``make docs`` runs this file, which writes ``spec.md`` and ``spec.schema.json`` beside itself; a test holds them to it.
"""

# ruff: noqa: INP001  # a program of the docs: no wheel has it
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from skewless.spec.spec import JobSpec

_HEAD = """\
# The job spec, field by field

<!-- Made by `make docs` from the models in plugins/skewless/spec, where its words are: change them there. -->

A spec is a YAML file: one job, and in `jobs/catalog/` thereby one DAG. It is strict: a field that is not on this page
is an error, which names the nearest field that is. `skewless check SPEC` tells whether a spec and its input are good,
and runs nothing.

```yaml
{example}```

An editor that knows YAML schemas completes and checks such a file by its first line, a path or an address of
[`spec.schema.json`](spec.schema.json). The schema knows fields, types and limits; what holds between fields, and of
columns and functions, is told by `skewless check`.

In the tables, *required* is a field without a default, and *none* is a default of nothing at all. Formats or policies
before a meaning are those that have the field; with any other one it is an error. A field of one run is
overridden by `skewless run SPEC --set routing.policy=static`, and those of Airflow's
[trigger form](operate.md#starting) there.
"""

EXAMPLE = """\
# yaml-language-server: $schema=../../docs/spec.schema.json
name: clicks_by_page
description: Clicks, visitors and slow answers of each page.
schedule: {cron: "0 2 * * *", timezone: Europe/Zurich}
input: {path: "/lake/clicks/{date}", format: csv, columns: {ms: bigint}}
map: {select: ["explode(split(pages, ' ')) AS page", site, visitor, ms], where: "ms IS NOT NULL"}
key: [site, page]
aggregates:
  clicks: count
  visitors: {function: approx_count_distinct, column: visitor}
  slow: {function: approx_percentile, column: ms, percentages: [0.5, 0.99]}
routing: {policy: adaptive, reducers: 64, waves: [1, 4, 15, 80]}
quality:
  expectations:
    - {type: expect_column_values_to_be_between, kwargs: {column: clicks, min_value: 1}}
output: {path: /lake/marts/clicks_by_page}
"""

#: Where a section's fields are told of at length, by the field that holds them.
_FURTHER = {
    "": ("engines.md", "engines, and the order in which keys see their rows"),
    "schedule": ("operate.md#starting", "schedules, the day that a run computes, backfill"),
    "input": ("inputs.md", "formats, folders and days, how files are cut"),
    "window": ("standing_states.md", "windows over many days, late data, what is kept and for how long"),
    "map": ("inputs.md#the-map-step", "what an expression may be, a mapper of your own"),
    "aggregates.NAME": ("aggregates.md", "all functions, their columns, options and errors"),
    "routing": ("policies/README.md", "what each policy does, and when to take it"),
    "spark": ("operate.md#keeping-it-going", "pool and size"),
    "airflow": ("operate.md#the-dag-of-a-spec", "what of it reaches which task, and who is told of what"),
    "sharing": ("several_clusters.md", "how a run is shared, and what becomes of a cluster that dies"),
    "quality": ("operate.md#watching", "where the report is seen"),
    "output": ("operate.md#the-published-folder", "what lies there, going back to a replaced version, file systems"),
}


class Section(NamedTuple):
    """The fields of one model, and the field of the spec that holds them, with dots; empty for the spec itself."""

    path: str
    schema: dict[str, Any]


class _InOrder(GenerateJsonSchema):
    """Keys stay as the models have them, those of examples too."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002  # pydantic's
        return value


def spec_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a spec as it is written in YAML."""
    schema = JobSpec.model_json_schema(schema_generator=_InOrder)
    for model in (schema, *schema["$defs"].values()):
        for field in _properties(model).values():
            field.pop("title", None)
            if "description" in field:  # as the lines below it are broken in the code
                field["description"] = " ".join(field["description"].split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Skewless job spec"}


def schema_text() -> str:
    """The schema as the text of its file."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


def reference_page() -> str:
    """The reference as markdown."""
    schema = spec_schema()
    told = [_HEAD.format(example=EXAMPLE)]
    told += [_told(section, schema) for section in sections(schema)]
    return "\n".join(told)


def sections(schema: dict[str, Any]) -> Iterator[Section]:
    """The spec's own fields, then those of each field that has fields, in their order; those of a model once."""
    yield Section("", schema)
    told = set()
    for section in _below("", schema, schema):
        if id(section.schema) not in told:
            told.add(id(section.schema))
            yield section


def _below(path: str, model: dict[str, Any], whole: dict[str, Any]) -> Iterator[Section]:
    for name, field in _properties(model).items():
        for reference, suffix in _references(field):
            found = Section(f"{path}.{name}{suffix}".lstrip("."), whole["$defs"][reference])
            yield found
            yield from _below(found.path, found.schema, whole)


def _references(field: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The models in a field, each with what stands between the field's name and theirs."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], ""
    for choice in field.get("anyOf", ()):
        yield from _references(choice)
    if "items" in field:
        yield from ((model, "[]" + rest) for model, rest in _references(field["items"]))
    for values in field.get("patternProperties", {}).values():
        yield from ((model, ".NAME" + rest) for model, rest in _references(values))


def _properties(model: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of a model; one that has a short form too has them in its long one."""
    found: dict[str, dict[str, Any]] = _long_form(model)["properties"]
    return found


def _long_form(model: dict[str, Any]) -> dict[str, Any]:
    return next((one for one in model.get("anyOf", ()) if "properties" in one), model)


def _told(section: Section, whole: dict[str, Any]) -> str:
    required = _long_form(section.schema).get("required", ())
    paths = {id(found.schema): found.path for found in sections(whole)}
    lines = [f"## {f'`{section.path}`' if section.path else 'All of it'}", "", section.schema["description"]]
    if section.path in _FURTHER:
        page, what = _FURTHER[section.path]
        lines += ["", f"More in [{page.partition('#')[0]}]({page}): {what}."]
    lines += ["", "| field | what it may be | default | meaning | example |", "|---|---|---|---|---|"]
    for name, field in _properties(section.schema).items():
        default = "*required*" if name in required else _default(field)
        cells = (
            f"`{name}`", _kind(field, whole, paths), default, field["description"],
            "<br>".join(_code({name: one}) for one in field["examples"]),
        )  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None:
        return "*none*" if "default" in field else "empty"
    if default in ("", [], {}):
        return "empty"
    return "its defaults" if isinstance(default, dict) else _code(default)


def _code(value: Any) -> str:
    flow = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    text = flow.removesuffix("\n").removesuffix("\n...")
    return f"`{text.removeprefix('{').removesuffix('}') if isinstance(value, dict) else text}`"


def _kind(field: dict[str, Any], whole: dict[str, Any], paths: dict[int, str]) -> str:
    if "$ref" in field:
        path = paths[id(whole["$defs"][field["$ref"].rpartition("/")[2]])]
        return f"[mapping](#{''.join(sign for sign in path.lower() if sign.isalnum() or sign in '-_')})"
    if "anyOf" in field:
        kinds = [_kind(one, whole, paths) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(one for one in kinds if one != "integer" or "number" not in kinds))
    if field.get("type") == "array":
        return f"list{_extent(field, 'Items')} of: {_kind(field['items'], whole, paths)}"
    if field.get("type") == "object":
        values = next(iter(field.get("patternProperties", {}).values()), field.get("additionalProperties"))
        inner = _kind(values, whole, paths) if isinstance(values, dict) else "anything"
        return f"mapping{_extent(field, 'Properties')} of names to: {inner}"
    return _plain_kind(field)


def _plain_kind(field: dict[str, Any]) -> str:
    if "const" in field:
        return _code(field["const"])
    if "enum" in field:
        *some, last = map(_code, field["enum"])
        return f"{', '.join(some)} or {last}"
    if field["type"] == "boolean":
        return "true or false"
    return _text(field) if field["type"] == "string" else f"{field['type']}{_range(field)}"


def _text(field: dict[str, Any]) -> str:
    if field.get("format") == "date":
        return "day"
    if "pattern" in field:
        return f"text that matches `{field['pattern']}`"
    return "text" if not field.get("minLength") else "text, not empty"


def _extent(field: dict[str, Any], of: str) -> str:
    low, high = field.get(f"min{of}", 0), field.get(f"max{of}")
    if high is not None:
        return f" ({low} to {high:,})"
    return f" (at least {low})" if low else ""


def _range(field: dict[str, Any]) -> str:
    low, above, high = field.get("minimum"), field.get("exclusiveMinimum"), field.get("maximum")
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    bounds = [f"at least {low:,}"] if low is not None else []
    bounds += [f"above {above:,}"] if above is not None else []
    bounds += [f"at most {high:,}"] if high is not None else []
    return f", {', '.join(bounds)}" if bounds else ""


if __name__ == "__main__":
    Path(__file__).with_name("spec.md").write_text(reference_page(), encoding="utf-8")
    Path(__file__).with_name("spec.schema.json").write_text(schema_text(), encoding="utf-8")
